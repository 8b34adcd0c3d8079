#include "estimator/passes/coordinator.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "estimator/passes/gather_turns.h"
#include "estimator/passes/module_order.h"

namespace plimsoll {
namespace {

// Source: deepspeed/runtime/zero/config.py, prefetch_bucket_size, max_live_parameters,
// max_reuse_distance.
constexpr int64_t kPrefetchElements = 50000000;
constexpr int64_t kLiveElements = 1000000000;
constexpr int64_t kReuseElements = 1000000000;

// Numbers of weights: a module has few.
using Numbers = absl::InlinedVector<int32_t, 6>;

constexpr int32_t kNever = std::numeric_limits<int32_t>::max();

enum class Where : uint8_t { kAway, kOnItsWay, kHere };

// What has been asked for in one call.
struct Call {
  Numbers weights;
  int32_t flat = -1;  // the tensor that several are gathered into
  size_t waiting = 0;
  bool copied = false;
};

class Coordinator {
 public:
  // Until the order is known nothing is asked for ahead, and nothing stays for its next use.
  // Source: deepspeed/runtime/zero/partitioned_param_coordinator.py, is_complete_trace.
  Coordinator(const Job& job, const Network& network, const std::vector<Visit>& order, bool known)
      : ranks_(job.shard_group_size),
        weights_(network.weights),
        order_(order),
        known_(known),
        where_(weights_.size(), Where::kAway),
        call_(weights_.size(), 0),
        tensor_(weights_.size(), -1),
        seen_(weights_.size(), -1) {
    for (size_t i = 0; i < weights_.size(); ++i) {
      if (weights_[i].persists) where_[i] = Where::kHere;
    }
    SetUses();
    // Each is made twice at most, and goes again, in either direction.
    events_.reserve(8 * weights_.size());
    calls_.reserve(2 * weights_.size());
    marks_.resize(order_.back().turn + 1);
  }

  // What becomes of tensors, with the turn of each event.
  void Run() {
    for (size_t step = 0; step < order_.size(); ++step) {
      if (order_[step].reads) {
        Read(order_[step].module);
      } else {
        Fetch(static_cast<int32_t>(step));
        if (order_[step].head) marks_[order_[step].turn].run = EventCount();
        Release(static_cast<int32_t>(step));
      }
      TurnMark& mark = marks_[order_[step].turn];
      mark.end = EventCount();
      if (IsAgain(order_[step])) mark.again_end = EventCount();
    }
  }
  const std::vector<GatherEvent>& events() const { return events_; }
  // Of each turn. The head's block, whose logits and loss are behind its module, runs once that one
  // has what it reads.
  const std::vector<TurnMark>& marks() const { return marks_; }
  int32_t tensor_count() const { return tensor_count_; }

 private:
  struct Use {
    int32_t weight = 0;
    int32_t step = 0;
    int32_t next = kNever;  // the step of the next use of the same
  };

  // Forward in a turn of backward.
  bool IsAgain(const Visit& visit) const {
    return !visit.backward && order_.back().backward && visit.turn >= marks_.size() / 2;
  }

  void SetUses() {
    uses_.reserve(2 * weights_.size());
    first_use_.reserve(order_.size());
    before_.reserve(order_.size() + 1);
    before_.push_back(0);
    for (size_t step = 0; step < order_.size(); ++step) {
      first_use_.push_back(uses_.size());
      int64_t elements = 0;
      for (const int32_t id : order_[step].module) {
        if (order_[step].reads) continue;  // nothing is asked for ahead
        uses_.push_back({id, static_cast<int32_t>(step), kNever});
        elements = Add(elements, weights_[static_cast<size_t>(id)].elements);
      }
      before_.push_back(Add(before_.back(), elements));
    }
    std::vector<int32_t> next(weights_.size(), kNever);
    for (auto use = uses_.rbegin(); use != uses_.rend(); ++use) {
      use->next = std::exchange(next[static_cast<size_t>(use->weight)], use->step);
    }
  }

  uint32_t EventCount() const { return static_cast<uint32_t>(events_.size()); }

  int32_t Make(int64_t bytes) {
    events_.push_back({tensor_count_, bytes});
    return tensor_count_++;
  }
  void End(int32_t& tensor) {
    if (tensor >= 0) events_.push_back({tensor, 0});
    tensor = -1;
  }
  void Drop(int32_t id) {
    const auto weight = static_cast<size_t>(id);
    where_[weight] = Where::kAway;
    live_ -= weights_[weight].elements;
    End(tensor_[weight]);
  }

  // Several are gathered flat, and copied out when the first of them is waited for; one stays
  // where it was gathered, as all do that come from the host alone.
  void Gather(Numbers ids) {
    if (ids.empty()) return;
    if (ranks_ == 1 && ids.size() > 1) {
      for (const int32_t id : ids) Gather({id});
      return;
    }
    Call call;
    int64_t bytes = 0;
    for (const int32_t id : ids) {
      const Weight& weight = weights_[static_cast<size_t>(id)];
      where_[static_cast<size_t>(id)] = Where::kOnItsWay;
      call_[static_cast<size_t>(id)] = calls_.size();
      live_ = Add(live_, weight.elements);
      const int64_t shard = CeilDivide(weight.elements, ranks_);
      const int64_t each = weight.bytes / std::max<int64_t>(weight.elements, 1);
      bytes = Add(bytes, Multiply(Multiply(shard, ranks_), each));
    }
    const int32_t made = Make(bytes);
    if (ids.size() == 1) {
      tensor_[static_cast<size_t>(ids[0])] = made;
      call.copied = true;
    } else {
      call.flat = made;
    }
    call.waiting = ids.size();
    call.weights = std::move(ids);
    calls_.push_back(std::move(call));
  }

  void Wait(int32_t id) {
    if (where_[static_cast<size_t>(id)] != Where::kOnItsWay) return;
    Call& call = calls_[call_[static_cast<size_t>(id)]];
    if (!call.copied) {
      for (const int32_t each : call.weights) {
        tensor_[static_cast<size_t>(each)] = Make(weights_[static_cast<size_t>(each)].bytes);
      }
      call.copied = true;
    }
    where_[static_cast<size_t>(id)] = Where::kHere;
    if (call.waiting > 0 && --call.waiting == 0) End(call.flat);
  }

  void Fetch(int32_t step) {
    const absl::Span<const int32_t> module = order_[static_cast<size_t>(step)].module;
    Numbers away;
    for (const int32_t id : module) {
      if (where_[static_cast<size_t>(id)] == Where::kAway) away.push_back(id);
    }
    Gather(std::move(away));
    for (const int32_t id : module) Wait(id);
    if (!known_) return;
    const auto fresh = [&](int32_t id) { return seen_[static_cast<size_t>(id)] < step; };
    auto asked = std::count_if(module.begin(), module.end(), fresh);
    for (; asked > 0 && queue_ < uses_.size(); --asked) See(uses_[queue_++]);
    LookAhead();
  }

  // In the stream of what reads it.
  void Read(absl::Span<const int32_t> weights) {
    for (const int32_t id : weights) {
      if (where_[static_cast<size_t>(id)] != Where::kAway) continue;
      Gather({id});
      events_.back().when_read = true;
      Wait(id);
      Drop(id);
    }
  }

  void See(const Use& use) {
    int32_t& seen = seen_[static_cast<size_t>(use.weight)];
    seen = std::max(seen, use.step);
  }

  // Asks for what comes next, as far as there is room.
  void LookAhead() {
    const int64_t room = std::min(kLiveElements - live_, kPrefetchElements);
    Numbers next;
    int64_t elements = 0;
    while (queue_ < uses_.size() && elements < room) {
      const Use& use = uses_[queue_++];
      See(use);
      const bool away = where_[static_cast<size_t>(use.weight)] == Where::kAway;
      if (!away || std::find(next.begin(), next.end(), use.weight) != next.end()) continue;
      next.push_back(use.weight);
      elements = Add(elements, weights_[static_cast<size_t>(use.weight)].elements);
    }
    Gather(std::move(next));
  }

  // What was passed over as it was here, or comes again soon, stays; as the embedding does when
  // backward is over, since nothing behind it tells.
  // Source: deepspeed/runtime/zero/parameter_offload.py, PostBackwardFunctionModule
  // (requires_grad).
  void Release(int32_t step) {
    const auto at = static_cast<size_t>(step);
    if (order_[at].stays) return;
    const bool last = order_[at].backward && order_[at].turn == order_.back().turn;
    const size_t end = at + 1 < first_use_.size() ? first_use_[at + 1] : uses_.size();
    for (size_t i = first_use_[at]; i < end; ++i) {
      const Use& use = uses_[i];
      const auto weight = static_cast<size_t>(use.weight);
      const bool soon = known_ && use.next != kNever &&
                        before_[static_cast<size_t>(use.next)] - before_[at + 1] < kReuseElements;
      const bool passed = seen_[weight] > step + 1;
      if (weights_[weight].persists || soon || passed || last) continue;
      if (where_[weight] != Where::kHere) continue;
      Drop(use.weight);
    }
  }

  const int64_t ranks_;
  const std::vector<Weight>& weights_;
  const std::vector<Visit>& order_;
  const bool known_;
  std::vector<Where> where_;
  std::vector<size_t> call_;     // of each weight, the last that asked for it
  std::vector<int32_t> tensor_;  // of each weight
  std::vector<int32_t> seen_;    // the last use of each weight that was fetched or passed over
  std::vector<Use> uses_;
  std::vector<size_t> first_use_;  // of each step
  std::vector<int64_t> before_;    // elements that steps before this one use
  std::vector<Call> calls_;
  size_t queue_ = 0;
  int64_t live_ = 0;  // elements that are here or on their way
  std::vector<GatherEvent> events_;
  std::vector<TurnMark> marks_;
  int32_t tensor_count_ = 0;
};

// Sets what turns flatten of the bucket that gradients are copied to: all that is in it, before
// one that finds no room is, and in the end, when no gradient waits for another. One alone is sent
// as it is, where ranks share it evenly.
// Source: deepspeed/runtime/zero/stage3.py, reduce_independent_p_g_buckets_and_remove_grads;
// runtime/comm/coalesced_collectives.py, reduce_scatter_coalesced.
void SetFlats(const Job& job, const Program& program, const Network& network,
              const std::vector<Visit>& order, std::vector<GatherTurn>& turns) {
  int64_t elements = 0;
  int64_t count = 0;
  const auto send = [&](GatherTurn& turn) {
    const bool alone = count == 1 && elements % job.shard_group_size == 0;
    if (!alone) turn.flat_bytes = std::max(turn.flat_bytes, Bytes(job.precision.reduce, elements));
    elements = 0;
    count = 0;
  };
  ForEachGradient(network, order, [&](size_t id, size_t turn) {
    const int64_t own = network.weights[id].elements;
    const bool full = Add(elements, own) > job.reduce_bucket_element_count;
    if (full && elements > 0) send(turns[turn]);
    elements = Add(elements, own);
    ++count;
  });
  if (elements == 0) return;
  GatherTurn& last = turns.back();
  send(last);
  // A shared table's is whole once the head's was added.
  if (program.waiting_gradient_bytes > 0) {
    last.flat_behind_bytes = std::exchange(last.flat_bytes, 0);
  }
}

HeadUse UseOfHead(const Job& job, bool known) {
  if (job.loss != LossImplementation::kTiledLogProbs) return HeadUse::kCalled;
  return known ? HeadUse::kRead : HeadUse::kFirstRead;
}

// The turns of one micro-batch, whose events come behind those that `gathers` has.
std::vector<GatherTurn> Play(const Job& job, const Network& network,
                             const std::vector<Visit>& order, bool known, Gathers& gathers) {
  Coordinator coordinator(job, network, order, known);
  coordinator.Run();
  std::vector<GatherTurn> turns =
      TurnsOf(coordinator.events(), coordinator.tensor_count(), coordinator.marks());
  const auto before = static_cast<uint32_t>(gathers.events.size());
  for (GatherTurn& turn : turns) {
    turn.begin += before;
    turn.again += before;
    turn.run += before;
    turn.end += before;
  }
  const std::vector<GatherEvent>& events = coordinator.events();
  gathers.events.insert(gathers.events.end(), events.begin(), events.end());
  gathers.tensor_count = std::max(gathers.tensor_count, coordinator.tensor_count());
  return turns;
}

}  // namespace

Gathers Coordinate(const Job& job, const Program& program) {
  const Network network = ReadNetwork(program.blocks, job.model->layer_count);
  Gathers gathers;
  if (job.overlap_communication) {
    gathers.flat_stream = Stream::kReduceScatter;
  } else {  // deepspeed/runtime/zero/parameter_offload.py, __allgather_stream
    gathers.stream = Stream::kCompute;
  }
  const auto play = [&](bool known) {
    const std::vector<Visit> order = OrderOf(program.blocks, network, UseOfHead(job, known));
    std::vector<GatherTurn> turns = Play(job, network, order, known, gathers);
    SetFlats(job, program, network, order, turns);
    return Halves(turns);
  };
  std::tie(gathers.forward, gathers.backward) = play(true);
  std::tie(gathers.first_forward, gathers.first_backward) = play(false);
  return gathers;
}

Gathers CoordinateReference(const Job& job, const Program& program) {
  const Network network = ReadNetwork(program.reference, job.model->layer_count);
  Gathers gathers;
  gathers.stream = job.overlap_communication ? Stream::kReferenceGather : Stream::kCompute;
  const auto play = [&](bool known) {
    return Play(job, network, ForwardOrderOf(network, UseOfHead(job, known)), known, gathers);
  };
  gathers.forward = play(true);
  gathers.first_forward = play(false);
  return gathers;
}

}  // namespace plimsoll
