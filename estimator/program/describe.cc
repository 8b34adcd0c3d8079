#include "estimator/program/describe.h"

#include <iterator>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace plimsoll {
namespace {

constexpr absl::string_view kStreams[] = {"compute", "all-gather",         "reduce-scatter",
                                          "copy-in", "reference's gather", "host copy"};
static_assert(std::size(kStreams) == kStreamCount, "each stream has its name");
constexpr absl::string_view kCollectives[] = {"gathers", "reduce-scatters", "all-reduces",
                                              "exchanges", "passes around"};
constexpr absl::string_view kOps[] = {"",          " (product)",  " (attention)", " (scan)",
                                      " (gather)", " (dispatch)", " (combine)",   " (pick)"};
static_assert(std::size(kOps) == static_cast<size_t>(OpKind::kPick) + 1);
constexpr absl::string_view kGradients[] = {"", "shares gradients", "gradient over its output's",
                                            "gradient in place"};
constexpr absl::string_view kBases[] = {"parameters",
                                        "layers' cast matrices",
                                        "picked parameters",
                                        "other parameters",
                                        "matrices read in fp8",
                                        "all but matrices read in fp8",
                                        "rows + columns",
                                        "projected gradients",
                                        "projectors",
                                        "factors with projectors",
                                        "largest",
                                        "bytes",
                                        "bytes a layer"};
constexpr absl::string_view kKinds[] = {"embedding", "layer", "head"};
constexpr absl::string_view kParts[] = {"",
                                        "weights",
                                        "master weights",
                                        "gradients",
                                        "gradient sums",
                                        "step copies",
                                        "step gradients",
                                        "optimizer states",
                                        "step temporaries",
                                        "reference"};
static_assert(std::size(kBases) == static_cast<size_t>(Basis::kBytesPerLayer) + 1);
static_assert(std::size(kParts) == static_cast<size_t>(Part::kReference) + 1);
constexpr absl::string_view kSelections[] = {"", "frozen", "quantized", "trained and frozen"};
constexpr absl::string_view kPlaces[] = {"", "embedding's stage", "head's stage"};
constexpr absl::string_view kWeightGradients[] = {"kept", "added", "fused"};

// What is said of a row beside what it is: words that are true of it.
class Words {
 public:
  Words& If(bool is, absl::string_view word) {
    if (is) words_.emplace_back(word);
    return *this;
  }
  Words& Of(absl::string_view word) { return If(!word.empty(), word); }
  Words& Marks(PassMarks marks) {
    for (const absl::string_view pass : PassNames(marks)) Of(pass);
    return *this;
  }
  std::string After(absl::string_view lead) const {
    return words_.empty() ? "" : absl::StrCat(lead, absl::StrJoin(words_, ", "));
  }

 private:
  std::vector<std::string> words_;
};

std::string AxesOf(AxisSet axes) {
  Words words;
  for (size_t axis = 0; axis < kAxisCount; ++axis) words.If((axes >> axis & 1) != 0, kAxes[axis]);
  return words.After("");
}

// A tensor's name; of several alike their number after it.
std::string NameOf(TensorId id, const Block& block) {
  int number = 1;
  for (TensorId other = 0; other < id; ++other) {
    if (block.tensors[other].name == block.tensors[id].name) ++number;
  }
  const absl::string_view name = block.tensors[id].name;
  return number == 1 ? std::string(name) : absl::StrCat(name, "#", number);
}

std::string AxisOf(int8_t axis, absl::string_view splits) {
  return axis == kNoAxis ? "" : absl::StrCat(splits, " axis ", int{axis});
}

// A line of a block: what it is, and after "; " what is said of it.
std::string Line(const Parameter& parameter, const Block& block) {
  return absl::StrCat(
      "parameter ", parameter.name, " ", InSymbols(parameter.shape), " ",
      InNumbers(parameter.shape), " ", Name(parameter.dtype),
      Words()
          .Of(AxisOf(parameter.tensor_axis, "tensor"))
          .If(parameter.embedding, "lookup")
          .If(parameter.tied, "tied")
          .If(parameter.picked, "picked")
          .If(parameter.projected_rank > 0, "projected")
          .If(parameter.frozen, "frozen")
          .If(parameter.quantized, "quantized")
          .If(parameter.fp8, "read in fp8")
          .If(parameter.shard_axis > 0, AxisOf(parameter.shard_axis, "shared along"))
          .If(parameter.packed(),
              absl::StrCat("packed into ",
                           parameter.packed() ? block.parameters[parameter.packed_into].name : ""))
          .Marks(parameter.shrunk_by)
          .After("; "));
}

std::string Line(const Tensor& tensor, TensorId id, const Block& block) {
  const bool view = tensor.storage != id;
  const bool until = tensor.held_until != 255;
  return absl::StrCat(
      "tensor ", NameOf(id, block), " ", InSymbols(tensor.shape), " ", InNumbers(tensor.shape), " ",
      Name(tensor.dtype), " ", Name(tensor.role),
      Words()
          .Of(AxisOf(tensor.tensor_axis, "tensor"))
          .Of(AxisOf(tensor.sequence_axis, "sequence"))
          .If(view, absl::StrCat("view of ", NameOf(tensor.storage, block)))
          .If(!tensor.differentiable, "no gradient")
          .If(tensor.recorded, "recorded")
          .If(tensor.stream != Stream::kCompute, kStreams[static_cast<size_t>(tensor.stream)])
          .If(tensor.held, "held")
          .If(tensor.lingers, "lingers")
          .If(until, absl::StrCat("held until ", until ? block.ops[tensor.held_until].name : ""))
          .If(tensor.leaves_hole, "leaves a hole")
          .If(tensor.discarded, "discarded")
          .If(tensor.checkpointed, "checkpointed")
          .Marks(tensor.shrunk_by)
          .After("; "));
}

std::string TensorOf(TensorId id, const Block& block) {
  return id == kNoTensor ? "" : std::string(block.tensors[id].name);
}

std::string TensorsOf(const Ids& ids, const Block& block) {
  return absl::StrJoin(ids, " ", [&block](std::string* out, TensorId id) {
    absl::StrAppend(out, NameOf(id, block));
  });
}

std::string ParametersOf(const Ids& ids, bool frozen, const Block& block) {
  std::vector<absl::string_view> names;
  for (const TensorId id : ids) {
    if (block.parameters[id].frozen == frozen) names.push_back(block.parameters[id].name);
  }
  return absl::StrJoin(names, " ");
}

std::string CollectivesOf(const Collectives& rows, const Block& block) {
  return absl::StrJoin(rows, ", ", [&block](std::string* out, const Collective& row) {
    absl::StrAppend(out, kCollectives[static_cast<size_t>(row.kind)], " ",
                    NameOf(row.tensor, block), " along ", AxesOf(row.axes),
                    row.shared ? ", once" : "");
  });
}

std::string Line(const Op& op, const Block& block) {
  const auto with = [](absl::string_view word, const std::string& what) {
    return what.empty() ? "" : absl::StrCat(word, " ", what);
  };
  return absl::StrCat("op ", op.name, kOps[static_cast<size_t>(op.kind)], ": ",
                      TensorsOf(op.inputs, block), " -> ", TensorsOf(op.outputs, block),
                      Words()
                          .Of(with("saves", TensorsOf(op.saved, block)))
                          .Of(with("reads", ParametersOf(op.parameters, true, block)))
                          .Of(with("trains", ParametersOf(op.parameters, false, block)))
                          .Of(with("forward with", TensorsOf(op.forward_temporaries, block)))
                          .Of(with("backward with", TensorsOf(op.backward_temporaries, block)))
                          .Of(with("given from", TensorOf(op.given_from, block)))
                          .Of(with("sums in", TensorOf(op.sum_workspace, block)))
                          .Of(with("forward", CollectivesOf(op.forward_collectives, block)))
                          .Of(with("backward", CollectivesOf(op.backward_collectives, block)))
                          .Of(kGradients[static_cast<size_t>(op.input_gradient)])
                          .If(op.product_depth > 0, absl::StrCat("depth ", op.product_depth))
                          .If(op.always_again, "always again")
                          .If(op.modules != 0, absl::StrCat("modules ", int{op.modules}))
                          .If(op.segment != 0, absl::StrCat("segment ", int{op.segment}))
                          .If(op.remakes != 0, absl::StrCat("remakes ", int{op.remakes}))
                          .After("; "));
}

std::string Size(const GatherSize& size) {
  return absl::StrCat(size.bytes, " from ", size.input_bytes);
}

std::string Line(const BlockBuffer& buffer) {
  constexpr absl::string_view kEnds[] = {"", "; until the next buffer", "; until it is made"};
  const bool elsewhere = buffer.input_stream != Stream::kAllGather;
  return absl::StrCat("buffer ", buffer.name, ": ", Name(buffer.role), ", ",
                      kStreams[static_cast<size_t>(buffer.stream)], elsewhere ? " from " : "",
                      elsewhere ? kStreams[static_cast<size_t>(buffer.input_stream)] : "",
                      ", forward ", Size(buffer.forward), ", backward ",
                      buffer.of_next ? "the next block's" : Size(buffer.backward),
                      kEnds[static_cast<size_t>(buffer.end)]);
}

std::string ListOf(const LayerSet& layers) {
  std::vector<int64_t> list;
  for (int64_t i = 0; i < LayerSet::kMostListed; ++i) {
    if (layers.Has(i)) list.push_back(i);
  }
  return absl::StrCat("layers ", absl::StrJoin(list, " "));
}

// "layers from 1, 0 to 4 of 6", "layer 0", "layers 0 3 4".
std::string InWords(const LayerSet& layers) {
  if (layers.IsListed()) return ListOf(layers);
  if (layers.end == layers.begin + 1) return absl::StrCat("layer ", layers.begin);
  std::string words = "layers";
  if (layers.begin > 0) absl::StrAppend(&words, " from ", layers.begin);
  if (layers.end < kNoEnd) absl::StrAppend(&words, " to ", layers.end - 1);
  if (layers.period == 1) return words;
  const bool bounded = layers.begin > 0 || layers.end < kNoEnd;
  absl::StrAppend(&words, bounded ? ", " : " ", layers.from);
  if (layers.to > layers.from + 1) absl::StrAppend(&words, " to ", layers.to - 1);
  return absl::StrCat(words, " of ", layers.period);
}

std::string Lines(const Block& block) {
  std::string text = absl::StrCat(
      block.name, " (", kKinds[static_cast<size_t>(block.kind)], ")",
      Words()
          .If(!block.layers.IsAll(), InWords(block.layers))
          .If(block.recompute_unit > 0, absl::StrCat("recomputed by ", block.recompute_unit))
          .If(block.holds_output, "holds its output")
          .If(block.stops_early, "runs again until all that it saved is there")
          .If(block.fetches_input, "fetches its input from the host")
          .If(block.forward_only, "forward only")
          .If(block.checkpoint_bytes > 0, absl::StrCat("keeps ", block.checkpoint_bytes))
          .If(block.reduce_bytes > 0, absl::StrCat("reduces ", block.reduce_bytes))
          .If(block.reduced_at_once, "at once")
          .If(block.gathered.bytes > 0, absl::StrCat("gathered into ", Size(block.gathered)))
          .Of(block.input == kNoTensor ? "" : absl::StrCat("from ", NameOf(block.input, block)))
          .Of(block.output == kNoTensor ? "" : absl::StrCat("to ", NameOf(block.output, block)))
          .After(": "),
      "\n");
  const auto add = [&text](const std::string& line) { absl::StrAppend(&text, "  ", line, "\n"); };
  for (const Parameter& parameter : block.parameters) add(Line(parameter, block));
  for (size_t id = 0; id < block.tensors.size(); ++id) {
    add(Line(block.tensors[id], static_cast<TensorId>(id), block));
  }
  for (const Op& op : block.ops) add(Line(op, block));
  for (const BlockBuffer& buffer : block.buffers) add(Line(buffer));
  return text;
}

// "FLBROE" of the first step and of later ones: phases in which it is alive, "." where not.
std::string PhasesOf(Alive alive) {
  constexpr absl::string_view kPhases = "FLBROE";
  std::string text;
  for (const bool first : {true, false}) {
    if (!first) text += ' ';
    for (size_t phase = 0; phase < kPhaseCount; ++phase) {
      const bool is = (alive & Bit(static_cast<Phase>(phase), first)) != 0;
      text += is ? kPhases[phase] : '.';
    }
  }
  return text;
}

std::string Line(const State& state) {
  const bool capped = state.most_bytes != std::numeric_limits<int64_t>::max();
  return absl::StrCat(
      "state ", PhasesOf(state.alive), " ", state.name, ": ", Name(state.role), ", ",
      Name(state.dtype), " of ", kBases[static_cast<size_t>(state.basis)],
      Words()
          .Of(kParts[static_cast<size_t>(state.part)])
          .Of(kSelections[static_cast<size_t>(state.of)])
          .If(state.fixed_bytes > 0, absl::StrCat(state.fixed_bytes, " bytes"))
          .If(capped, absl::StrCat("at most ", state.most_bytes))
          .If(state.block_size > 1, absl::StrCat("one for ", state.block_size))
          .If(state.shards > 1, absl::StrCat("1/", state.shards))
          .If(state.expert_shards > 0, absl::StrCat("experts 1/", state.expert_shards))
          .If(state.shards_rows, "whole rows")
          .If(state.buffers > 0, absl::StrCat("buffers ", state.buffers))
          .If(state.grows_in_backward, "grows in backward")
          .If(state.adds_up, "adds micro-batches up")
          .If(state.until_backward, "until backward")
          .If(state.until_reduced, "until reduced")
          .If(state.until_temporaries, "until the step's own")
          .If(state.in_passing != 0, "in passing")
          .If(state.fills_in, "fills in")
          .If(state.takes_grown, "takes what grew")
          .If(state.sets_up, "sets up")
          .If(state.sets_up_behind, "sets up behind")
          .If(state.sets_up_beside, "beside the last")
          .If(state.becomes != Part::kOther,
              absl::StrCat("becomes ", kParts[static_cast<size_t>(state.becomes)]))
          .If(state.remakes_last, "remakes the last")
          .If(state.beside_others, "beside others")
          .If(state.from_backward, "from backward")
          .If(state.with_gradients, "with gradients")
          .If(state.of_threads, "of threads")
          .If(state.stream != Stream::kCompute, kStreams[static_cast<size_t>(state.stream)])
          .Of(kPlaces[static_cast<size_t>(state.place)])
          .Marks(state.shrunk_by)
          .After("; "));
}

void AddRange(std::string* text, const LayerRange& range) {
  absl::StrAppend(text, range.count);
  if (range.begin > 0) absl::StrAppend(text, " as from ", range.begin);
}

std::string Line(const Stage& stage) {
  return absl::StrCat(
      "stage: layers ", absl::StrJoin(stage.virtual_stages, " + ", AddRange),
      Words()
          .If(stage.embedding, "embedding")
          .If(stage.head, "head")
          .If(stage.edge_bytes > 0, absl::StrCat("sends ", stage.edge_bytes, " and keeps it"))
          .After(", "),
      "; pairs ", stage.order.pairs, ", warm-up ", stage.order.warm_up, ", groups of ",
      stage.order.group, ", played ", stage.order.played_micro_batches);
}

}  // namespace

std::vector<absl::string_view> PassNames(PassMarks shrunk_by) {
  std::vector<absl::string_view> names;
  for (size_t pass = 0; pass < kPassCount; ++pass) {
    if ((shrunk_by >> pass & 1) != 0) names.push_back(kPassNames[pass]);
  }
  return names;
}

std::string Describe(const Program& program) {
  std::string text;
  for (const Block& block : program.blocks) absl::StrAppend(&text, Lines(block));
  for (const Block& block : program.reference) {
    absl::StrAppend(&text, "reference: ", Lines(block));
  }
  const auto add = [&text](const std::string& line) { absl::StrAppend(&text, line, "\n"); };
  for (const State& state : program.states) add(Line(state));
  for (const Stage& stage : program.stages) add(Line(stage));
  add(absl::StrCat(
      "gradients of weights: ", Name(program.gradient_dtype), ", ",
      kWeightGradients[static_cast<size_t>(program.weight_gradient)],
      Words()
          .If(program.ends_are_one_group, "ends are one group")
          .If(program.empties_cache, "empties the cache")
          .If(program.adds_flat, program.adds_flat_ends ? "adds flat, ends as one" : "adds flat")
          .If(program.flat_cast != DType::kNone,
              absl::StrCat("the last cast to ", Name(program.flat_cast)))
          .If(program.row_shards > 1, absl::StrCat("rows over ", program.row_shards))
          .If(program.reduce_stream != Stream::kCompute, "reduced in a stream of their own")
          .After(", ")));
  add(absl::StrCat("outside: context ", program.outside.context_bytes, ", nccl ",
                   program.outside.nccl_bytes,
                   Words()
                       .If(program.tuning_bytes > 0, absl::StrCat("tuning ", program.tuning_bytes))
                       .If(program.synchronizes_receives, "synchronizes receives")
                       .After("; ")));
  return text;
}

}  // namespace plimsoll
