#include "estimator/step/ledger.h"

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/base/attributes.h"
#include "absl/container/inlined_vector.h"

namespace plimsoll {
namespace {

// A storage for each of an op's tensors of one list.
using OfOp = std::array<int, std::tuple_size_v<decltype(Ids::ids)>>;

// Kernels that an op launches, about: it alone, each collective (whose buffers
// its temporaries are), copies around a product; backward has two gradients and
// sums them up.
int ForwardKernels(const Op& op) {
  return 2 + op.forward_temporaries.count + (op.parameters.count > 0 ? 2 : 0);
}
int BackwardKernels(const Op& op) {
  return 3 + op.backward_temporaries.count + op.parameters.count;
}

// One run of one block. Storages are made, referred to and released; the peak
// is what was alive when most was.
class Machine {
 public:
  // Who is told of births and deaths, if anybody.
  struct Watchers {
    std::vector<Storage>* storages = nullptr;
    Tape* tape = nullptr;
  };

  Machine(const Block& block, WeightGradient weight_gradient, DType gradient_dtype,
          Watchers watchers, bool holds_output)
      : block_(block),
        holds_output_(holds_output),
        hooks_(block.recompute_unit > 0 && !block.holds_output),
        weight_gradient_(weight_gradient),
        gradient_dtype_(gradient_dtype),
        log_(watchers.storages),
        tape_(watchers.tape),
        watched_(log_ != nullptr || tape_ != nullptr) {
    std::fill_n(forward_storage_.begin(), block.tensors.size(), kNoStorage);
    std::fill_n(gradient_storage_.begin(), block.tensors.size(), kNoStorage);
    std::fill_n(remade_.begin(), block.tensors.size(), kNoStorage);
    FindLastUses();
  }

  BlockRun RunOnce() {
    if (block_.forward_only) return RunForward();
    return block_.recompute_unit > 0 ? RunRecomputed() : RunKept();
  }
  // The gradient of the block's input, when backward is over.
  int InputGradient() const {
    return block_.input == kNoTensor ? kNoStorage : gradient_storage_[block_.input];
  }

 private:
  // Alive at the notes from `birth` to before `death`.
  struct Piece {
    int64_t bytes;
    int references;
    int birth;
    int death;
    int log;
    Role role;
    bool viewed;  // a view, as a gradient
  };
  // The most bytes that any note found, and which did; -1: none yet.
  struct Peak {
    int64_t total = 0;
    int note = -1;
    int op_note = 0;  // the first of the op that ran
  };

  TensorId Root(TensorId tensor) const { return root_[tensor]; }
  bool Discarded(TensorId tensor) const { return block_.tensors[Root(tensor)].discarded; }
  void FindLastUses();
  void ListUnused(const std::array<int16_t, 256>& last_use, bool held);
  BlockRun RunForward();
  BlockRun RunKept();
  BlockRun RunRecomputed();
  BlockRun ForwardToRunAgain();
  void FetchInput();
  BlockRun RunUntilSaved();
  void ForgetDropped();
  void MakeOutputGradient();
  void MarkKept();
  void Forward(int begin, int end, bool saves);
  void ForwardUntilSaved(int end);
  void MakeOutputs(const Op& op, OfOp& temporaries, int& count);
  bool Saves(const Op& op) const;
  int BeginOfSaving() const;
  int EndOfSaving() const;
  void Save(int index, int end);
  void Backward(int begin, int end);
  void RunAgain(int begin, int end);
  void BackwardSegment(int begin, int end);
  void Remake(uint8_t segment);
  void GiveRemade(TensorId id, int end);
  int ReadersBehind(TensorId root, int end) const;
  bool IsGiven(TensorId root, int end) const;
  void BackwardOp(int index);
  void GiveInputGradient(const Op& op, TensorId input);
  void GiveInputGradients(const Op& op);
  void AddSecondGradients();
  bool MakesWeightGradientsFirst(const Op& op) const;
  bool MultipliesTwice(const Op& op) const;
  void RunProduct(const Op& op);
  void PassBy(TensorId workspace);
  int64_t MakeWeightGradients(const Op& op, OfOp& made, int& count);
  int Make(TensorId tensor, absl::string_view suffix, Role role, int64_t bytes);
  int MakeTensor(TensorId tensor);
  ABSL_ATTRIBUTE_NOINLINE void WatchBirth(int piece, TensorId tensor, absl::string_view suffix);
  ABSL_ATTRIBUTE_NOINLINE void WatchDeath(int piece);
  ABSL_ATTRIBUTE_NOINLINE void Append(TapeEventKind kind, int piece);
  void Tell(TapeEventKind kind, int piece = kNoStorage) {
    if (tape_ != nullptr) Append(kind, piece);
  }
  void TellProduct(const Op& op) {
    if (op.kind == OpKind::kMatrixProduct) Tell(TapeEventKind::kProduct);
  }
  void Refer(int piece) { ++pieces_[piece].references; }
  void Release(int piece);
  void Note();
  int SegmentBegin(int end) const;
  int SegmentEnd(int begin) const;
  void EndForward(BlockRun& run);
  void EndBackward(BlockRun& run) const;
  Usage Alive(const Peak& at, bool gradients_stay) const;
  void ForgetPeaks();
  void BeginGradients();
  void SaveSegmentInputs(int begin, int end, bool save);

  const Block& block_;
  const bool holds_output_;  // once it was recomputed
  const bool hooks_;         // on saved tensors make it run again
  const WeightGradient weight_gradient_;
  const DType gradient_dtype_;
  std::vector<Storage>* log_;
  Tape* tape_;
  const bool watched_;                     // someone reads births and deaths
  std::array<TensorId, 256> root_;         // of each tensor
  std::array<int64_t, 256> bytes_;         // of each tensor
  std::array<int16_t, 256> maker_;         // the op that makes each tensor; -1: the input
  std::array<int, 256> forward_storage_;   // of each root tensor
  std::array<int, 256> remade_;            // of each, what a segment gave that ran again early
  std::array<int, 256> gradient_storage_;  // of each tensor
  // Root tensors by the op that uses them last: the first of each op's list, and
  // the next of each tensor's.
  std::array<int16_t, 256> first_unused_;
  std::array<int16_t, 256> next_unused_;
  // Gradients that the op at work gives beside others'.
  std::array<std::pair<TensorId, int>, 12> second_;
  int second_count_ = 0;
  std::array<Piece, 1024> pieces_;
  int piece_count_ = 0;
  bool again_ = false;  // whether this is a recomputed block's second forward
  int clock_ = 0;
  int note_ = 0;
  int op_note_ = 0;
  int64_t now_ = 0;
  int64_t checkpoint_bytes_ = 0;  // kept beside the pieces, from the end of forward on
  Peak peak_;
  // The same where gradients die with their op, though here they stay.
  Peak later_peak_;
  int64_t earlier_gradients_ = 0;  // of ops before this one
  // Both, from the first gradient of a weight on.
  bool has_gradients_ = false;
  Peak gradients_peak_;
  Peak later_gradients_peak_;
};

void Machine::FindLastUses() {
  const int count = static_cast<int>(block_.ops.size());
  const int tensor_count = static_cast<int>(block_.tensors.size());
  std::array<int16_t, 256> last_use;
  std::fill_n(maker_.begin(), tensor_count, static_cast<int16_t>(count));
  if (block_.input != kNoTensor) maker_[block_.input] = -1;
  for (int id = 0; id < tensor_count; ++id) {
    const Tensor& tensor = block_.tensors[id];
    root_[id] = tensor.storage;
    bytes_[id] = tensor.Bytes();
    last_use[id] = -1;
  }
  for (int i = 0; i < count; ++i) {
    for (TensorId id : block_.ops[i].inputs) last_use[Root(id)] = static_cast<int16_t>(i);
    for (TensorId id : block_.ops[i].outputs) {
      last_use[Root(id)] = static_cast<int16_t>(i);
      maker_[id] = static_cast<int16_t>(i);
    }
  }
  bool any_held = false;
  for (const Tensor& tensor : block_.tensors) {
    if (tensor.held) last_use[tensor.storage] = static_cast<int16_t>(count - 1);
    if (tensor.held_until != 255) {
      any_held = true;
      last_use[tensor.storage] =
          std::max(last_use[tensor.storage], static_cast<int16_t>(tensor.held_until));
    }
  }
  std::fill_n(first_unused_.begin(), count, int16_t{kNoStorage});
  if (any_held) ListUnused(last_use, true);
  ListUnused(last_use, false);
}

// Puts what goes with each op before what is listed: locals of Python, which are held, go behind
// what the op itself used.
void Machine::ListUnused(const std::array<int16_t, 256>& last_use, bool held) {
  for (int id = static_cast<int>(block_.tensors.size()) - 1; id >= 0; --id) {
    const Tensor& tensor = block_.tensors[id];
    if (tensor.storage != id || id == block_.output || last_use[id] < 0) continue;
    if ((tensor.held_until != 255) != held) continue;
    next_unused_[id] = first_unused_[last_use[id]];
    first_unused_[last_use[id]] = static_cast<int16_t>(id);
  }
}

int Machine::Make(TensorId tensor, absl::string_view suffix, Role role, int64_t bytes) {
  const int piece = piece_count_++;
  pieces_[piece] = {bytes, 1, note_, std::numeric_limits<int>::max(), kNoStorage, role, false};
  now_ = Add(now_, bytes);
  if (watched_) WatchBirth(piece, tensor, suffix);
  return piece;
}

void Machine::WatchBirth(int piece, TensorId tensor, absl::string_view suffix) {
  Piece& born = pieces_[piece];
  if (tape_ != nullptr) {
    tape_->pieces.push_back({tensor, -1, suffix, born.role, born.bytes});
    Tell(TapeEventKind::kBirth, piece);
  }
  if (log_ != nullptr) {
    born.log = static_cast<int>(log_->size());
    log_->push_back({tensor, suffix, born.role, born.bytes, clock_, clock_, false});
  }
}

void Machine::WatchDeath(int piece) {
  Tell(TapeEventKind::kDeath, piece);
  const int log = pieces_[piece].log;
  if (log != kNoStorage) (*log_)[log].death = clock_;
}

void Machine::Append(TapeEventKind kind, int piece) {
  tape_->events.push_back({kind, static_cast<int16_t>(piece)});
}

int Machine::MakeTensor(TensorId tensor) {
  return Make(tensor, "", block_.tensors[tensor].role, bytes_[tensor]);
}

void Machine::Release(int piece) {
  Piece& released = pieces_[piece];
  if (--released.references > 0) return;
  released.death = note_;
  if (now_ != kSaturated) now_ -= released.bytes;  // how much was above is not known
  if (watched_) WatchDeath(piece);
}

void Machine::Note() {
  if (now_ > peak_.total) peak_ = {now_, note_, op_note_};
  const int64_t later = now_ - earlier_gradients_;
  if (later > later_peak_.total) later_peak_ = {later, note_, op_note_};
  if (has_gradients_) {
    if (now_ > gradients_peak_.total) gradients_peak_ = {now_, note_, op_note_};
    if (later > later_gradients_peak_.total) later_gradients_peak_ = {later, note_, op_note_};
  }
  ++note_;
}

void Machine::ForgetPeaks() {
  peak_ = later_peak_ = gradients_peak_ = later_gradients_peak_ = Peak();
  has_gradients_ = false;
}

// A hook has the first one, once the op's node is done and what it saved was released.
// Source: torch/csrc/autograd/engine.cpp, evaluate_function (release_variables, before the nodes
// that accumulate gradients are ready).
void Machine::BeginGradients() {
  has_gradients_ = true;
  Tell(TapeEventKind::kGradients);
  Note();
}

// What was alive at a note, by role. Where gradients of weights do not stay, at
// most those of the op at work were, as temporaries.
Usage Machine::Alive(const Peak& at, bool gradients_stay) const {
  Usage alive;
  const auto of = [&alive](Role role) -> int64_t& {
    return alive.roles[static_cast<size_t>(role)];
  };
  of(Role::kActivation) = checkpoint_bytes_;
  for (int i = 0; i < piece_count_; ++i) {
    const Piece& piece = pieces_[i];
    if (piece.birth > at.note || piece.death <= at.note) continue;
    if (gradients_stay || piece.role != Role::kGradient) {
      of(piece.role) = Add(of(piece.role), piece.bytes);
    } else if (piece.birth >= at.op_note) {
      of(Role::kTemporary) = Add(of(Role::kTemporary), piece.bytes);
    }
  }
  for (const int64_t bytes : alive.roles) alive.total = Add(alive.total, bytes);
  return alive;
}

// Runs ops [begin, end) forward. Python's reference to a tensor ends after its
// last use; with `saves`, what an op needs for backward is referred to by it.
void Machine::Forward(int begin, int end, bool saves) {
  for (int i = begin; i < end; ++i, ++clock_) {
    const Op& op = block_.ops[i];
    OfOp temporaries;
    int count = 0;
    MakeOutputs(op, temporaries, count);
    while (count > 0) Release(temporaries[--count]);
    if (saves) Save(i, end);
    for (int id = first_unused_[i]; id != kNoStorage; id = next_unused_[id]) {
      Release(forward_storage_[id]);
    }
  }
}

// Launches an op: its temporaries stay.
void Machine::MakeOutputs(const Op& op, OfOp& temporaries, int& count) {
  for (TensorId id : op.forward_temporaries) temporaries[count++] = MakeTensor(id);
  for (TensorId id : op.outputs) {
    const bool checkpointed = block_.tensors[id].checkpointed;
    if (Root(id) != id || (checkpointed && again_)) continue;  // kept: not made again
    forward_storage_[id] = MakeTensor(id);
    if (checkpointed) Refer(forward_storage_[id]);
  }
  TellProduct(op);
  if (op.forward_workspace != kNoTensor) temporaries[count++] = MakeTensor(op.forward_workspace);
  Note();
  Tell(TapeEventKind::kLaunch, ForwardKernels(op));
}

// Whether autograd keeps a tensor for an op, be it a weight: of what is quantized a list has them,
// unless the product is a function of the matrix that was made whole for it.
// Source: bitsandbytes autograd/_functions.py, MatMul4Bit (ctx.tensors); torchao
// dtypes/nf4tensor.py, LinearNF4.forward (save_for_backward).
bool Machine::Saves(const Op& op) const {
  if (op.saved.count > 0) return true;
  if (op.parameters.count == 0) return false;
  const bool reads_whole = op.inputs.count > 1 && !op.holds_inputs;
  return reads_whole || !block_.parameters[op.parameters.ids[0]].quantized;
}

// The first op that does.
int Machine::BeginOfSaving() const {
  int begin = 0;
  while (begin < static_cast<int>(block_.ops.size()) && !Saves(block_.ops[begin])) ++begin;
  return begin;
}

// Behind the last op that does.
int Machine::EndOfSaving() const {
  int end = static_cast<int>(block_.ops.size());
  while (end > 0 && !Saves(block_.ops[end - 1])) --end;
  return end;
}

// Runs ops [0, end) again, of which the last is the last that saves: it does so before it runs,
// unless that is what it gives, and then the rest, and Python's locals, are dropped.
// Source: torch/utils/checkpoint.py, _recomputation_hook (_StopRecomputationError).
void Machine::ForwardUntilSaved(int end) {
  if (end == 0) return Release(forward_storage_[block_.input]);
  const int last = end - 1;
  Forward(0, last, true);
  const Op& op = block_.ops[last];
  const bool runs = std::any_of(op.saved.begin(), op.saved.end(),
                                [&](TensorId id) { return maker_[Root(id)] == last; });
  if (runs) {
    OfOp temporaries;
    int count = 0;
    MakeOutputs(op, temporaries, count);
    while (count > 0) Release(temporaries[--count]);
  }
  Save(last, end);
  const int made = runs ? end : last;
  for (int i = last; i < static_cast<int>(block_.ops.size()); ++i) {
    for (int id = first_unused_[i]; id != kNoStorage; id = next_unused_[id]) {
      if (maker_[id] < made) Release(forward_storage_[id]);
    }
  }
  if (block_.output != kNoTensor && maker_[Root(block_.output)] < made) {
    Release(forward_storage_[Root(block_.output)]);
  }
}

// Refers to what backward of an op needs, or of the recomputed segment that begins with it.
void Machine::Save(int index, int end) {
  const Op& op = block_.ops[index];
  if (op.segment == 0) {
    for (TensorId id : op.saved) {
      if (!Discarded(id)) Refer(forward_storage_[Root(id)]);
    }
  } else if (index == 0 || block_.ops[index - 1].segment != op.segment) {
    SaveSegmentInputs(index, std::min(SegmentEnd(index), end), true);
  }
}

// Refers to, or releases, each tensor that ops [begin, end) read and did not
// make, once.
void Machine::SaveSegmentInputs(int begin, int end, bool save) {
  std::array<bool, 256> done{};
  for (int i = begin; i < end; ++i) {
    for (TensorId id : block_.ops[i].inputs) {
      const TensorId root = Root(id);
      if (done[root] || maker_[root] >= begin) continue;
      done[root] = true;
      if (save && Discarded(root)) continue;  // made again before
      save ? Refer(forward_storage_[root]) : Release(forward_storage_[root]);
    }
  }
}

int Machine::SegmentBegin(int end) const {
  const uint8_t segment = block_.ops[end - 1].segment;
  int begin = end - 1;
  while (begin > 0 && block_.ops[begin - 1].segment == segment) --begin;
  return begin;
}

int Machine::SegmentEnd(int begin) const {
  const uint8_t segment = block_.ops[begin].segment;
  int end = begin + 1;
  while (end < static_cast<int>(block_.ops.size()) && block_.ops[end].segment == segment) ++end;
  return end;
}

void Machine::Backward(int begin, int end) {
  while (end > begin) {
    const int first = block_.ops[end - 1].segment == 0 ? end - 1 : SegmentBegin(end);
    for (int i = end - 1; i >= first; --i) {
      if (block_.ops[i].remakes != 0) Remake(block_.ops[i].remakes);
    }
    if (block_.ops[end - 1].segment == 0) {
      BackwardOp(first);
    } else {
      BackwardSegment(first, end);
    }
    end = first;
  }
}

// Whether ops from `end` on read a tensor, or the next block.
bool Machine::IsGiven(TensorId root, int end) const {
  if (block_.output != kNoTensor && Root(block_.output) == root) return true;
  for (size_t i = static_cast<size_t>(end); i < block_.ops.size(); ++i) {
    for (TensorId id : block_.ops[i].inputs) {
      if (Root(id) == root) return true;
    }
  }
  return false;
}

// How many ops, or segments, from `end` on read a tensor in backward.
int Machine::ReadersBehind(TensorId root, int end) const {
  int readers = 0;
  uint8_t counted = 0;  // the segment that is
  const int count = static_cast<int>(block_.ops.size());
  for (int i = end; i < count; ++i) {
    const Op& op = block_.ops[i];
    const bool is_segment = op.segment != 0;
    for (TensorId id : is_segment ? op.inputs : op.saved) {
      if (Root(id) != root || (is_segment && op.segment == counted)) continue;
      ++readers;
      counted = op.segment;
    }
  }
  return readers;
}

// Runs a segment once more, for backward: what its ops need stays, and what it gives.
void Machine::RunAgain(int begin, int end) {
  std::array<bool, 256> gone{};
  for (int i = begin; i < end; ++i) {
    const Op& op = block_.ops[i];
    OfOp temporaries;
    int count = 0;
    MakeOutputs(op, temporaries, count);
    while (count > 0) Release(temporaries[--count]);
    for (TensorId id : op.saved) Refer(forward_storage_[Root(id)]);
    for (int id = first_unused_[i]; id != kNoStorage; id = next_unused_[id]) {
      if (maker_[id] < begin) continue;
      Release(forward_storage_[id]);
      gone[id] = true;
    }
  }
  for (int i = begin; i < end; ++i) {  // its locals
    for (TensorId id : block_.ops[i].outputs) {
      if (Root(id) == id && !gone[id] && !IsGiven(id, end)) Release(forward_storage_[id]);
    }
  }
}

// Runs a segment again before the ops that read what it gave, which was dropped: they have what was
// made, or a copy of it.
// Source: megatron/core/tensor_parallel/random.py, CheckpointWithoutOutput._recompute.
void Machine::Remake(uint8_t segment) {
  int begin = 0;
  while (block_.ops[begin].segment != segment) ++begin;
  const int end = SegmentEnd(begin);
  RunAgain(begin, end);
  for (int i = begin; i < end; ++i) {
    for (TensorId id : block_.ops[i].outputs) {
      if (Root(id) == id && Discarded(id)) GiveRemade(id, end);
    }
  }
  Note();
}

// To those that read it in backward of ops from `end` on.
void Machine::GiveRemade(TensorId id, int end) {
  remade_[id] = forward_storage_[id];
  if (block_.copies_remade) {
    forward_storage_[id] = MakeTensor(id);
  } else {
    Refer(forward_storage_[id]);
  }
  int readers = ReadersBehind(id, end);
  if (readers == 0) Release(forward_storage_[id]);
  for (; readers > 1; --readers) Refer(forward_storage_[id]);
}

// Makes the tensors of a recomputed segment again, unless that was done, then goes backward. What
// it gave, and the gradients of that, are arguments: they are held until it is over.
// Source: torch/utils/checkpoint.py, CheckpointFunction.backward; megatron's of the same name.
void Machine::BackwardSegment(int begin, int end) {
  absl::InlinedVector<int, 8> held;
  bool remade = false;
  for (int i = begin; i < end; ++i) {
    for (TensorId id : block_.ops[i].outputs) remade = remade || remade_[id] != kNoStorage;
  }
  if (!remade) RunAgain(begin, end);
  for (int i = begin; i < end; ++i) {
    for (TensorId id : block_.ops[i].outputs) {
      if (Root(id) != id || !IsGiven(id, end)) continue;
      if (remade_[id] != kNoStorage) forward_storage_[id] = std::exchange(remade_[id], kNoStorage);
      held.push_back(forward_storage_[id]);
      if (gradient_storage_[id] == kNoStorage) continue;
      Refer(gradient_storage_[id]);
      held.push_back(gradient_storage_[id]);
    }
  }
  for (int i = end; i > begin; --i) BackwardOp(i - 1);
  for (const int piece : held) Release(piece);
  SaveSegmentInputs(begin, end, false);
}

// Gives `input` its gradient from `op`: shared with the output's, or a new
// tensor that is added to what other consumers gave before.
void Machine::GiveInputGradient(const Op& op, TensorId input) {
  const Tensor& tensor = block_.tensors[input];
  if (!tensor.differentiable) return;
  int& gradient = gradient_storage_[input];
  if (op.input_gradient == InputGradient::kInPlace) {
    const bool own = std::find(op.saved.begin(), op.saved.end(), input) != op.saved.end();
    gradient = forward_storage_[Root(own ? input : op.saved.ids[0])];
    Refer(gradient);
    return;
  }
  // Autograd casts a gradient to its tensor's dtype.
  // Source: torch/csrc/autograd/engine.cpp, validate_outputs.
  const bool shared = op.input_gradient != InputGradient::kFresh &&
                      tensor.dtype == block_.tensors[op.outputs.ids[0]].dtype;
  if (shared) {
    if (gradient != kNoStorage) return;  // summed in place
    gradient = gradient_storage_[op.outputs.ids[0]];
    if (gradient != kNoStorage) Refer(gradient);
    return;
  }
  const Role role = tensor.role == Role::kLoss ? Role::kLoss : Role::kTemporary;
  const int made = Make(input, ".gradient", role, bytes_[input]);
  pieces_[made].viewed = op.kind == OpKind::kMatrixProduct && !block_.own_products;
  if (gradient == kNoStorage) {
    gradient = made;
  } else {
    second_[second_count_++] = {input, made};
  }
}

// Of what is multiplied the second factor's comes first; a kernel has them in its own order.
// Source: torch tools/autograd, derivatives.yaml, mul, div and bmm: arguments by name, `other` and
// `mat2` before `self`.
void Machine::GiveInputGradients(const Op& op) {
  const int count = op.inputs.count;
  for (int i = 0; i < count; ++i) {
    GiveInputGradient(op, op.inputs.ids[static_cast<size_t>(op.gives_first ? i : count - 1 - i)]);
  }
}

// When an op is over what it gave is added to what other consumers gave before. A view's base is
// held by the view, so that nobody else's sum can be made in it.
// Source: torch/csrc/autograd/engine.cpp, evaluate_function; input_buffer.cpp,
// can_accumulate_inplace; variable.h, ViewInfo.
void Machine::AddSecondGradients() {
  for (int i = 0; i < second_count_; ++i) {
    const auto& [input, made] = second_[i];
    int& gradient = gradient_storage_[input];
    const bool in_place = pieces_[gradient].references == 1 && !pieces_[gradient].viewed;
    if (!in_place) {
      const int sum = Make(input, ".gradient", pieces_[made].role, bytes_[input]);
      Note();
      Release(std::exchange(gradient, sum));
    }
    Release(made);
  }
  second_count_ = 0;
}

// Autograd multiplies for a weight before it does for what it read, unless there is a bias.
// Source: torch tools/autograd, derivatives.yaml, mm (mat2 before self) and addmm (mat1 first).
bool Machine::MakesWeightGradientsFirst(const Op& op) const {
  return op.kind == OpKind::kMatrixProduct && !block_.own_products && !HasBias(block_, op);
}

// For a weight's gradient, and for its input's.
bool Machine::MultipliesTwice(const Op& op) const {
  if (op.kind != OpKind::kMatrixProduct || weight_gradient_ == WeightGradient::kFused) return false;
  return LeadsGradients(block_, op) && TrainsParameters(block_, op);
}

// The first of an op's products, of which a timeline alone sees the workspace: the last has it too,
// when all is there.
void Machine::RunProduct(const Op& op) {
  TellProduct(op);
  if (tape_ != nullptr && op.workspace != kNoTensor) Release(MakeTensor(op.workspace));
}

// What is there beside all else for a moment.
void Machine::PassBy(TensorId workspace) {
  if (workspace == kNoTensor) return;
  const int piece = MakeTensor(workspace);
  Note();
  Release(piece);
}

// Returns their bytes.
int64_t Machine::MakeWeightGradients(const Op& op, OfOp& made, int& count) {
  if (weight_gradient_ == WeightGradient::kFused) return 0;
  const int64_t before = now_;
  const bool kept = weight_gradient_ == WeightGradient::kKept;
  for (TensorId id : op.parameters) {
    const Parameter& parameter = block_.parameters[id];
    if (parameter.packed() || parameter.frozen) continue;
    int64_t elements = parameter.ElementsAtOnce();
    for (TensorId other : op.parameters) {
      const Parameter& part = block_.parameters[other];
      if (part.packed_into == id) elements = Add(elements, part.Elements());
    }
    const Role role = kept ? Role::kGradient : Role::kTemporary;
    const int piece = Make(kNoTensor, parameter.name, role, Bytes(gradient_dtype_, elements));
    if (tape_ != nullptr) tape_->pieces.back().parameter = static_cast<int8_t>(id);
    if (!kept) made[count++] = piece;
  }
  return now_ - before;
}

// Hooks give what was saved away: it is gone when gradients are cast, which is else before.
// Source: torch/csrc/autograd/engine.cpp, call_function (validate_outputs), release_variables;
// torch/utils/checkpoint.py, unpack_hook.
void Machine::BackwardOp(int index) {
  const Op& op = block_.ops[index];
  OfOp temporaries;
  int temporary_count = 0;
  if (op.gives_first) {
    const int from = op.given_from == kNoTensor ? kNoStorage : MakeTensor(op.given_from);
    GiveInputGradients(op);
    Note();
    if (from != kNoStorage) Release(from);
  }
  for (TensorId id : op.backward_temporaries) temporaries[temporary_count++] = MakeTensor(id);
  const bool casts = hooks_ && op.casts_gradients;
  const bool sums = hooks_ && op.sum_workspace != kNoTensor && !casts;
  const auto release_saved = [&] {
    Note();
    for (TensorId id : op.saved) Release(forward_storage_[Root(id)]);
  };
  if (casts) release_saved();
  OfOp weights;
  int weight_count = 0;
  const bool weights_first = MakesWeightGradientsFirst(op);
  int64_t gradients = 0;
  const bool twice = MultipliesTwice(op);
  if (weights_first) gradients = MakeWeightGradients(op, weights, weight_count);
  if (twice && weights_first) RunProduct(op);
  if (!op.gives_first) GiveInputGradients(op);
  if (twice && !weights_first) RunProduct(op);
  TellProduct(op);
  if (!weights_first) gradients = MakeWeightGradients(op, weights, weight_count);
  PassBy(op.workspace);
  if (sums) release_saved();
  PassBy(op.sum_workspace);
  Note();
  if (weight_count == 0) earlier_gradients_ += gradients;
  op_note_ = note_;
  Tell(TapeEventKind::kLaunch, BackwardKernels(op));
  while (temporary_count > 0) Release(temporaries[--temporary_count]);
  while (weight_count > 0) Release(weights[--weight_count]);
  for (TensorId id : op.outputs) {
    if (gradient_storage_[id] != kNoStorage) Release(gradient_storage_[id]);
    gradient_storage_[id] = kNoStorage;
  }
  if (!casts && !sums) {
    for (TensorId id : op.saved) Release(forward_storage_[Root(id)]);
  }
  AddSecondGradients();
  if (!has_gradients_ && gradients > 0) BeginGradients();
  ++clock_;
}

void Machine::MakeOutputGradient() {
  if (block_.output == kNoTensor || block_.kind == BlockKind::kHead) return;
  if (!block_.tensors[block_.output].differentiable) return;
  gradient_storage_[block_.output] =
      Make(block_.output, ".gradient", Role::kTemporary, bytes_[block_.output]);
  if (tape_ != nullptr) {
    tape_->output_gradient = static_cast<int16_t>(gradient_storage_[block_.output]);
  }
}

void Machine::MarkKept() {
  if (log_ == nullptr) return;
  for (int i = 0; i < piece_count_; ++i) {
    if (pieces_[i].references > 0) (*log_)[pieces_[i].log].kept = true;
  }
}

// What is made again is told once, as it is then.
void Machine::ForgetDropped() {
  if (log_ == nullptr) return;
  std::vector<Storage> kept;
  for (int i = 0; i < piece_count_; ++i) {
    if (pieces_[i].references == 0) continue;
    kept.push_back((*log_)[pieces_[i].log]);
    pieces_[i].log = static_cast<int>(kept.size()) - 1;
  }
  *log_ = std::move(kept);
}

// The output is the next block's from here on.
void Machine::EndForward(BlockRun& run) {
  run.forward = Alive(peak_, true);
  if (block_.output != kNoTensor) {
    Tell(TapeEventKind::kOutput, forward_storage_[Root(block_.output)]);
    if (tape_ != nullptr) {
      tape_->output = static_cast<int16_t>(forward_storage_[Root(block_.output)]);
    }
    Release(forward_storage_[block_.output]);
  }
  checkpoint_bytes_ = block_.checkpoint_bytes;
  now_ = Add(now_, checkpoint_bytes_);
  run.kept = Alive({0, note_, 0}, true);
  MarkKept();
  ForgetPeaks();
  if (tape_ == nullptr) return;
  if (block_.input != kNoTensor) {
    tape_->input = static_cast<int16_t>(forward_storage_[block_.input]);
  }
  tape_->forward_end = tape_->events.size();
}

void Machine::EndBackward(BlockRun& run) const {
  const auto usage = [this](const Peak& whole, const Peak& from_gradients, bool stay) {
    BackwardUsage of{Alive(whole, stay), {}};
    if (!has_gradients_) return of;
    const bool same = from_gradients.note == whole.note;
    of.from_gradients = same ? of.whole : Alive(from_gradients, stay);
    return of;
  };
  run.backward = usage(peak_, gradients_peak_, true);
  const bool kept = weight_gradient_ == WeightGradient::kKept;
  run.later_backward = kept ? usage(later_peak_, later_gradients_peak_, false) : run.backward;
}

// What was saved goes when the network's forward is over.
BlockRun Machine::RunForward() {
  BlockRun run;
  forward_storage_[block_.input] = MakeTensor(block_.input);
  Forward(0, static_cast<int>(block_.ops.size()), true);
  EndForward(run);
  for (const Op& op : block_.ops) {
    for (TensorId id : op.saved) Release(forward_storage_[Root(id)]);
  }
  if (tape_ != nullptr) tape_->again_end = tape_->forward_end;
  return run;
}

BlockRun Machine::RunKept() {
  BlockRun run;
  const int count = static_cast<int>(block_.ops.size());
  if (block_.input != kNoTensor) forward_storage_[block_.input] = MakeTensor(block_.input);
  Forward(0, count, true);
  EndForward(run);
  for (size_t id = 0; id < block_.tensors.size(); ++id) {
    if (block_.tensors[id].leaves_hole) run.hole_bytes = Add(run.hole_bytes, bytes_[id]);
  }
  if (tape_ != nullptr) tape_->again_end = tape_->events.size();
  MakeOutputGradient();
  Note();
  Backward(0, count);
  EndBackward(run);
  return run;
}

void Machine::FetchInput() {
  const int fetched = MakeTensor(block_.input);
  forward_storage_[block_.input] = fetched;
  if (tape_ != nullptr) tape_->fetched = static_cast<int16_t>(fetched);
}

// Forward keeps the input alone, or nothing where the host does.
BlockRun Machine::ForwardToRunAgain() {
  BlockRun run;
  forward_storage_[block_.input] = MakeTensor(block_.input);
  if (!block_.fetches_input) Refer(forward_storage_[block_.input]);
  Forward(0, static_cast<int>(block_.ops.size()), false);
  EndForward(run);
  ForgetDropped();
  again_ = true;
  clock_ = 0;
  MakeOutputGradient();
  if (block_.fetches_input) FetchInput();
  Refer(forward_storage_[block_.input]);
  return run;
}

// Backward of ops that saved nothing runs; the first that needs something makes forward run once
// more, until all that was saved is there. Its argument goes when nothing of that is left.
// Source: torch/utils/checkpoint.py, _checkpoint_hook (unpack_hook), _CheckpointFrame
// (recompute_fn).
BlockRun Machine::RunUntilSaved() {
  BlockRun run = ForwardToRunAgain();
  const int count = static_cast<int>(block_.ops.size());
  const int saving = EndOfSaving();
  clock_ = count;
  Note();
  Backward(saving, count);
  const int clock = std::exchange(clock_, 0);
  ForwardUntilSaved(saving);
  clock_ = clock;
  run.again = Alive(peak_, true);
  ForgetPeaks();
  if (tape_ != nullptr) tape_->again_end = tape_->events.size();
  run.unit = Alive({0, note_, 0}, true);
  run.unit.Shrink(Role::kTemporary, bytes_[block_.output]);
  run.unit.Shrink(Role::kActivation, checkpoint_bytes_);
  const int first = std::min(BeginOfSaving(), saving);
  Backward(first, saving);
  Release(forward_storage_[block_.input]);
  Backward(0, first);
  EndBackward(run);
  return run;
}

// Backward begins with forward once more, the output's gradient alive all the while.
BlockRun Machine::RunRecomputed() {
  if (block_.stops_early) return RunUntilSaved();
  BlockRun run = ForwardToRunAgain();
  const int count = static_cast<int>(block_.ops.size());
  Forward(0, count, true);
  run.again = Alive(peak_, true);
  ForgetPeaks();
  const int output = forward_storage_[block_.output];
  if (tape_ != nullptr) tape_->output_again = static_cast<int16_t>(output);
  Tell(TapeEventKind::kOutput, output);
  const int gradient = gradient_storage_[block_.output];
  if (holds_output_) Refer(output);
  if (block_.holds_output) Refer(gradient);
  Release(output);
  if (tape_ != nullptr) tape_->again_end = tape_->events.size();
  run.unit = Alive({0, note_, 0}, true);
  run.unit.Shrink(Role::kTemporary, bytes_[block_.output]);
  run.unit.Shrink(Role::kActivation, checkpoint_bytes_);
  if (holds_output_) run.unit.Shrink(pieces_[output].role, pieces_[output].bytes);
  Backward(0, count);
  EndBackward(run);
  if (block_.holds_output) Release(gradient);
  return run;
}

}  // namespace

Tape Record(const Block& block, WeightGradient weight_gradient, DType gradient_dtype) {
  Tape tape;
  Machine machine(block, weight_gradient, gradient_dtype, {.tape = &tape}, false);
  machine.RunOnce();
  tape.input_gradient = static_cast<int16_t>(machine.InputGradient());
  return tape;
}

BlockRun Run(const Block& block, WeightGradient weight_gradient, DType gradient_dtype,
             std::vector<Storage>* storages) {
  const auto run = [&](std::vector<Storage>* log, bool holds_output) {
    return Machine(block, weight_gradient, gradient_dtype, {.storages = log}, holds_output)
        .RunOnce();
  };
  BlockRun whole = run(storages, block.holds_output);
  if (block.recompute_unit > 1) {
    const BlockRun inner = run(nullptr, false);
    whole.inner_backward = inner.backward;
    whole.later_inner_backward = inner.later_backward;
  }
  return whole;
}

}  // namespace plimsoll
