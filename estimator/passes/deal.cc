#include "estimator/passes/deal.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "estimator/passes/pass.h"
#include "estimator/program/parameter_sums.h"

namespace plimsoll {
namespace {

// Elements that a rank steps.
struct Share {
  int64_t picked = 0;
  int64_t rest = 0;

  void Grow(int64_t elements, bool is_picked) {
    int64_t& sum = is_picked ? picked : rest;
    sum = Add(sum, elements);
  }
};

// So many parameters alike.
struct Dealt {
  int64_t elements = 0;
  int64_t times = 0;
  bool picked = false;
};

int64_t BytesOf(const State& state, const Share& share) {
  const bool all = state.basis == Basis::kParameters;
  const int64_t picked = all || state.basis == Basis::kPicked ? share.picked : 0;
  const int64_t rest = all || state.basis == Basis::kOthers ? share.rest : 0;
  return Bytes(state.dtype, Add(picked, rest));
}

bool IsDealt(const State& state) {
  return state.part == Part::kMasterWeights || state.part == Part::kOptimizerStates;
}

// Parameters of the network, or of its experts, which have a matrix each.
std::vector<Dealt> ParametersOf(const Job& job, const Program& program, bool of_experts) {
  std::vector<Dealt> dealt;
  const Stage whole = WholeStage(job.model->layer_count);
  for (const Block& block : program.blocks) {
    const int64_t count = CountOnStage(block, whole);
    for (size_t i = 0; i < block.parameters.size(); ++i) {
      const Parameter& at = block.parameters[i];
      if (at.of_experts() != of_experts || at.packed() || at.tied || at.frozen) continue;
      const int64_t matrices = of_experts ? at.shape.extents[0].Local() : 1;
      const int64_t elements = PackedElements(block, i) / matrices;
      dealt.push_back({elements, Multiply(count, matrices), at.picked});
    }
  }
  return dealt;
}

// How many of [0, end) are `at` modulo `period`.
int64_t CountOf(int64_t end, int64_t at, int64_t period) {
  return end > at ? (end - at - 1) / period + 1 : 0;
}

// How many of [begin, end) go to a rank: of 2n in a row the first n go to ranks in their order, the
// others in the reverse one.
int64_t TimesOf(int64_t begin, int64_t end, int64_t rank, int64_t ranks) {
  const int64_t period = 2 * ranks;
  const int64_t back = period - 1 - rank;
  return CountOf(end, rank, period) - CountOf(begin, rank, period) + CountOf(end, back, period) -
         CountOf(begin, back, period);
}

// Each rank's.
std::vector<Share> Deal(std::vector<Dealt> parameters, int64_t ranks) {
  const auto smaller = [](const Dealt& a, const Dealt& b) { return a.elements < b.elements; };
  std::stable_sort(parameters.begin(), parameters.end(), smaller);
  std::vector<Share> shares(static_cast<size_t>(ranks));
  int64_t begin = 0;
  for (const Dealt& dealt : parameters) {
    const int64_t end = Add(begin, dealt.times);
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const int64_t times = TimesOf(begin, end, rank, ranks);
      shares[static_cast<size_t>(rank)].Grow(Multiply(times, dealt.elements), dealt.picked);
    }
    begin = end;
  }
  return shares;
}

Share Largest(const std::vector<Share>& shares, const Program& program) {
  const auto bytes = [&program](const Share& share) {
    int64_t sum = 0;
    for (const State& state : program.states) {
      if (IsDealt(state)) sum = Add(sum, BytesOf(state, share));
    }
    return sum;
  };
  return *std::max_element(shares.begin(), shares.end(), [&bytes](const Share& a, const Share& b) {
    return bytes(a) < bytes(b);
  });
}

// What each rank updated is gathered from all, whole: the network's, then experts'.
int64_t GatheredBytes(const Job& job, const std::vector<Dealt>& parameters, int64_t ranks) {
  if (ranks == 1) return 0;
  int64_t elements = 0;
  for (const Dealt& dealt : parameters) {
    elements = Add(elements, Multiply(dealt.times, dealt.elements));
  }
  return Bytes(job.precision.parameter, elements);
}

}  // namespace

void DealStates(const Job& job, Program& program) {
  const std::vector<Dealt> network = ParametersOf(job, program, false);
  Share most = Largest(Deal(network, job.ReplicaCount()), program);
  int64_t gathered = GatheredBytes(job, network, job.ReplicaCount());
  if (job.model->experts.Any()) {
    const std::vector<Dealt> experts = ParametersOf(job, program, true);
    const int64_t ranks = job.ExpertReplicaCount();
    const Share of_experts = Largest(Deal(experts, ranks), program);
    most.Grow(of_experts.picked, true);
    most.Grow(of_experts.rest, false);
    gathered = std::max(gathered, GatheredBytes(job, experts, ranks));
  }
  for (State& state : program.states) {
    // The step's own are gone by then.
    const bool own = state.part == Part::kStepTemporaries;
    if (own) state.fixed_bytes = std::max(state.fixed_bytes, gathered);
    if (!IsDealt(state)) continue;
    state.fixed_bytes = BytesOf(state, most);
    state.basis = Basis::kBytes;
    state.shrunk_by |= Mark(PassId::kZero);
  }
}

}  // namespace plimsoll
