// The time of blocks, against sums that can be made by hand: 300 TFLOP/s and
// 2 TB/s, of which half is reached.
#include "estimator/time/block_time.h"

#include <algorithm>

#include "estimator/time/step_time.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

constexpr double kMatrixFlops = 150e12;
// 10 GFLOP at 312 TFLOP/s.
constexpr double kHalfFlops = 10e9 * 300 / 312;

JobSpec Plain() {
  JobSpec job = With(TightJob(), "megatron-core");
  job.cluster.gpu = "a100-80gb-sxm";
  return job;
}

const BlockTime& TimeOf(const ModelCost& cost, BlockKind kind) {
  for (const BlockCost& block : cost.blocks) {
    if (block.place.kind == kind) return block.time;
  }
  throw std::runtime_error("no such block");
}

ModelCost CostOfJob(const JobSpec& spec) {
  const ValidJob job = Valid(spec);
  return CostOf(job, BlocksProgram(job), SpeedOf(SmallCatalog().speed, *job));
}

BlockTime Layer(const JobSpec& spec) { return TimeOf(CostOfJob(spec), BlockKind::kLayer); }

// Four products: qkv [2560 + 2 x 512], out [2560], gate and up [2 x 8192], down.
TEST(BlockTimeTest, ProductsTakeTheirFlopsAndHalfAProductMore) {
  const double tokens = 2048;
  const double weights = 2560.0 * (2560 + 1024) + 2560.0 * 2560 + 3 * 2560.0 * 8192;
  const BlockTime time = Layer(Plain());
  EXPECT_NEAR(time.forward.matrix, (2 * tokens * weights + 4 * kHalfFlops) / kMatrixFlops, 1e-9);
  EXPECT_NEAR(time.backward.matrix, 2 * time.forward.matrix, 1e-9) << "two products for each";
}

// Scores and values of half the square, as a causal kernel skips the rest.
TEST(BlockTimeTest, AttentionIsHalfTheSquare) {
  const BlockTime time = Layer(Plain());
  EXPECT_NEAR(time.forward.attention, 4.0 * 2048 * 1024 * 2560 / kMatrixFlops, 1e-9);
  EXPECT_NEAR(time.backward.attention, 2.5 * time.forward.attention, 1e-9);
}

// Either product reads or writes 20 heads' scores, which takes longer than its FLOPs.
TEST(BlockTimeTest, EagerAttentionIsTwoProductsBoundByMemoryAndMovesScores) {
  JobSpec eager = Plain();
  eager.training.attention = "eager";
  const BlockTime plain = Layer(Plain());
  const BlockTime time = Layer(eager);
  EXPECT_EQ(time.forward.attention, 0);
  const ValidJob job = Valid(eager);
  const double scores = 20.0 * 2048 * 2048 * 2;
  const double moved = 2 * (scores + 2048.0 * (2560 + 2560) * 2);  // keys of all heads
  EXPECT_NEAR(time.forward.matrix - plain.forward.matrix,
              moved / RatesOf(*job, SpeedOf(SmallCatalog().speed, *job)).memory_bytes +
                  2 * kHalfFlops / kMatrixFlops,
              1e-9);
  EXPECT_GT(time.forward.memory, plain.forward.memory + 20.0 * 2048 * 2048 * 2 / 1e12);
}

// What a window leaves out is no work of the model: it never counts as done.
TEST(BlockTimeTest, AWindowBoundsTheModelsWork) {
  const ValidJob whole = Valid(Plain());
  auto model = std::make_shared<Transformer>(*whole->model);
  model->sliding_window = 256;
  JobSpec windowed = Plain();
  windowed.model.source = std::shared_ptr<const Transformer>(model);
  const BlockTime all = Layer(Plain());
  const BlockTime some = Layer(windowed);
  EXPECT_NEAR(all.model_flops - some.model_flops, 4.0 * 2048 * (2048 - 256) * 2560, 1e6);
  EXPECT_NEAR(some.forward.attention, 4.0 * 2048 * (256 - 16) * 2560 / kMatrixFlops, 1e-9);
}

// Each of 4 ranks has a quarter of the tokens, and in attention of the heads. It sends three
// quarters of its part of q [512, 2560], k and v [512, 512] and the context over a link of
// 150 GB/s of 300, which nothing hides.
TEST(BlockTimeTest, ContextParallelismSplitsTokensAndAddsExchanges) {
  JobSpec whole = With(Plain(), "deepspeed");
  JobSpec split = whole;
  split.parallelism.context_parallel_size = 4;
  const BlockTime before = Layer(whole);
  const BlockTime time = Layer(split);
  EXPECT_EQ(before.forward.context, 0);
  EXPECT_NEAR(time.forward.attention, before.forward.attention / 4, 1e-12);
  EXPECT_NEAR(time.model_flops, before.model_flops / 4, 1e3);
  const double sent = 0.75 * 512 * (2 * 2560 + 2 * 512) * 2;
  EXPECT_NEAR(time.forward.context, sent / 150e9, 1e-9);
  EXPECT_NEAR(time.backward.context, time.forward.context, 1e-12);
}

// Keys and values [512, 1024] of each rank go to three others while attention runs, and back
// with their gradients: what attention takes longer hides it.
TEST(BlockTimeTest, ARingRunsBesideAttention) {
  JobSpec split = With(Plain(), "megatron-core");
  split.parallelism.context_parallel_size = 4;
  split.training.attention = "flash";
  const BlockTime time = Layer(split);
  const double sent = 3.0 * 512 * 2 * 512 * 2 / 150e9;
  EXPECT_NEAR(time.forward.context, std::max(0.0, sent - 0.75 * time.forward.attention), 1e-9);
  EXPECT_NEAR(time.backward.context, std::max(0.0, 2 * sent - 0.75 * time.backward.attention),
              1e-9);
}

TEST(BlockTimeTest, TensorParallelismSplitsProductsAndAddsCollectives) {
  JobSpec split = Plain();
  split.parallelism.tensor_parallel_size = 4;
  const BlockTime whole = Layer(Plain());
  const BlockTime time = Layer(split);
  EXPECT_EQ(whole.forward.tensor, 0);
  EXPECT_NEAR(time.forward.attention, whole.forward.attention / 4, 1e-12);
  // Two all-reduces of [2048, 2560] in 16 bits: 2 x 3/4 of it over a link of
  // 150 GB/s.
  const double bytes = 2048.0 * 2560 * 2;
  const double expected = 2 * (2 * 0.75 * bytes / 150e9);
  EXPECT_NEAR(time.forward.tensor, expected, 1e-9);
  EXPECT_NEAR(time.backward.tensor, expected, 1e-9);
}

// A gather and a scatter where an all-reduce was, the same volume; in backward
// the input is gathered once more.
TEST(BlockTimeTest, SequenceParallelismGathersAndScatters) {
  JobSpec split = Plain();
  split.parallelism.tensor_parallel_size = 4;
  const double reduced = Layer(split).forward.tensor;
  split.parallelism.sequence_parallel = true;
  const BlockTime time = Layer(split);
  EXPECT_NEAR(time.forward.tensor, reduced, 1e-9);
  EXPECT_NEAR(time.backward.tensor, time.forward.tensor * 1.5, 1e-9);
}

// Four ranks on two nodes: each of two all-reduces waits 2 x 3 hops of 20 us.
TEST(BlockTimeTest, ARingAcrossNodesWaitsForEveryHop) {
  JobSpec in_node = Plain();
  in_node.parallelism.tensor_parallel_size = 4;
  JobSpec across = in_node;
  across.cluster.gpus_per_node = 2;
  const double bytes = 2048.0 * 2560 * 2;
  const double slower = 2 * 2 * 0.75 * bytes * (1 / 25e9 - 1 / 150e9);
  EXPECT_NEAR(Layer(across).forward.tensor - Layer(in_node).forward.tensor,
              slower + 2 * 2 * 3 * 2e-5, 1e-9);
}

TEST(BlockTimeTest, LaunchingGoesOnWhileARingWaits) {
  JobSpec across = Plain();
  across.parallelism.tensor_parallel_size = 2;
  across.cluster.gpus_per_node = 1;
  const ValidJob job = Valid(across);
  Speed speed = SpeedOf(SmallCatalog().speed, *job);
  speed.framework.kernel_seconds = 1;
  const auto forward = [&] {
    return TimeOf(CostOf(job, BlocksProgram(job), speed), BlockKind::kLayer).forward;
  };
  const double launched = forward().Seconds();
  EXPECT_GT(forward().launch, 1) << "the GPU waits for the CPU";
  speed.framework.hop_seconds = 2;
  EXPECT_GT(forward().tensor, 4);
  EXPECT_NEAR(forward().Seconds(), launched, 1e-9) << "of two waits, the longer counts";
  speed.framework.hop_seconds = 100;
  EXPECT_EQ(forward().launch, 0);
}

TEST(BlockTimeTest, FullRecomputationRunsForwardAgain) {
  JobSpec full = Plain();
  full.training.recompute.mode = "full";
  full.parallelism.tensor_parallel_size = 4;
  const BlockTime time = Layer(full);
  EXPECT_DOUBLE_EQ(time.again.Seconds(), time.forward.Seconds());
}

TEST(BlockTimeTest, SelectiveRecomputationRunsTheKernelAgain) {
  JobSpec selective = Plain();
  selective.training.recompute.mode = "selective";
  const BlockTime time = Layer(selective);
  EXPECT_DOUBLE_EQ(time.again.attention, time.forward.attention);
  EXPECT_EQ(time.again.matrix, 0);
}

TEST(BlockTimeTest, RecomputationPerOpKeepsEveryOtherProduct) {
  JobSpec per_op = With(Plain(), "fsdp2");
  per_op.training.recompute.mode = "per-op";
  const BlockTime time = Layer(per_op);
  EXPECT_EQ(time.again.attention, 0) << "its output is kept";
  EXPECT_GT(time.again.matrix, 0.2 * time.forward.matrix);
  EXPECT_LT(time.again.matrix, 0.8 * time.forward.matrix);
}

TEST(BlockTimeTest, SmallBlocksWaitForTheirLaunches) {
  JobSpec tiny = With(SmallJob(), "megatron-core");
  const PassTime forward = Layer(tiny).forward;
  EXPECT_GT(forward.launch + forward.memory + forward.matrix, 5e-6) << "a microsecond a kernel";
  EXPECT_EQ(Layer(Plain()).forward.launch, 0);
}

TEST(BlockTimeTest, TheHeadIsAProductAndALoss) {
  const BlockTime head = TimeOf(CostOfJob(Plain()), BlockKind::kHead);
  EXPECT_NEAR(head.forward.matrix, (2 * 2048.0 * 2560 * 32000 + kHalfFlops) / kMatrixFlops, 1e-9);
  EXPECT_GT(head.forward.memory, 2048.0 * 32000 * 4 / 1e12) << "fp32 logits are written";
}

// Slices of the loss are the same work in more products.
TEST(BlockTimeTest, ChunksOfTheLossAreNoLessWork) {
  JobSpec plain = With(Plain(), "fsdp2");
  JobSpec chunked = plain;
  chunked.training.loss.implementation = "chunked";
  chunked.training.loss.chunk_count = 4;
  const double one = TimeOf(CostOfJob(plain), BlockKind::kHead).forward.matrix;
  const double four = TimeOf(CostOfJob(chunked), BlockKind::kHead).forward.matrix;
  EXPECT_NEAR(four, one, 0.01 * one);
}

RankGroup Ranks(int64_t size, int64_t stride) {
  RankGroup group;
  group.Add(size, stride);
  return group;
}

TEST(RatesTest, ACollectiveAcrossNodesIsAsFastAsTheNicsOfItsMembers) {
  const ValidJob job = Valid([] {
    JobSpec spec = Plain();
    spec.cluster.gpu_count = 64;
    spec.training.global_batch_size = 64;
    return spec;
  }());
  const Rates rates = RatesOf(*job, SpeedOf(SmallCatalog().speed, *job));
  EXPECT_DOUBLE_EQ(rates.Bandwidth(*job, Ranks(8, 1)), 150e9) << "one node";
  EXPECT_DOUBLE_EQ(rates.Bandwidth(*job, Ranks(16, 1)), 8 * 12.5e9) << "two nodes, eight NICs each";
  EXPECT_DOUBLE_EQ(rates.Bandwidth(*job, Ranks(8, 8)), 12.5e9) << "one rank a node";
  EXPECT_DOUBLE_EQ(rates.Bandwidth(*job, Ranks(16, 4)), 2 * 12.5e9);
  EXPECT_EQ(rates.Start(*job, Ranks(8, 1)), 0) << "one node";
  EXPECT_DOUBLE_EQ(rates.Start(*job, Ranks(16, 1)), 15 * 2e-5) << "a ring across nodes";
  EXPECT_DOUBLE_EQ(rates.Start(*job, Ranks(8, 8)), 7 * 2e-5);
}

// What utilization is a share of: the rate of what the layers' products read.
TEST(RatesTest, ThePeakIsOfTheLayersProducts) {
  Catalog catalog = SmallCatalog();
  catalog.gpus.at("b200-180gb").teraflops = {{"bf16", 200}, {"fp8", 400}, {"fp4", 900}};
  const auto peak = [&catalog](const char* preset) {
    JobSpec spec = With(SmallJob(), "megatron-core", preset);
    spec.cluster.gpu = "b200-180gb";
    const auto job = std::get<ValidJob>(Validate(spec, catalog));
    return RatesOf(*job, SpeedOf(catalog.speed, *job)).peak_flops;
  };
  EXPECT_EQ(peak("bf16-mixed"), 200e12);
  EXPECT_EQ(peak("fp8-mixed"), 400e12);
  EXPECT_EQ(peak("fp4-mixed"), 900e12);
}

// What a data sheet lacks runs as the next wider format that it has; bf16 that the GPU lacks is not
// fp16.
TEST(RatesTest, NarrowProductsRunInTheNextWiderFormat) {
  Catalog catalog = SmallCatalog();
  Gpu& gpu = catalog.gpus.at("b200-180gb");
  const auto rate = [&catalog](const char* preset) {
    JobSpec spec = With(SmallJob(), "megatron-core", preset);
    spec.cluster.gpu = "b200-180gb";
    const auto job = std::get<ValidJob>(Validate(spec, catalog));
    return RatesOf(*job, SpeedOf(catalog.speed, *job)).narrow_flops / 0.5;
  };
  gpu.teraflops = {{"fp32", 20}, {"bf16", 200}, {"fp16", 300}};
  EXPECT_EQ(rate("fp8-mixed"), 200e12);
  EXPECT_EQ(rate("fp4-mixed"), 200e12);
  gpu.teraflops["fp8"] = 400;
  EXPECT_EQ(rate("fp4-mixed"), 400e12);
  gpu.teraflops = {{"fp32", 20}, {"fp16", 300}};
  EXPECT_EQ(rate("fp4-mixed"), 20e12);
}

// A block's scales are counted as they are: 0.5625 bytes an element of fp4, 1.03125 of fp8.
TEST(BlockTimeTest, ScalesOfBlocksAreSharedByTheirElements) {
  const auto moves = [](const char* gpu, const char* preset, const char* recipe) {
    JobSpec job = With(TightJob(), "megatron-core", preset);
    job.cluster.gpu = gpu;
    job.training.attention = "cudnn";
    if (*recipe != 0) job.training.precision.fp8_recipe = recipe;
    return Layer(job).forward.memory;
  };
  const double tensors = moves("h100-80gb-sxm", "fp8-mixed", "tensorwise");
  const double blocks = moves("h100-80gb-sxm", "fp8-mixed", "blockwise");
  const double four_bits = moves("b200-180gb", "fp4-mixed", "");
  EXPECT_GT(blocks, tensors);
  EXPECT_NEAR((blocks - tensors) / (tensors - four_bits), 0.03125 / (1 - 0.5625), 1e-9);
}

// Links of an NVLink domain join the GPUs of several nodes.
TEST(RatesTest, ACollectiveInsideOfADomainRunsOverItsLinks) {
  Catalog catalog = SmallCatalog();
  catalog.gpus.at("h100-80gb-sxm").link_domain_size = 72;
  JobSpec spec = Plain();
  spec.cluster.gpu = "h100-80gb-sxm";
  spec.cluster.gpu_count = 128;
  spec.training.global_batch_size = 128;
  const auto job = std::get<ValidJob>(Validate(spec, catalog));
  const Rates rates = RatesOf(*job, SpeedOf(catalog.speed, *job));
  EXPECT_EQ(job->gpus_per_node, 8);
  EXPECT_EQ(rates.Bandwidth(*job, Ranks(64, 1)), rates.link_bytes);
  EXPECT_EQ(rates.Start(*job, Ranks(64, 1)), 0);
  EXPECT_DOUBLE_EQ(rates.Bandwidth(*job, Ranks(2, 64)), rates.network_bytes)
      << "one rank of each domain";
}

}  // namespace
}  // namespace plimsoll
