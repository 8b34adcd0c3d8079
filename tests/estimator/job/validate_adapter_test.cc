// Every rule of the adapter section, and what stands beside one.
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/refusals.h"

namespace plimsoll {
namespace {

JobSpec Job() {
  JobSpec job = With(SmallJob(), "ddp", "bf16-pure");
  job.training.adapter.method = "lora";
  return job;
}

std::string NotModelled(absl::string_view field) {
  return absl::StrCat("job.", field, "; is not modelled with adapters");
}

TEST(ValidateAdapterTest, RefusesWhatIsNoAdapter) {
  ExpectRefusals(
      Job(),
      {
          {"no method",
           [](JobSpec& j) {
             j.training.adapter.method.reset();
             j.training.adapter.rank = 8;
           },
           {"job.training.adapter.method: unset; must be set with other fields of adapter"}},
          {"another method",
           [](JobSpec& j) { j.training.adapter.method = "vera"; },
           {"job.training.adapter.method: vera; not modelled yet: of PEFT's methods LoRA, DoRA, "
            "IA3, prompts and prefixes are"}},
          {"rank zero",
           [](JobSpec& j) { j.training.adapter.rank = 0; },
           {"job.training.adapter.rank: 0; must be from 1 to 65536"}},
          {"dropout above 1",
           [](JobSpec& j) { j.training.adapter.dropout = 1.5; },
           {"job.training.adapter.dropout: 1.5; must be from 0 to 1"}},
          {"a dtype for products",
           [](JobSpec& j) { j.training.adapter.adapter_dtype = "fp8"; },
           {"job.training.adapter.adapter_dtype: fp8; must be one of fp32, fp16, bf16"}},
          {"a module that is none",
           [](JobSpec& j) {
             j.training.adapter.target_modules = {"q_proj", "router"};
           },
           {"job.training.adapter.target_modules: router; is not known"}},
          {"too many names",
           [](JobSpec& j) { j.training.adapter.target_modules.assign(65, "q_proj"); },
           {"job.training.adapter.target_modules: 65 names; must be at most 64"}},
          {"a gate where there is none",
           [](JobSpec& j) {
             Shape(j).gated_mlp = false;
             j.training.adapter.target_modules = {"gate_proj"};
           },
           {"job.training.adapter.target_modules: gate_proj; has no module of this model"}},
      });
}

TEST(ValidateAdapterTest, RefusesWhatIsNotModelledBesideOne) {
  ExpectRefusals(
      Job(),
      {
          {"a chunked loss",
           [](JobSpec& j) { j.training.loss.implementation = "chunked"; },
           {NotModelled("training.loss.implementation: chunked")}},
          {"parts recomputed",
           [](JobSpec& j) { j.training.recompute.mode = "selective"; },
           {NotModelled("training.recompute.mode: selective")}},
          {"units of layers",
           [](JobSpec& j) {
             j.training.recompute.mode = "full";
             j.training.recompute.unit_layer_count = 2;
           },
           {NotModelled("training.recompute.unit_layer_count: 2")}},
          {"compiled layers",
           [](JobSpec& j) { j.runtime.compile = true; },
           {NotModelled("runtime.compile: true")}},
          {"masters without FSDP",
           [](JobSpec& j) { j.training.precision.preset = "bf16-mixed"; },
           {"job.training.precision.master_dtype: fp32; is not modelled with "
            "adapters under ddp: presets "
            "bf16-pure and bf16-autocast are"}},
          {"frozen weights cast at each use",
           [](JobSpec& j) {
             j.training.precision.preset = "bf16-autocast";
             j.training.precision.parameter_dtype = "fp32";
           },
           {NotModelled("training.precision.parameter_dtype: fp32")}},
          {"adapters of two dtypes in an FSDP2 group",
           [](JobSpec& j) { j.runtime.framework = "fsdp2"; },
           {"job.training.adapter.adapter_dtype: fp32; is modelled with fsdp2 "
            "where it is bf16, as what is "
            "trained here"}},
          {"two kinds of 16 bits",
           [](JobSpec& j) { j.training.adapter.adapter_dtype = "fp16"; },
           {"job.training.adapter.adapter_dtype: fp16; is not modelled beside weights in bf16"}},
          {"a classifier of tokens",
           [](JobSpec& j) {
             Shape(j).head = "token-classification";
             Shape(j).label_count = 2;
           },
           {NotModelled("model: token-classification")}},
          {"a classifier of sequences",
           [](JobSpec& j) {
             Shape(j).head = "sequence-classification";
             Shape(j).label_count = 2;
           },
           {}},
      });
}

// Phi 3's class has one projection of queries, keys and values, torchtune has three.
TEST(ValidateAdapterTest, TorchtunePartsProjections) {
  JobSpec job = Job();
  job.cluster.gpu_count = 1;
  Transformer joint = *Valid(job)->model;
  joint.joint_qkv = joint.joint_gate = true;
  job.model.source = std::make_shared<const Transformer>(joint);
  job.training.adapter.target_modules = {"q_proj", "v_proj"};
  EXPECT_FALSE(Refusals(job).empty());
  job.runtime.trainer = "torchtune";
  EXPECT_FALSE(Valid(job)->model->joint_qkv);
  EXPECT_FALSE(Valid(job)->model->joint_gate);
}

// What was held against torchtune's own code, and litgpt's.
TEST(ValidateAdapterTest, TrainersWithAdaptersOfTheirOwn) {
  JobSpec job = Job();
  job.cluster.gpu_count = 1;
  job.runtime.trainer = "torchtune";
  EXPECT_THAT(Refusals(job), testing::IsEmpty());
  for (const char* loss : {"chunked-cross-entropy", "chunked"}) {
    job.training.loss.implementation = loss;
    job.runtime.versions["torchtune"] = loss == std::string("chunked") ? "0.7" : "0.6";
    EXPECT_THAT(Refusals(job), testing::IsEmpty()) << loss;
  }
  job.training.loss = {};
  job.runtime.versions.clear();
  Shape(job).qk_norm = "per-head";
  EXPECT_THAT(Refusals(job), testing::IsEmpty());
  Shape(job).qk_norm.reset();
  ExpectRefusals(
      job,
      {
          {"adapters of another dtype",
           [](JobSpec& j) { j.training.adapter.adapter_dtype = "fp32"; },
           {"job.training.adapter.adapter_dtype: fp32; must be bf16, as weights are"}},
          {"autocast",
           [](JobSpec& j) { j.training.precision.preset = "bf16-autocast"; },
           {"job.training.precision.preset: bf16-autocast; is not modelled with adapters of "
            "torchtune, which trains in one dtype: bf16-pure and fp32 are",
            "job.training.adapter.adapter_dtype: fp32; must be bf16, as weights are"}},
          {"another layer",
           [](JobSpec& j) { Shape(j).qk_norm = "full"; },
           {NotModelled("model: norms of queries and keys but of each head under torchtune")}},
          {"shards of another era",
           [](JobSpec& j) {
             j.runtime.framework = "fsdp2";
             j.runtime.versions["torch"] = "2.6";
           },
           {"job.runtime.versions: torch; is modelled with adapters of torchtune from 2.8 on"}},
      });
  job.runtime.trainer = "litgpt";
  EXPECT_THAT(Refusals(job), testing::IsEmpty());
  ExpectRefusals(job, {
                          {"several GPUs",
                           [](JobSpec& j) { j.cluster.gpu_count = 2; },
                           {NotModelled("parallelism.data_parallel_size: 2")}},
                          {"layers that are run again",
                           [](JobSpec& j) { j.training.recompute.mode = "full"; },
                           {NotModelled("training.recompute.mode: full")}},
                      });
}

TEST(ValidateAdapterTest, SplitMatricesSequencesAndStages) {
  JobSpec job = Job();
  job.runtime.framework = "fsdp2";
  job.training.adapter.adapter_dtype = "bf16";
  ExpectRefusals(job, {
                          {"matrices",
                           [](JobSpec& j) {
                             j.parallelism.tensor_parallel_size = 2;
                             j.cluster.gpu_count = 2;
                           },
                           {NotModelled("parallelism.tensor_parallel_size: 2")}},
                          {"sequences",
                           [](JobSpec& j) {
                             j.parallelism.context_parallel_size = 2;
                             j.parallelism.context_parallel_method = "ulysses";
                             j.cluster.gpu_count = 2;
                           },
                           {NotModelled("parallelism.context_parallel_size: 2")}},
                          {"stages",
                           [](JobSpec& j) {
                             j.parallelism.pipeline_parallel_size = 2;
                             j.cluster.gpu_count = 2;
                           },
                           {NotModelled("parallelism.pipeline_parallel_size: 2")}},
                      });
}

// Of DeepSpeed's stages those that were held against its own code.
TEST(ValidateAdapterTest, DeepSpeedWithItsStages) {
  JobSpec job = Job();
  job.runtime.framework = "deepspeed";
  job.training.precision.preset = "bf16-mixed";
  job.parallelism.zero_stage = 2;
  job.cluster.gpu_count = 8;
  ExpectRefusals(
      job, {
               {"none", [](JobSpec& j) { j.parallelism.zero_stage = 0; }, {}},
               {"one", [](JobSpec& j) { j.parallelism.zero_stage = 1; }, {}},
               {"all", [](JobSpec& j) { j.parallelism.zero_stage = 3; }, {}},
               {"adapters in 16 bits",
                [](JobSpec& j) { j.training.adapter.adapter_dtype = "bf16"; },
                {"job.training.adapter.adapter_dtype: bf16; is modelled with deepspeed where it "
                 "is fp32, as what is trained here"}},
           });
}

// PEFT's modules_to_save: on one GPU, with tables of their own.
TEST(ValidateAdapterTest, ModulesThatAreTrainedWhole) {
  JobSpec job = Job();
  job.cluster.gpu_count = 1;
  Shape(job).tied_embeddings = false;
  job.training.adapter.trained_modules = {"embed_tokens", "lm_head"};
  EXPECT_TRUE(Valid(job)->adapter->Trains(TrainedModule::kHead));
  const std::string field = "training.adapter.trained_modules: embed_tokens, lm_head";
  const auto beside = [&field](absl::string_view what) {
    return absl::StrCat("job.", field, "; is not modelled with ", what);
  };
  ExpectRefusals(job,
                 {
                     {"no such module",
                      [](JobSpec& j) { j.training.adapter.trained_modules = {"norm"}; },
                      {"job.training.adapter.trained_modules: norm; must be one of embed_tokens, "
                       "lm_head"}},
                     {"several GPUs",
                      [](JobSpec& j) { j.cluster.gpu_count = 2; },
                      {beside("more than one GPU")}},
                     {"one table",
                      [](JobSpec& j) { Shape(j).tied_embeddings = true; },
                      {beside("tied embeddings")}},
                     {"another optimizer",
                      [](JobSpec& j) { j.training.optimizer.name = "lion"; },
                      {beside("optimizers but adam and adamw")}},
                     {"quantized weights",
                      [](JobSpec& j) { j.training.quantization.format = "nf4"; },
                      {beside("quantized weights")}},
                 });
}

// A head that runs over slices may have an adapter.
TEST(ValidateAdapterTest, AnAdapterOfTheHead) {
  JobSpec job = Job();
  job.training.adapter.target_modules = {"q_proj", "lm_head"};
  EXPECT_THAT(Refusals(job), testing::ElementsAre(
                                 "job.training.adapter.target_modules: lm_head; is modelled where "
                                 "the head runs over slices of the tokens, as litgpt's does"));
  job.runtime.trainer = "litgpt";
  job.cluster.gpu_count = 1;
  EXPECT_THAT(Refusals(job), testing::IsEmpty());
}

// One projection of queries, keys and values has one adapter, or none.
TEST(ValidateAdapterTest, AJointProjectionIsOneModule) {
  JobSpec job = Job();
  Transformer model = *Valid(job)->model;
  model.joint_qkv = true;
  job.model.source = std::make_shared<const Transformer>(model);
  EXPECT_EQ(Valid(job)->adapter->targets, 0x07);
  job.training.adapter.target_modules = {"q_proj", "o_proj"};
  EXPECT_THAT(Refusals(job),
              testing::ElementsAre("job.training.adapter.target_modules: q_proj, o_proj; must have "
                                   "all of q_proj, k_proj and v_proj, or none: they are one "
                                   "projection here"));
  job.training.adapter.target_modules = {"attention"};
  EXPECT_THAT(Refusals(job), testing::IsEmpty());
}

// So has one of gate and up; a word for several is a module of classes that have it alone.
TEST(ValidateAdapterTest, AJointGateIsOneModule) {
  JobSpec job = Job();
  const auto refused = [&job](std::vector<std::string> names) {
    job.training.adapter.target_modules = std::move(names);
    return Refusals(job);
  };
  const std::string field = "job.training.adapter.target_modules: ";
  EXPECT_THAT(refused({"gate_proj"}), testing::IsEmpty());
  EXPECT_THAT(refused({"gate_up_proj"}),
              testing::ElementsAre(field + "gate_up_proj; is no module of this model"));
  EXPECT_THAT(refused({"qkv_proj"}),
              testing::ElementsAre(field + "qkv_proj; is no module of this model"));
  job = WithModel(Job(), [](Transformer& model) { model.joint_gate = true; });
  EXPECT_THAT(refused({"gate_up_proj"}), testing::IsEmpty());
  EXPECT_THAT(refused({"gate_proj"}),
              testing::ElementsAre(field + "gate_proj; must have all of gate_proj and up_proj, or "
                                           "none: they are one projection here"));
}

TEST(ValidateAdapterTest, AnUnknownFrameworkIsAllThatIsWrong) {
  JobSpec job = Job();
  job.runtime.framework = "hf-trainer";
  EXPECT_EQ(Refusals(job).size(), 1u);
}

// Frameworks that keep masters have them of adapters alone.
TEST(ValidateAdapterTest, DefaultsAreModelledUnderEachFramework) {
  for (const char* framework : {"ddp", "fsdp1", "fsdp2", "deepspeed"}) {
    JobSpec job = Job();
    job.runtime.framework = framework;
    job.training.precision = {};
    if (framework == absl::string_view("deepspeed")) job.parallelism.zero_stage = 2;
    EXPECT_THAT(Refusals(job), testing::IsEmpty()) << framework;
  }
}

TEST(ValidateAdapterTest, SaysWhatItTookForGranted) {
  const ValidJob job = Valid(Job());
  ASSERT_TRUE(job->adapter.has_value());
  EXPECT_EQ(job->adapter->rank, 8);
  EXPECT_EQ(job->adapter->targets, 0x05) << "queries and values";
  EXPECT_EQ(job->adapter->dtype, DType::kFp32);
  EXPECT_EQ(job->precision.state, DType::kFp32) << "as the adapters";
  int said = 0;
  for (const Assumption& assumption : job->assumptions) {
    said += absl::StartsWith(assumption.field, "training.adapter.") ? 1 : 0;
  }
  EXPECT_EQ(said, 3);
}

// The usual preset has masters of all weights: with adapters none do.
TEST(ValidateAdapterTest, WithoutAPresetWeightsAreIn16Bits) {
  JobSpec job = Job();
  job.training.precision.preset.reset();
  EXPECT_EQ(Valid(job)->precision.parameter, DType::kBf16);
  EXPECT_EQ(Valid(job)->precision.master, DType::kNone);
}

}  // namespace
}  // namespace plimsoll
