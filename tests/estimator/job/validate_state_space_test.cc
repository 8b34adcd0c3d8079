// State-space layers: what stands beside them that nothing was held against.
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/refusals.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

JobSpec Job(absl::string_view framework = "ddp", absl::string_view preset = "bf16-pure") {
  return WithModel(With(SmallJob(), framework, preset), [](Transformer& model) {
    model.state_space = {.head_count = 4, .head_size = 16, .state_size = 16};
  });
}

std::string NotModelled(absl::string_view field) {
  return absl::StrCat("job.", field, "; is not modelled with state-space layers");
}

TEST(ValidateStateSpaceTest, RefusesWhatIsNotModelledBesideThem) {
  ExpectRefusals(
      Job(),
      {
          {"compiled layers",
           [](JobSpec& j) { j.runtime.compile = true; },
           {NotModelled("runtime.compile: true")}},
          {"parts that are run again",
           [](JobSpec& j) { j.training.recompute.mode = "selective"; },
           {NotModelled("training.recompute.mode: selective")}},
          {"adapters",
           [](JobSpec& j) { j.training.adapter.method = "lora"; },
           {NotModelled("training.adapter.method: lora")}},
          {"layers run again by two",
           [](JobSpec& j) {
             j.training.recompute.mode = "full";
             j.training.recompute.unit_layer_count = 2;
           },
           {NotModelled("training.recompute.unit_layer_count: 2")}},
          {"optimizers that see matrices",
           [](JobSpec& j) { j.training.optimizer.name = "adafactor"; },
           {NotModelled("training.optimizer.name: adafactor")}},
          {"whole layers run again", [](JobSpec& j) { j.training.recompute.mode = "full"; }, {}},
      });
  ExpectNoPartsOfSequences(Job("fsdp2", "bf16-mixed"),
                           NotModelled("parallelism.context_parallel_size: 2"));
}

JobSpec Selective(absl::string_view framework, absl::string_view preset) {
  return WithModel(With(SmallJob(), framework, preset), [](Transformer& model) {
    model.state_space = {.head_count = 64, .head_size = 1, .state_size = 16, .step_rank = 4};
  });
}

// Chunks of Mamba 2 were held against 16 bits of one kind alone.
TEST(ValidateStateSpaceTest, MambaOneRunsInEither16Bits) {
  EXPECT_THAT(Refusals(Selective("deepspeed", "fp16-mixed")), IsEmpty());
  JobSpec chunked = Selective("deepspeed", "bf16-mixed");
  chunked = WithModel(chunked, [](Transformer& model) { model.state_space.step_rank = 0; });
  chunked.training.precision.preset = "fp16-mixed";
  EXPECT_THAT(Refusals(chunked), ElementsAre(NotModelled("training.precision.preset: fp16-mixed")));
}

TEST(ValidateStateSpaceTest, AChannelHasSoManyStates) {
  const auto of = [](int64_t states) {
    return Refusals(WithModel(Selective("ddp", "bf16-pure"), [states](Transformer& model) {
      model.state_space.state_size = states;
    }));
  };
  EXPECT_THAT(of(256), IsEmpty());
  EXPECT_THAT(of(257), ElementsAre("job.model: 257; states of a channel: mamba-ssm takes at most "
                                   "256"));
}

TEST(ValidateStateSpaceTest, FrameworksHaveThemOrHaveNot) {
  EXPECT_THAT(Refusals(Job("ddp")), IsEmpty());
  EXPECT_THAT(Refusals(Job("fsdp1", "bf16-mixed")), IsEmpty());
  EXPECT_THAT(Refusals(Job("megatron-core", "bf16-mixed")),
              ElementsAre("job.model: state-space layers; is not modelled with megatron-core: its "
                          "layers are its own"));
  EXPECT_THAT(Refusals(Job("nanotron", "bf16-mixed")),
              ElementsAre("job.model: state-space layers; nanotron does not have it: its layers "
                          "have attention"));
}

TEST(ValidateStateSpaceTest, Zero3GathersTooLittle) {
  JobSpec job = Job("deepspeed", "bf16-mixed");
  job.parallelism.zero_stage = 2;
  EXPECT_THAT(Refusals(job), IsEmpty());
  job.parallelism.zero_stage = 3;
  EXPECT_THAT(Refusals(job), ElementsAre(testing::StartsWith("job.parallelism.zero_stage: 3; does "
                                                             "not run state-space layers")));
}

TEST(ValidateStateSpaceTest, AConvolutionReadsFewTokens) {
  const auto of = [](int64_t tokens) {
    return Refusals(
        WithModel(Job(), [tokens](Transformer& model) { model.state_space.kernel_size = tokens; }));
  };
  EXPECT_THAT(of(2), IsEmpty());
  EXPECT_THAT(of(5), ElementsAre("job.model: 5; tokens that a convolution reads: causal-conv1d "
                                 "takes 2 to 4"));
}

TEST(ValidateStateSpaceTest, LayersOfSeveralKindsHaveAnEnd) {
  const auto of = [](int64_t count, const LayerSet& layers) {
    return Refusals(WithModel(Job(), [&](Transformer& model) {
      model.layer_count = count;
      model.state_space.layers = layers;
    }));
  };
  EXPECT_THAT(of(256, {.period = 7, .from = 2, .to = 4}), IsEmpty());
  EXPECT_THAT(of(300, {}), IsEmpty());
  EXPECT_THAT(of(300, {.period = 7, .from = 2, .to = 4}),
              ElementsAre("job.model: 300; layers of several kinds are modelled up to 256"));
}

TEST(ValidateStateSpaceTest, ReleasesBeforeTheFifthAreNotModelled) {
  JobSpec job = Job();
  job.runtime.versions["transformers"] = "4.57";
  EXPECT_THAT(Refusals(job), ElementsAre("job.runtime.versions.transformers: 4.57; state-space "
                                         "layers are modelled as transformers has them from 5.0 "
                                         "on"));
  job.runtime.versions["transformers"] = "5.0";
  EXPECT_THAT(Refusals(job), IsEmpty());
}

}  // namespace
}  // namespace plimsoll
