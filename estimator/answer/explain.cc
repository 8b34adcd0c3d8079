#include "estimator/answer/explain.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "estimator/program/describe.h"
#include "estimator/step/sum_plan.h"

namespace plimsoll {
namespace {

std::string Time(const Block& block, int time) {
  const int count = static_cast<int>(block.ops.size());
  if (time < count) return std::string(block.ops[static_cast<size_t>(time)].name);
  const int back = std::clamp(2 * count - 1 - time, 0, count - 1);
  return absl::StrCat("backward of ", block.ops[static_cast<size_t>(back)].name);
}

// How often what a run of each block keeps is there, with so many pairs of each virtual stage.
std::vector<int64_t> KeptByPairs(const Program& program, const Stage& stage,
                                 absl::Span<const int64_t> pairs) {
  std::vector<int64_t> kept(program.blocks.size() + program.reference.size(), 0);
  for (size_t i = 0; i < pairs.size(); ++i) {
    const std::vector<int64_t> of_one = KeptRuns(program, VirtualStage(stage, i));
    for (size_t run = 0; run < kept.size(); ++run) {
      kept[run] = Add(kept[run], Multiply(of_one[run], pairs[i]));
    }
  }
  return kept;
}

// Kept activations and the largest temporaries of one block.
void ExplainBlock(const Program& program, const Block& block, const Stage& stage, int64_t kept,
                  std::vector<LedgerEntry>& ledger) {
  if (CountOnStage(block, stage) == 0) return;
  std::vector<Storage> storages;
  Run(block, program.weight_gradient, program.gradient_dtype, &storages);
  std::set<std::pair<TensorId, absl::string_view>> seen;  // a segment makes its tensors twice
  for (const Storage& storage : storages) {
    if (storage.tensor == kNoTensor) continue;
    if (!seen.emplace(storage.tensor, storage.suffix).second) continue;
    const Tensor& tensor = block.tensors[storage.tensor];
    LedgerEntry entry;
    entry.block = std::string(block.name);
    entry.tensor = absl::StrCat(tensor.name, storage.suffix);
    entry.role = storage.role;
    entry.dtype = tensor.dtype;
    entry.shape = InSymbols(tensor.shape);
    entry.extents = InNumbers(tensor.shape);
    entry.bytes = storage.bytes;
    entry.count = storage.kept ? kept : 1;
    entry.shrunk_by = PassNames(tensor.shrunk_by);
    entry.lifetime = absl::StrCat(Time(block, storage.birth), " .. ", Time(block, storage.death));
    ledger.push_back(std::move(entry));
  }
  for (const BlockBuffer& buffer : block.buffers) {
    if (buffer.end == BufferEnd::kMade) continue;  // an op has it
    LedgerEntry entry;
    entry.block = std::string(block.name);
    entry.tensor = std::string(buffer.name);
    entry.role = buffer.role;
    entry.bytes = std::max(buffer.forward.bytes, buffer.At(true, block.gathered).bytes);
    entry.count = 1;
    const bool next = buffer.end == BufferEnd::kNextBuffer;
    entry.lifetime = next             ? "until the next block's is there"
                     : buffer.of_next ? "while the block before runs backward"
                                      : "while the block runs";
    ledger.push_back(std::move(entry));
  }
}

LedgerEntry ExplainState(const State& state, const ParameterSums& sums) {
  LedgerEntry entry;
  entry.block = "states";
  entry.tensor = std::string(state.name);
  entry.role = state.role;
  entry.dtype = state.dtype;
  const bool fixed = state.basis == Basis::kBytes;
  entry.shape = fixed ? "" : (state.shards > 1 ? absl::StrCat("[P/", state.shards, "]") : "[P]");
  entry.extents = fixed
                      ? ""
                      : absl::StrCat("[", SelectedElements(state, sums),
                                     state.shards > 1 ? absl::StrCat("/", state.shards) : "", "]");
  entry.bytes = StateBytes(state, sums);
  entry.count = 1;
  entry.shrunk_by = PassNames(state.shrunk_by);
  entry.lifetime = state.alive == kAlways ? "always" : "part of the step";
  return entry;
}

}  // namespace

TraceEntry Measure(absl::string_view pass, const Program& program, const Stage& stage) {
  TraceEntry entry{pass, 0, 0};
  const ParameterSums sums = SumParameters(program, stage);
  for (const State& state : program.states) {
    const bool kept = state.role == Role::kWeight || state.role == Role::kGradient ||
                      state.role == Role::kMasterWeight || state.role == Role::kOptimizerState;
    if (kept) entry.state_bytes = Add(entry.state_bytes, StateBytes(state, sums));
  }
  const size_t chunks = std::max<size_t>(stage.virtual_stages.size(), 1);
  const std::vector<int64_t> one_of_each(chunks, 1);
  const std::vector<int64_t> kept = KeptByPairs(program, stage, one_of_each);
  for (size_t i = 0; i < program.blocks.size(); ++i) {
    const Block& block = program.blocks[i];
    if (block.kind == BlockKind::kHead) continue;
    const BlockRun run = Run(block, program.weight_gradient, program.gradient_dtype);
    entry.activation_bytes = Add(entry.activation_bytes, Multiply(run.kept.total, kept[i]));
  }
  return entry;
}

std::vector<LedgerEntry> ExplainLedger(const Program& program, const Stage& stage,
                                       const StagePeak& peak) {
  std::vector<LedgerEntry> ledger;
  const Alive bit = Bit(peak.phase, !peak.steady);
  for (const State& state : program.states) {
    const bool alive = (state.alive & bit) != 0 || state.grows_in_backward;
    if (alive) ledger.push_back(ExplainState(state, peak.sums));
  }
  const std::vector<int64_t> kept = KeptByPairs(program, stage, peak.pairs);
  size_t run = 0;
  for (const Block& block : program.blocks) {
    ExplainBlock(program, block, stage, kept[run++], ledger);
  }
  for (const Block& block : program.reference) {
    ExplainBlock(program, block, stage, kept[run++], ledger);
  }
  std::stable_sort(ledger.begin(), ledger.end(), [](const LedgerEntry& a, const LedgerEntry& b) {
    return Multiply(a.bytes, a.count) > Multiply(b.bytes, b.count);
  });
  return ledger;
}

}  // namespace plimsoll
