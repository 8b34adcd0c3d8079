// What stands beside experts and nothing was held against.
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/refusals.h"

namespace plimsoll {
namespace {

JobSpec Job() {
  JobSpec job = With(SmallJob(), "ddp", "bf16-pure");
  Shape(job).expert_count = 8;
  Shape(job).active_expert_count = 2;
  return job;
}

std::string NotModelled(absl::string_view field) {
  return absl::StrCat("job.", field, "; is not modelled with experts");
}

TEST(ValidateExpertsTest, RefusesWhatIsNotModelledBesideThem) {
  ExpectRefusals(
      Job(),
      {
          {"as it is", [](JobSpec&) {}, {}},
          {"adapters of attention", [](JobSpec& j) { j.training.adapter.method = "lora"; }, {}},
          {"quantized weights",
           [](JobSpec& j) {
             j.training.adapter.method = "qlora";
             j.training.quantization.format = "nf4";
           },
           {}},
          {"an optimizer that sees matrices",
           [](JobSpec& j) { j.training.optimizer.name = "muon"; },
           {NotModelled("training.optimizer.name: muon")}},
          {"matrices of Megatron's experts",
           [](JobSpec& j) {
             j.runtime.framework = "megatron-core";
             j.training.optimizer.name = "muon";
           },
           {}},
          {"8-bit products",
           [](JobSpec& j) { j.training.precision.preset = "fp8-lm"; },
           {NotModelled("training.precision.preset: fp8-lm")}},
          {"compiled layers",
           [](JobSpec& j) { j.runtime.compile = true; },
           {NotModelled("runtime.compile: true")}},
          {"an old GPU",
           [](JobSpec& j) { j.cluster.gpu = "v100-32gb-sxm"; },
           {NotModelled("cluster.gpu: a GPU older than Ampere")}},
          {"an old PyTorch",
           [](JobSpec& j) { j.runtime.versions["torch"] = "2.8"; },
           {NotModelled("runtime.versions: torch before 2.9")}},
      });
}

// PEFT adds experts' adapters to their weights.
TEST(ValidateExpertsTest, AdaptersOfExperts) {
  JobSpec job = Job();
  job.training.adapter.method = "lora";
  ExpectRefusals(
      job,
      {
          {"of the second product",
           [](JobSpec& j) {
             j.training.adapter.target_modules = {"q_proj", "down_proj"};
           },
           {}},
          {"of both that are one",
           [](JobSpec& j) {
             j.training.adapter.target_modules = {"gate_proj", "up_proj"};
           },
           {}},
          {"of all", [](JobSpec& j) { j.training.adapter.target_modules = {"all-linear"}; }, {}},
          {"of one of two that are one",
           [](JobSpec& j) {
             j.training.adapter.target_modules = {"gate_proj", "down_proj"};
           },
           {"job.training.adapter.target_modules: gate_proj, down_proj; must have both of "
            "gate_proj and up_proj, or none: experts have one matrix of both"}},
          {"dropout",
           [](JobSpec& j) {
             j.training.adapter.target_modules = {"mlp"};
             j.training.adapter.dropout = 0.1;
           },
           {"job.training.adapter.dropout: 0.1; must be 0 beside experts, to whose weights PEFT "
            "adds adapters"}},
          {"dropout beside attention alone",
           [](JobSpec& j) { j.training.adapter.dropout = 0.1; },
           {}},
          {"FSDP",
           [](JobSpec& j) {
             j.runtime.framework = "fsdp2";
             j.training.adapter.target_modules = {"mlp"};
             j.training.adapter.adapter_dtype = "bf16";
           },
           {NotModelled("training.adapter.target_modules: mlp under fsdp2")}},
          {"experts without gates",
           [](JobSpec& j) {
             Shape(j).gated_mlp = false;
             j.training.adapter.target_modules = {"up_proj"};
           },
           {NotModelled("training.adapter.target_modules: up_proj without gates")}},
          {"DoRA",
           [](JobSpec& j) {
             j.training.adapter.method = "dora";
             j.training.adapter.target_modules = {"mlp"};
           },
           {"job.training.adapter.method: dora; must be lora beside experts, to whose weights PEFT "
            "adds adapters"}},
      });
}

// gpt-oss's, as transformers' classes have them: names of an MLP's products reach no expert.
TEST(ValidateExpertsTest, ExpertsWithBiasesAreTransformers) {
  const JobSpec oss = WithModel(Job(), [](Transformer& model) {
    model.experts.biases = model.experts.clamps = true;
    model.experts.words = ExpertWords::kNone;
  });
  ExpectRefusals(
      oss, {
               {"all linear modules",
                [](JobSpec& j) {
                  j.training.adapter.method = "lora";
                  j.training.adapter.target_modules = {"all-linear"};
                },
                {}},
               {"none of the model's",
                [](JobSpec& j) {
                  j.training.adapter.method = "lora";
                  j.training.adapter.target_modules = {"down_proj"};
                },
                {"job.training.adapter.target_modules: down_proj; has no module of this model"}},
               {"Megatron-Core's own",
                [](JobSpec& j) { j = With(j, "megatron-core", "bf16-mixed"); },
                {NotModelled("model: biases of experts")}},
           });
}

// What is summed up in Python needs scores that are tensors.
TEST(ValidateExpertsTest, SinksNeedEagerAttention) {
  JobSpec job = With(SmallJob(), "ddp", "bf16-pure");
  job.training.attention = "eager";
  job = WithModel(job, [](Transformer& model) { model.attention_sinks = true; });
  ExpectRefusals(
      job, {
               {"as it is", [](JobSpec&) {}, {}},
               {"another kernel",
                [](JobSpec& j) { j.training.attention = "flash"; },
                {"job.training.attention: flash; is not modelled with attention sinks: eager is"}},
               {"another's attention",
                [](JobSpec& j) { j = With(j, "megatron-core", "bf16-mixed"); },
                {"job.model: attention sinks; is modelled as transformers' classes have it"}},
           });
}

TEST(ValidateExpertsTest, RefusesOtherSplitsUnderFsdp) {
  JobSpec job = Job();
  job.runtime.framework = "fsdp2";
  ExpectRefusals(job,
                 {
                     {"split matrices and layers",
                      [](JobSpec& j) {
                        j.parallelism.tensor_parallel_size = 2;
                        j.parallelism.pipeline_parallel_size = 2;
                      },
                      {NotModelled("parallelism.tensor_parallel_size: 2"),
                       NotModelled("parallelism.pipeline_parallel_size: 2")}},
                     {"split sequences",
                      [](JobSpec& j) {
                        j.parallelism.context_parallel_method = "ulysses";
                        j.parallelism.context_parallel_size = 2;
                      },
                      {NotModelled("parallelism.context_parallel_size: 2")}},
                     {"parts run again",
                      [](JobSpec& j) { j.training.recompute.mode = "per-op"; },
                      {NotModelled("training.recompute.mode: per-op")}},
                     {"a trainer's own experts of before",
                      [](JobSpec& j) {
                        j.runtime.trainer = "torchtitan";
                        j.runtime.versions["torchtitan"] = "2026.06";
                      },
                      {"job.model: 8 experts; is not modelled with torchtitan: its experts were "
                       "others"}},
                 });
}

TEST(ValidateExpertsTest, RefusesShapesThatNoClassHas) {
  ExpectRefusals(Job(), {
                            {"norms behind",
                             [](JobSpec& j) { Shape(j).norm_placement = "sandwich"; },
                             {NotModelled("model: sandwich")}},
                            {"biases",
                             [](JobSpec& j) { Shape(j).mlp_bias = true; },
                             {NotModelled("model: biases of MLPs")}},
                            {"an activation in Python",
                             [](JobSpec& j) { Shape(j).activation = "gelu-new"; },
                             {NotModelled("model: gelu-new")}},
                            {"scores",
                             [](JobSpec& j) { Shape(j).head = "sequence-classification"; },
                             {NotModelled("model: sequence-classification")}},
                        });
}

// Megatron-Core sends tokens to experts on other ranks.
JobSpec Dispatched() {
  JobSpec job = Job();
  job.runtime.framework = "megatron-core";
  job.training.precision.preset = "bf16-mixed";
  job.parallelism.data_parallel_size = 4;
  job.parallelism.expert_parallel_size = 4;
  job.cluster.gpu_count.reset();
  return job;
}

TEST(ValidateExpertsTest, RanksThatSplitExpertsDivideThem) {
  ExpectRefusals(
      Dispatched(),
      {
          {"as it is", [](JobSpec&) {}, {}},
          {"experts",
           [](JobSpec& j) { Shape(j).expert_count = 6; },
           {"job.parallelism.expert_parallel_size: 4; must divide the experts, 6"}},
          {"ranks",
           [](JobSpec& j) { j.parallelism.data_parallel_size = 6; },
           {"job.parallelism.expert_parallel_size: 4; times expert_tensor_parallel_size 1 must "
            "divide the ranks of a pipeline stage, 6"}},
          {"an expert's matrices",
           [](JobSpec& j) {
             Shape(j).expert_ffn_size = 97;
             j.parallelism.expert_parallel_size = 2;
             j.parallelism.expert_tensor_parallel_size = 2;
           },
           {"job.parallelism.expert_tensor_parallel_size: 2; must divide the width of an expert, "
            "97"}},
          {"copies of the sharded states",
           [](JobSpec& j) {
             j.parallelism.zero_stage = 1;
             j.parallelism.shard_group_size = 2;
           },
           {"job.parallelism.shard_group_size: 2; its groups, 2, must divide the ranks that have "
            "the same experts, 1"}},
          {"no experts",
           [](JobSpec& j) {
             Shape(j).expert_count.reset();
             Shape(j).active_expert_count.reset();
           },
           {"job.parallelism.expert_parallel_size: 4; needs a model with experts"}},
      });
}

TEST(ValidateExpertsTest, RefusesWhatNoDispatcherWasHeldAgainst) {
  ExpectRefusals(
      Dispatched(),
      {
          {"another activation",
           [](JobSpec& j) { Shape(j).activation = "gelu"; },
           {NotModelled("model: gated gelu")}},
          {"layers without them", [](JobSpec& j) { Shape(j).dense_layer_count = 1; }, {}},
          {"the same on a pipeline",
           [](JobSpec& j) {
             Shape(j).dense_layer_count = 1;
             j.parallelism.pipeline_parallel_size = 2;
           },
           {}},
          {"a core before 0.10",
           [](JobSpec& j) { j.runtime.versions["megatron-core"] = "0.9"; },
           {"job.parallelism.expert_parallel_size: 4; megatron-core has it from 0.10 on",
            "job.model: 8 experts; is not modelled with megatron-core: tokens were permuted "
            "otherwise"}},
          {"matrices without sequences",
           [](JobSpec& j) { j.parallelism.tensor_parallel_size = 2; },
           {"job.parallelism.sequence_parallel: false; must be true for experts with "
            "tensor_parallel_size above 1"}},
          {"a grouped product of its own layers",
           [](JobSpec& j) {
             j.runtime.grouped_gemm = true;
             j.runtime.transformer_implementation = "local";
           },
           {"job.runtime.grouped_gemm: true; needs transformer_implementation "
            "transformer-engine"}},
          {"a dispatcher that nobody has",
           [](JobSpec& j) { j.parallelism.token_dispatcher = "pigeon"; },
           {"job.parallelism.token_dispatcher: pigeon; must be one of all-gather, all-to-all"}},
      });
}

// Others keep each expert where its tokens are.
TEST(ValidateExpertsTest, OnlyMegatronDispatches) {
  JobSpec job = Job();
  ExpectRefusals(job, {
                          {"ranks that split experts",
                           [](JobSpec& j) { j.parallelism.expert_parallel_size = 2; },
                           {"job.parallelism.expert_parallel_size: 2; is not modelled with ddp: "
                            "megatron-core's is, and torchtitan's"}},
                          {"a dispatcher",
                           [](JobSpec& j) { j.parallelism.token_dispatcher = "all-to-all"; },
                           {"job.parallelism.token_dispatcher: all-to-all; ddp does not have it"}},
                          {"a router's dtype",
                           [](JobSpec& j) { j.training.precision.router_dtype = "fp32"; },
                           {"job.training.precision.router_dtype: fp32; moves no byte of ddp"}},
                      });
}

}  // namespace
}  // namespace plimsoll
