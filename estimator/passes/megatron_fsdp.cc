#include "estimator/passes/megatron_fsdp.h"

#include <algorithm>
#include <deque>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "estimator/passes/gather_turns.h"
#include "estimator/passes/parameter_buckets.h"
#include "estimator/passes/shard.h"

namespace plimsoll {
namespace {

using Buckets = std::vector<ParameterBucket>;
using BucketNumbers = std::vector<int32_t>;  // of buckets, in their order

// Elements that wait to be reduced, at least; half as many are gathered ahead.
// Source: megatron_fsdp/megatron_fsdp.py, _init_fsdp_param_and_grad_buffer
// (suggested_communication_unit_size).
constexpr int64_t kLeastCapacity = 1000000000;

// Blocks as buckets count them.
int32_t HeadOf(const Job& job) { return static_cast<int32_t>(job.model->layer_count) + 1; }

const Block& LayerAt(const Program& program, int32_t block) {
  return *std::find_if(program.blocks.begin(), program.blocks.end(), [block](const Block& at) {
    return at.kind == BlockKind::kLayer && at.layers.Has(block - 1);
  });
}

// Of whole gradients that are on their way so many elements stay: those of two units, where weights
// are sharded, and no fewer than the least.
int64_t CapacityOf(const Job& job, const Buckets& buckets) {
  int64_t units = 0;
  for (const ParameterBucket& bucket : buckets) {
    if (bucket.is_unit) units = Add(units, bucket.elements);
  }
  const int64_t of_two = Multiply(units / job.model->layer_count, 2);
  return job.zero_stage == 3 ? std::max(of_two, kLeastCapacity) : kLeastCapacity;
}

enum class Ahead : uint8_t { kNothing, kForward, kBackward };

// What is gathered when, in a micro-batch that finds the ends gathered.
// Source: megatron_fsdp/param_and_grad_buffer.py, AllGatherPipeline; megatron_fsdp.py,
// _register_fsdp_hooks.
class WeightPipeline {
 public:
  WeightPipeline(const Job& job, const Program& program, const Buckets& buckets)
      : job_(job),
        program_(program),
        buckets_(buckets),
        head_(HeadOf(job)),
        window_(CapacityOf(job, buckets) / 2),
        here_(buckets.size(), false),
        lets_go_(buckets.size(), false) {
    for (size_t i = 0; i < buckets.size(); ++i) here_[i] = Stays(i);
  }

  void Run() {
    for (int32_t block = 0; block <= head_; ++block) Forward(block);
    // All may go as backward begins. Source: _root_pre_backward.
    for (size_t i = 0; i < buckets_.size(); ++i) lets_go_[i] = buckets_[i].is_unit;
    for (int32_t block = head_; block >= 0; --block) Backward(block);
  }
  const std::vector<GatherEvent>& events() const { return events_; }
  // How many events had happened when each turn was over.
  const std::vector<TurnMark>& marks() const { return marks_; }

 private:
  // A unit's, of which there are two at most, or those that an end has a part of.
  BucketNumbers NumbersOf(int32_t block) const {
    BucketNumbers numbers;
    for (size_t i = 0; i < buckets_.size(); ++i) {
      const ParameterBucket& bucket = buckets_[i];
      const bool is = bucket.first_block <= block && block <= bucket.last_block;
      if (is && bucket.is_unit == IsLayer(block)) numbers.push_back(static_cast<int32_t>(i));
    }
    return numbers;
  }
  bool IsLayer(int32_t block) const { return block > 0 && block < head_; }

  void Forward(int32_t block) {
    if (IsLayer(block)) {
      Gather(NumbersOf(block), Ahead::kForward);
      Release(block);
    } else if (job_.megatron_fsdp->ends_look_ahead) {
      for (const int32_t number : NumbersOf(block)) Gather({number}, Ahead::kForward);
    }
    marks_.push_back({.end = static_cast<uint32_t>(events_.size())});
  }

  // A layer that runs again is gathered for that alone, and its weights may go behind it, but that
  // its backward comes next. Source: megatron_fsdp.py, _post_forward (lazy_release).
  void Backward(int32_t block) {
    if (IsLayer(block)) {
      const int64_t unit = LayerAt(program_, block).recompute_unit;
      const bool opens = unit > 0 && (block % unit == 0 || block + 1 == head_);
      const auto first = static_cast<int32_t>(opens ? block - (block - 1) % unit : block + 1);
      for (int32_t again = first; again <= block; ++again) {
        const BucketNumbers numbers = NumbersOf(again);
        Gather(numbers, Ahead::kNothing);
        for (const int32_t number : numbers) lets_go_[static_cast<size_t>(number)] = true;
      }
      Gather(NumbersOf(block), Ahead::kBackward);
      Release(block);
    }
    marks_.push_back({.end = static_cast<uint32_t>(events_.size())});
  }

  // Those of its own, and of what comes next until there is enough.
  void Gather(const BucketNumbers& own, Ahead ahead) {
    for (const int32_t number : own) lets_go_[static_cast<size_t>(number)] = false;
    const int32_t step = ahead == Ahead::kForward ? 1 : -1;
    int32_t first = own.front();
    int32_t last = own.back();
    int32_t next = step > 0 ? last + 1 : first - 1;
    int64_t elements = 0;
    const auto count = static_cast<int32_t>(buckets_.size());
    for (; ahead != Ahead::kNothing && 0 <= next && next < count; next += step) {
      if (elements >= window_) break;
      first = std::min(first, next);
      last = std::max(last, next);
      elements = Add(elements, buckets_[static_cast<size_t>(next)].elements);
    }
    for (int32_t number = first; number <= last; ++number) Take(number);
  }

  // What may go does before anything is gathered.
  void Take(int32_t number) {
    const auto at = static_cast<size_t>(number);
    if (here_[at]) return;
    lets_go_[at] = false;
    for (size_t i = 0; i < buckets_.size(); ++i) {
      if (lets_go_[i]) Drop(i);
      lets_go_[i] = false;
    }
    here_[at] = true;
    const int64_t bytes = Bytes(job_.precision.parameter, buckets_[at].elements);
    events_.push_back({number, bytes});
  }

  bool Stays(size_t at) const { return !buckets_[at].is_unit || buckets_[at].shards == 1; }

  void Release(int32_t block) {
    for (const int32_t number : NumbersOf(block)) Drop(static_cast<size_t>(number));
  }

  void Drop(size_t at) {
    if (Stays(at) || !here_[at]) return;
    here_[at] = false;
    events_.push_back({static_cast<int32_t>(at), 0});
  }

  const Job& job_;
  const Program& program_;
  const Buckets& buckets_;
  const int32_t head_;
  const int64_t window_;
  std::vector<bool> here_;
  std::vector<bool> lets_go_;
  std::vector<GatherEvent> events_;
  std::vector<TurnMark> marks_;
};

// Whole gradients of a bucket are there from its first until it was reduced and, behind it, so many
// that more would be too many. The head's is made behind its gradient, and so is the embedding's
// but where backward adds to it. Source: megatron_fsdp/param_and_grad_buffer.py,
// GradReducePipeline; megatron_fsdp.py, _grad_acc.
class GradientPipeline {
 public:
  GradientPipeline(const Job& job, const Program& program, const Buckets& buckets)
      : job_(job),
        buckets_(buckets),
        head_(HeadOf(job)),
        fused_(program.weight_gradient == WeightGradient::kFused),
        capacity_(CapacityOf(job, buckets)) {}

  Gathers Run() && {
    marks_.resize(static_cast<size_t>(head_) + 1);  // forward makes none
    for (int32_t block = head_; block >= 0; --block) Backward(block);
    Gathers gathers;
    gathers.tensor_count = static_cast<int32_t>(buckets_.size());
    gathers.name = "reduce.bucket";
    gathers.stream = Stream::kCompute;
    std::tie(gathers.forward, gathers.backward) =
        Halves(TurnsOf(events_, gathers.tensor_count, marks_));
    gathers.events = std::move(events_);
    return gathers;
  }

 private:
  void Backward(int32_t block) {
    TurnMark mark;
    if (block == head_ || (block == 0 && !fused_)) mark.run = EventCount();
    for (size_t i = 0; i < buckets_.size(); ++i) {
      if (buckets_[i].last_block == block) Make(i);
    }
    // Experts are behind attention.
    for (const bool of_experts : {true, false}) {
      for (size_t i = 0; i < buckets_.size(); ++i) {
        const bool whole = buckets_[i].first_block == block;
        if (whole && buckets_[i].of_experts == of_experts) Reduce(i);
      }
    }
    mark.end = EventCount();
    marks_.push_back(mark);
  }

  uint32_t EventCount() const { return static_cast<uint32_t>(events_.size()); }

  void Make(size_t at) {
    if (buckets_[at].shards == 1) return;  // they are added to sums that are whole
    const int64_t bytes = Bytes(job_.precision.accumulation, buckets_[at].elements);
    events_.push_back({static_cast<int32_t>(at), bytes});
  }

  void Reduce(size_t at) {
    if (buckets_[at].shards == 1) return;
    while (waiting_ > capacity_) {
      const size_t first = queue_.front();
      queue_.pop_front();
      waiting_ -= buckets_[first].elements;
      events_.push_back({static_cast<int32_t>(first), 0});
    }
    queue_.push_back(at);
    waiting_ = Add(waiting_, buckets_[at].elements);
  }

  const Job& job_;
  const Buckets& buckets_;
  const int32_t head_;
  const bool fused_;
  const int64_t capacity_;
  std::deque<size_t> queue_;
  int64_t waiting_ = 0;  // elements of the queue
  std::vector<GatherEvent> events_;
  std::vector<TurnMark> marks_;
};

void ShardMegatronStates(const Job& job, Program& program) {
  const int64_t of_experts = job.ExpertShardCount();
  const bool apart = job.model->experts.Any() && of_experts != job.shard_group_size;
  for (State& state : program.states) {
    const bool sharded = state.part == Part::kMasterWeights ||
                         state.part == Part::kOptimizerStates ||
                         state.part == Part::kGradientSums || state.part == Part::kStepCopies ||
                         (state.part == Part::kWeights && job.zero_stage == 3);
    if (!sharded) continue;
    Shard(state, job.shard_group_size);
    if (apart) state.expert_shards = of_experts;
    // They are there as soon as all is reduced. Source: megatron_fsdp/param_and_grad_buffer.py,
    // update_main_grads.
    if (state.part == Part::kStepCopies) state.alive |= kReductionPhase;
  }
}

// What is outside layers stays gathered, from its first use on.
void AddEnds(const Job& job, const Buckets& buckets, Program& program) {
  int64_t elements = 0;
  for (const ParameterBucket& bucket : buckets) {
    if (!bucket.is_unit && bucket.shards > 1) elements = Add(elements, bucket.elements);
  }
  constexpr Alive kOfStep = During(Phase::kForward, Phase::kGradientReduction, true, true);
  if (elements == 0) return;
  program.states.push_back({.name = "gathered.ends",
                            .role = Role::kCommunication,
                            .basis = Basis::kBytes,
                            .dtype = job.precision.parameter,
                            .fixed_bytes = Bytes(job.precision.parameter, elements),
                            .stream = Stream::kAllGather,
                            .alive = job.megatron_fsdp->keeps_ends ? kAlways : kOfStep});
}

int64_t LargestGradient(const Job& job, const Block& block) {
  int64_t largest = 0;
  for (size_t i = 0; i < block.parameters.size(); ++i) {
    const Parameter& parameter = block.parameters[i];
    if (parameter.tied || parameter.packed()) continue;
    largest = std::max(largest, Bytes(job.precision.gradient, PackedElements(block, i)));
  }
  return largest;
}

// The head's bucket, while its product writes there.
void AddFusedBucket(const Job& job, const Buckets& buckets, Block& head) {
  const auto product = std::find_if(head.ops.rbegin(), head.ops.rend(), [](const Op& op) {
    return op.kind == OpKind::kMatrixProduct && op.parameters.count > 0;
  });
  int64_t elements = 0;
  for (const ParameterBucket& bucket : buckets) {
    const bool made = bucket.last_block == HeadOf(job) && bucket.shards > 1;
    if (made) elements = Add(elements, bucket.elements);
  }
  if (product == head.ops.rend() || elements == 0) return;
  product->backward_temporaries.Add(AddTensor(head, {.name = "reduce.bucket",
                                                     .shape = FlatShape(elements),
                                                     .dtype = job.precision.accumulation,
                                                     .role = Role::kCommunication,
                                                     .differentiable = false}));
}

// A gradient is copied to its bucket: of an end it is as large.
void AddGradientsOfEnds(const Job& job, const Buckets& buckets, Program& program) {
  if (job.shard_group_size == 1) return;
  const bool fused = program.weight_gradient == WeightGradient::kFused;
  for (Block& block : program.blocks) {
    GatherTurns& turns = program.gathers.backward;
    if (block.kind == BlockKind::kLayer) continue;
    const bool head = block.kind == BlockKind::kHead;
    GatherTurn& turn = head ? turns.back() : turns.front();
    if (!fused) turn.gradient_bytes = LargestGradient(job, block);
    if (fused && head) AddFusedBucket(job, buckets, block);
  }
}

// Turns of blocks at which nothing is gathered.
Gathers NoGathers(const Job& job) {
  Gathers gathers;
  const std::vector<TurnMark> marks(2 * (static_cast<size_t>(HeadOf(job)) + 1));
  std::tie(gathers.forward, gathers.backward) = Halves(TurnsOf({}, 0, marks));
  return gathers;
}

Gathers GatherWeights(const Job& job, const Program& program, const Buckets& buckets) {
  WeightPipeline weights(job, program, buckets);
  weights.Run();
  Gathers gathers;
  gathers.tensor_count = static_cast<int32_t>(buckets.size());
  gathers.events = weights.events();
  std::tie(gathers.forward, gathers.backward) =
      Halves(TurnsOf(gathers.events, gathers.tensor_count, weights.marks()));
  return gathers;
}

// Source: megatron/training/training.py, resolve_ddp_bucket_size.
int64_t BucketElements(const Job& job) {
  constexpr int64_t kLeast = 40000000;
  constexpr int64_t kOfRank = 1000000;
  if (!job.overlap_communication) return 0;
  return std::max(kLeast, Multiply(kOfRank, job.shard_group_size));
}

}  // namespace

void ApplyMegatronFsdp(const Job& job, Program& program) {
  ShardMegatronStates(job, program);
  const bool third = job.zero_stage == 3;
  const bool units = third || job.megatron_fsdp->units_share_states;
  const Buckets buckets = BucketsOf(job, program.blocks, units, BucketElements(job));
  program.gathers = third ? GatherWeights(job, program, buckets) : NoGathers(job);
  program.reduce_buckets = GradientPipeline(job, program, buckets).Run();
  if (third) AddEnds(job, buckets, program);
  AddGradientsOfEnds(job, buckets, program);
}

}  // namespace plimsoll
