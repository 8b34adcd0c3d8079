// Matrix products in fp8: what is kept in the place of their inputs, what stands beside them while
// they run, and the copies of weights.
#include <map>
#include <string>
#include <variant>

#include "estimator/program/describe.h"
#include "estimator/step/ledger.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

JobSpec Job(const char* recipe, const char* gpu = "h100-80gb-sxm") {
  JobSpec job = With(SmallJob(), "megatron-core", "fp8-mixed");
  job.training.precision.fp8_recipe = recipe;
  job.training.attention = "cudnn";
  job.cluster.gpu = gpu;
  return job;
}

// What `job` is with products in 16 bits.
JobSpec Wide(JobSpec job) {
  job.training.precision = PrecisionSpec();
  return job;
}

// "name dtype name dtype".
std::string TensorsOf(const Block& block, const Ids& ids) {
  std::string text;
  for (const TensorId id : ids) {
    absl::StrAppend(&text, text.empty() ? "" : " ", block.tensors[id].name, " ",
                    Name(block.tensors[id].dtype));
  }
  return text;
}

struct Product {
  std::string saved, forward, backward;
  bool operator==(const Product&) const = default;
};
void PrintTo(const Product& product, std::ostream* out) {
  *out << "saves " << product.saved << "; forward with " << product.forward << "; backward with "
       << product.backward;
}
Product ProductOf(const JobSpec& job, absl::string_view name) {
  const Program program = ProgramAfter(Valid(job), PassId::kFp8Products);
  const Block& layer = FindBlock(program, "layer");
  const Op& op = FindOp(layer, name);
  EXPECT_TRUE(op.in_fp8);
  return {TensorsOf(layer, op.saved), TensorsOf(layer, op.forward_temporaries),
          TensorsOf(layer, op.backward_temporaries)};
}

TEST(Fp8ProductsTest, HopperReadsRowsAlone) {
  const Product both{"fp8.input fp8", "fp8.input.transposed fp8",
                     "fp8.output.gradient fp8 fp8.output.gradient.transposed fp8"};
  for (const char* name : {"attention.qkv", "attention.out", "mlp.down"}) {
    EXPECT_EQ(ProductOf(Job("delayed"), name), both) << name;
  }
}

TEST(Fp8ProductsTest, BlackwellReadsBothWays) {
  EXPECT_EQ(ProductOf(Job("delayed", "b200-180gb"), "mlp.down"),
            (Product{"fp8.input fp8", "", "fp8.output.gradient fp8"}));
  EXPECT_EQ(ProductOf(Job("mxfp8", "b200-180gb"), "mlp.down"),
            (Product{"fp8.input fp8", "fp8.input.transposed fp8",
                     "fp8.output.gradient fp8 fp8.output.gradient.transposed fp8"}))
      << "scales of blocks are of one way";
}

// Compute capability 12.0, which has no NVLink.
TEST(Fp8ProductsTest, WorkstationsBlackwellsReadRowsAlone) {
  Catalog catalog = SmallCatalog();
  catalog.gpus.at("b200-180gb").interconnect = "pcie5";
  const auto copies = [&catalog](const char* recipe, const char* gpu) {
    return std::get<ValidJob>(Validate(Job(recipe, gpu), catalog))->Fp8CopyCount();
  };
  EXPECT_EQ(copies("delayed", "b200-180gb"), 2);
  EXPECT_EQ(copies("tensorwise", "b200-180gb"), 2);
  EXPECT_EQ(copies("delayed", "h100-80gb-sxm"), 2);
  EXPECT_EQ(Valid(Job("delayed", "b200-180gb"))->Fp8CopyCount(), 1);
}

// Two elements in a byte, and a byte of scale for each 16, both ways.
TEST(Fp8ProductsTest, FourBitsAreOfBlocksToo) {
  JobSpec job = Job("delayed", "b200-180gb");
  job.training.precision = {};
  job.training.precision.preset = "fp4-mixed";
  EXPECT_EQ(ProductOf(job, "mlp.down"),
            (Product{"fp8.input fp4", "fp8.input.transposed fp4",
                     "fp8.output.gradient fp4 fp8.output.gradient.transposed fp4"}));
  EXPECT_EQ(ProductOf(job, "attention.out").saved, "attention.context bf16");
  EXPECT_EQ(Bytes(DType::kFp4Blocks, 256), 128 + 16);
}

// The kernel keeps its output; but the delayed recipe's scales are of the first time.
TEST(Fp8ProductsTest, AttentionsOutputIsReadAgain) {
  EXPECT_EQ(ProductOf(Job("tensorwise"), "attention.out"),
            (Product{"attention.context bf16", "fp8.input fp8",
                     "fp8.input.transposed fp8 fp8.output.gradient fp8 "
                     "fp8.output.gradient.transposed fp8"}));
}

TEST(Fp8ProductsTest, ACopyOfAttentionsOutputIsReadAgainToo) {
  JobSpec job = Job("tensorwise");
  job.training.attention = "flash";
  EXPECT_EQ(ProductOf(job, "attention.out").saved, "attention.context.copy bf16");
}

TEST(Fp8ProductsTest, RanksGatherFp8) {
  JobSpec job = Job("tensorwise");
  job.parallelism.tensor_parallel_size = 2;
  job.parallelism.sequence_parallel = true;
  const Product columns = ProductOf(job, "attention.qkv");
  EXPECT_EQ(columns.saved, "fp8.input fp8");
  EXPECT_EQ(columns.forward, "gathered.input fp8") << "a gathered tensor has rows alone";
  EXPECT_EQ(columns.backward,
            "gathered.input fp8 partial.input.gradient bf16 fp8.input.transposed fp8 "
            "fp8.output.gradient fp8 fp8.output.gradient.transposed fp8");
  const Product rows = ProductOf(job, "mlp.down");
  EXPECT_EQ(rows.backward, "gathered.output.gradient fp8 fp8.output.gradient.transposed fp8");
}

// Nobody in Python holds what a module makes for its product.
TEST(Fp8ProductsTest, CopiesAreHeldByNobody) {
  JobSpec job = Job("delayed");
  job.parallelism.context_parallel_size = 2;
  job.parallelism.context_parallel_method = "ulysses";
  const Program program = ProgramAfter(Valid(job), PassId::kFp8Products);
  const Block& layer = FindBlock(program, "layer");
  bool held = false;
  for (const Tensor& tensor : layer.tensors) {
    const bool made = tensor.dtype == DType::kFp8;
    held = held || (!made && tensor.held_until != 255);
    EXPECT_TRUE(!made || tensor.held_until == 255) << tensor.name;
  }
  EXPECT_TRUE(held) << "as the products' outputs are";
}

TEST(Fp8ProductsTest, HeadAndEmbeddingKeepSixteenBits) {
  const Program program = ProgramAfter(Valid(Job("delayed")), PassId::kFp8Products);
  const Program wide = ProgramAfter(Valid(Wide(Job("delayed"))), PassId::kFp8Products);
  for (size_t i = 0; i < program.blocks.size(); ++i) {
    if (program.blocks[i].kind == BlockKind::kLayer) continue;
    EXPECT_EQ(program.blocks[i].tensors.size(), wide.blocks[i].tensors.size());
    for (const Op& op : program.blocks[i].ops) EXPECT_FALSE(op.in_fp8) << op.name;
  }
}

TEST(Fp8ProductsTest, OtherPresetsChangeNothing) {
  const ValidJob job = Valid(Wide(Job("delayed")));
  EXPECT_EQ(Describe(ProgramAfter(job, PassId::kFp8Products)),
            Describe(ProgramAfter(job, PassId::kExpertParallel)));
}

// By hand: Llama's layer without tensor parallelism keeps of its products' inputs, 16 bits each,
// the two norms' outputs and the MLP's product; attention's output stays its kernel's, tensorwise.
TEST(Fp8ProductsTest, ALayerKeepsAByteOfEachInput) {
  const JobSpec job = Job("tensorwise");
  const ValidJob valid = Valid(job);
  const int64_t tokens = valid->LocalTokens();
  const int64_t inputs = 2 * valid->model->hidden_size + valid->model->ffn_size;
  EXPECT_EQ(KeptByLayer(ProgramOf(Wide(job))) - KeptByLayer(ProgramOf(job)), tokens * inputs);
  EXPECT_EQ(KeptByLayer(ProgramOf(Job("delayed"))) - KeptByLayer(ProgramOf(job)),
            tokens * valid->model->hidden_size);
}

// B 2, S 32: eight experts 96 wide, two for each token, and a shared one 80 wide.
JobSpec Routed(const char* recipe) {
  JobSpec job = Job(recipe);
  Shape(job).expert_count = 8;
  Shape(job).active_expert_count = 2;
  Shape(job).expert_ffn_size = 96;
  Shape(job).shared_expert_ffn_size = 80;
  job.runtime.grouped_gemm = true;
  return job;
}

TEST(Fp8ProductsTest, ExpertsReadFp8AndTheRouterDoesNot) {
  const Product both{"fp8.input fp8", "fp8.input.transposed fp8",
                     "fp8.output.gradient fp8 fp8.output.gradient.transposed fp8"};
  for (const char* name : {"experts.gate_up", "experts.down", "mlp.down"}) {
    EXPECT_EQ(ProductOf(Routed("tensorwise"), name), both) << name;
  }
  const Program program = ProgramAfter(Valid(Routed("tensorwise")), PassId::kFp8Products);
  const Block& layer = FindBlock(program, "layer");
  EXPECT_FALSE(FindOp(layer, "router").in_fp8);
  EXPECT_EQ(TensorsOf(layer, FindOp(layer, "router").saved), "mlp.norm bf16");
}

// The router keeps it; but the delayed recipe's scales are of the first time.
TEST(Fp8ProductsTest, WhatSharedExpertsReadIsReadAgain) {
  EXPECT_EQ(ProductOf(Routed("tensorwise"), "mlp.gate_up").saved, "mlp.norm bf16");
  EXPECT_EQ(ProductOf(Routed("delayed"), "mlp.gate_up").saved, "fp8.input fp8");
  JobSpec again = Routed("tensorwise");
  again.training.recompute.mode = "selective";
  again.training.recompute.modules = {"shared-experts"};
  EXPECT_EQ(ProductOf(again, "mlp.gate_up").saved, "fp8.input fp8") << "as long as they run";
}

// What is made again is dropped, not its copy in fp8.
TEST(Fp8ProductsTest, WhatIsMadeAgainIsReadAgain) {
  EXPECT_EQ(ProductOf(Routed("tensorwise"), "experts.down").saved, "fp8.input fp8");
  JobSpec again = Routed("tensorwise");
  again.training.recompute.mode = "selective";
  again.training.recompute.modules = {"activation"};
  EXPECT_EQ(ProductOf(again, "experts.down").saved, "experts.product.activation bf16");
  EXPECT_EQ(ProductOf(again, "experts.gate_up").saved, "fp8.input fp8");
}

// By hand: of a layer with experts what two of its products by each token read is a byte an
// element, and so is what attention's, and the shared expert's second, do; attention's output, and
// what the router keeps, stay.
TEST(Fp8ProductsTest, ALayerOfExpertsKeepsAByteOfEachInput) {
  const JobSpec job = Routed("tensorwise");
  const ValidJob valid = Valid(job);
  const int64_t hidden = valid->model->hidden_size;
  const int64_t inputs = hidden + 2 * (hidden + 96) + 80;
  EXPECT_EQ(KeptByLayer(ProgramOf(Wide(job))) - KeptByLayer(ProgramOf(job)),
            valid->LocalTokens() * inputs);
}

TEST(Fp8ProductsTest, ExpertsWeightsHaveCopies) {
  const JobSpec job = Routed("tensorwise");
  const Program program = ProgramOf(job);
  const int64_t layers = Valid(job)->model->layer_count;
  const int64_t hidden = Valid(job)->model->hidden_size;
  int64_t matrices = 0;
  for (const Parameter& parameter : FindBlock(program, "layer").parameters) {
    EXPECT_EQ(parameter.fp8, parameter.shape.rank > 1 && parameter.name != "router.weight")
        << parameter.name;
    if (parameter.fp8) matrices += parameter.Elements();
  }
  EXPECT_GE(matrices, 8 * 3 * 96 * hidden);
  for (const State& state : program.states) {
    if (state.name != "weights.fp8") continue;
    EXPECT_EQ(StateBytes(state, SumParameters(program, program.stages.front())), layers * matrices);
  }
}

std::map<std::string, int64_t> WeightsOf(const JobSpec& job) {
  const Program program = ProgramOf(job);
  std::map<std::string, int64_t> bytes;
  for (const State& state : program.states) {
    if (state.role != Role::kWeight) continue;
    bytes[std::string(state.name)] =
        StateBytes(state, SumParameters(program, program.stages.front()));
  }
  return bytes;
}

TEST(Fp8ProductsTest, WeightsHaveCopiesOrAreTheirOwn) {
  const int64_t all = CountParameters(*Valid(Job("delayed"))->model);
  const auto wide = WeightsOf(Wide(Job("delayed")));
  EXPECT_EQ(wide.at("weights"), 2 * all);
  const auto copied = WeightsOf(Job("delayed"));
  const int64_t matrices = copied.at("weights.fp8");
  EXPECT_EQ(copied.at("weights"), 2 * all);
  EXPECT_EQ(copied.at("weights.fp8.transposed"), matrices);
  JobSpec own = Job("delayed");
  own.training.precision.fp8_parameters = true;
  EXPECT_EQ(WeightsOf(own).at("weights"), 2 * (all - matrices));
  EXPECT_EQ(WeightsOf(own).at("weights.fp8"), matrices);
  EXPECT_EQ(WeightsOf(Job("delayed", "b200-180gb")).count("weights.fp8.transposed"), 0u);
  const int64_t blocks = WeightsOf(Job("mxfp8", "b200-180gb")).at("weights.fp8");
  EXPECT_EQ(blocks, matrices + matrices / 32) << "a scale for each 32";
}

}  // namespace
}  // namespace plimsoll
