#include "estimator/passes/exchange_heads.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace plimsoll {
namespace {

bool IsCore(const Op& op) { return (op.modules & BitOf(RecomputeModule::kCoreAttention)) != 0; }

// What the kernel reads is laid out before it is exchanged.
// Source: transformer_engine/pytorch/attention/dot_product_attention/backends.py,
// FusedAttention.forward (contiguous), then attn_forward_func_with_cp.
bool BeginsKernel(const Op& op) { return IsCore(op) && op.kind != OpKind::kOther; }

// Names of what is exchanged, on its way and as it is read.
struct ExchangeNames {
  absl::string_view exchanged;
  absl::string_view sent;
  absl::string_view received;
};
constexpr ExchangeNames kInputs[] = {
    {"attention.query.exchanged", "attention.query.sent", "attention.query.received"},
    {"attention.key.exchanged", "attention.key.sent", "attention.key.received"},
    {"attention.value.exchanged", "attention.value.sent", "attention.value.received"}};
constexpr ExchangeNames kOutput = {"attention.context.exchanged", "attention.context.sent",
                                   "attention.context.received"};

// One layer's attention, as each rank has it: ops outside the kernel see a part of the
// sequence, those of the kernel all of it for some heads.
//
//   pieces      a list of pieces is sent, one is received, and put together
//               (verl/utils/ulysses.py, all_to_all_tensor)
//   laid anew   a copy is sent; once all three are there, what was received is laid out
//               for the kernel, and what the kernel made for the next product
//               (deepspeed/runtime/sequence_parallel/ulysses_sp.py, UlyssesSPAttentionHF;
//               sequence/layer.py, _DimZeroAllToAll)
class Exchanger {
 public:
  Exchanger(const Job& job, Block& block)
      : job_(job), block_(block), whole_(block.tensors.size()) {}

  // Returns which tensors have the whole sequence.
  std::vector<bool> Exchange() && {
    const auto begin = std::find_if(block_.ops.begin(), block_.ops.end(), BeginsKernel);
    const auto end = std::find_if_not(begin, block_.ops.end(), IsCore);
    if (begin == end) return std::move(whole_);
    const Ids given = ReadCore(begin, end);
    const auto core_size = static_cast<size_t>(end - begin);
    if (job_.profile->balances_contexts) modules_ = begin->modules;
    at_ = static_cast<size_t>(begin - block_.ops.begin());
    ExchangeAll(given, kInputs, /*to_whole=*/true);
    at_ += core_size;
    ExchangeAll({Made()}, &kOutput, /*to_whole=*/false);
    // The attention module's locals hold what it gave to the kernel until that returns.
    // Source: transformers models/llama/modeling_llama.py, LlamaAttention.forward.
    for (const TensorId id : given) {
      block_.tensors[block_.tensors[id].storage].held_until = static_cast<uint8_t>(at_ - 1);
    }
    return std::move(whole_);
  }

 private:
  // Marks what ops of the kernel make, and returns what they are given.
  template <typename Iterator>
  Ids ReadCore(Iterator begin, Iterator end) {
    Ids given;
    for (auto op = begin; op != end; ++op) {
      for (const TensorId id : op->inputs) {
        if (!whole_[id] && std::find(given.begin(), given.end(), id) == given.end()) given.Add(id);
      }
      for (const Ids* ids : {&op->outputs, &op->forward_temporaries, &op->backward_temporaries}) {
        for (const TensorId id : *ids) whole_[id] = true;
      }
    }
    return given;
  }

  // What the kernel made and the ops behind it read.
  TensorId Made() const {
    for (size_t i = at_; i < block_.ops.size(); ++i) {
      for (const TensorId id : block_.ops[i].inputs) {
        if (whole_[id]) return id;
      }
    }
    return kNoTensor;
  }

  TensorId Add(TensorId like, absl::string_view name, bool whole) {
    whole_.push_back(whole);
    return AddLike(block_, like, name);
  }
  // One that a collective reads or writes.
  TensorId AddPiece(TensorId like, absl::string_view name, bool whole) {
    const TensorId id = Add(like, name, whole);
    block_.tensors[id].role = Role::kCommunication;
    block_.tensors[id].recorded = true;
    return id;
  }

  // Puts ops that exchange `given` where the next ones go, and those behind them on what
  // they make.
  void ExchangeAll(const Ids& given, const ExchangeNames* names, bool to_whole) {
    const bool relays = job_.profile->relays_exchanged;
    Ids made;
    std::vector<Op> layouts;
    for (const TensorId id : given) {
      const TensorId sent = AddPiece(id, names->sent, to_whole);
      const TensorId received = AddPiece(id, names->received, to_whole);
      const TensorId exchanged = Add(id, names->exchanged, to_whole);
      made.Add(exchanged);
      Op op{.name = names->received, .inputs = {id}, .outputs = {relays ? received : exchanged}};
      op.modules = modules_;
      // Of one sequence what the kernel made is sent as it is.
      const bool copies = !relays || to_whole || job_.micro_batch_size > 1;
      if (copies) op.forward_temporaries.Add(sent);
      op.backward_temporaries.Add(sent);
      if (!relays) {
        op.forward_temporaries.Add(received);
        op.backward_temporaries.Add(received);
      }
      const Collective row{CollectiveKind::kAllToAll, kContextAxis, received};
      op.forward_collectives.Add(row);
      op.backward_collectives.Add(row);
      InsertOp(block_, at_++, op);
      if (!relays) block_.tensors[received].differentiable = false;
      block_.tensors[sent].differentiable = false;
      if (relays) {
        layouts.push_back({.name = names->exchanged,
                           .inputs = {received},
                           .outputs = {exchanged},
                           .input_gradient = InputGradient::kShared});
      }
      ++names;
    }
    for (const Op& layout : layouts) InsertOp(block_, at_++, layout);
    for (size_t i = at_; i < block_.ops.size(); ++i) {
      for (size_t k = 0; k < given.count; ++k) {
        block_.ops[i].inputs.Replace(given.ids[k], made.ids[k]);
        block_.ops[i].saved.Replace(given.ids[k], made.ids[k]);
      }
    }
  }

  const Job& job_;
  Block& block_;
  std::vector<bool> whole_;
  size_t at_ = 0;        // where the next op is inserted
  uint8_t modules_ = 0;  // that ops which exchange are part of: Transformer Engine's kernel does it
};

}  // namespace

std::vector<bool> ExchangeHeads(const Job& job, Block& block) {
  return Exchanger(job, block).Exchange();
}

}  // namespace plimsoll
