// Every rule of vectors that scale, and of virtual tokens.
#include "gtest/gtest.h"
#include "tests/testing/refusals.h"

namespace plimsoll {
namespace {

JobSpec Job(const char* method) {
  JobSpec job = With(SmallJob(), "ddp", "bf16-pure");
  job.training.adapter.method = method;
  if (method != std::string("ia3")) job.training.adapter.virtual_token_count = 8;
  return job;
}

TEST(ValidateAdapterMethodsTest, RefusesAnothersFields) {
  ExpectRefusals(
      Job("ia3"),
      {
          {"a rank",
           [](JobSpec& j) { j.training.adapter.rank = 8; },
           {"job.training.adapter.rank: set; is of lora, qlora and dora"}},
          {"dropout",
           [](JobSpec& j) { j.training.adapter.dropout = 0.1; },
           {"job.training.adapter.dropout: set; is of lora, qlora and dora"}},
          {"tokens",
           [](JobSpec& j) { j.training.adapter.virtual_token_count = 8; },
           {"job.training.adapter.virtual_token_count: set; is of prompt-tuning, p-tuning and "
            "prefix-tuning"}},
          {"modules beside it",
           [](JobSpec& j) { j.training.adapter.trained_modules = {"lm_head"}; },
           {"job.training.adapter.trained_modules: lm_head; is modelled beside lora, qlora and "
            "dora"}},
      });
  ExpectRefusals(
      Job("prompt-tuning"),
      {
          {"modules",
           [](JobSpec& j) { j.training.adapter.target_modules = {"q_proj"}; },
           {"job.training.adapter.target_modules: set; is of lora, qlora, dora and ia3"}},
          {"inputs",
           [](JobSpec& j) { j.training.adapter.feedforward_modules = {"down_proj"}; },
           {"job.training.adapter.feedforward_modules: set; is of ia3"}},
          {"an encoder",
           [](JobSpec& j) { j.training.adapter.encoder_hidden_size = 8; },
           {"job.training.adapter.encoder_hidden_size: set; is of p-tuning and prefix-tuning"}},
          {"a projection",
           [](JobSpec& j) { j.training.adapter.prefix_projection = true; },
           {"job.training.adapter.prefix_projection: set; is of prefix-tuning"}},
          {"no count",
           [](JobSpec& j) { j.training.adapter.virtual_token_count.reset(); },
           {"job.training.adapter.virtual_token_count: unset; must be set with virtual tokens"}},
      });
}

TEST(ValidateAdapterMethodsTest, RefusesWhatIsNotModelledBesideVectors) {
  ExpectRefusals(
      Job("ia3"),
      {
          {"inputs of what is no target",
           [](JobSpec& j) {
             j.training.adapter.target_modules = {"k_proj"};
             j.training.adapter.feedforward_modules = {"down_proj"};
           },
           {"job.training.adapter.feedforward_modules: down_proj; must be some of the target "
            "modules"}},
          {"pairs",
           [](JobSpec& j) { j.training.preference.method = "dpo"; },
           {"job.training.preference.method: dpo; is not modelled with ia3"}},
          {"4 bits without autocast",
           [](JobSpec& j) { j.training.quantization.format = "nf4"; },
           {"job.training.quantization.format: nf4; is modelled with ia3 under autocast, and "
            "vectors in what that casts to: else PEFT leaves in fp32 what was scaled"}},
          {"4 bits under autocast",
           [](JobSpec& j) {
             j.training.quantization.format = "nf4";
             j.training.precision.preset = "bf16-autocast";
             j.training.adapter.adapter_dtype = "bf16";
           },
           {}},
      });
}

TEST(ValidateAdapterMethodsTest, RefusesWhatIsNotModelledBesideVirtualTokens) {
  ExpectRefusals(
      Job("prompt-tuning"),
      {
          {"learned positions",
           [](JobSpec& j) {
             Shape(j).position_embedding = "learned";
             Shape(j).position_count = 64;
           },
           {"job.model: learned positions; is not modelled with virtual tokens"}},
          {"shards",
           [](JobSpec& j) {
             j.runtime.framework = "fsdp2";
             j.training.adapter.adapter_dtype = "bf16";
           },
           {"job.training.adapter.method: prompt-tuning; is not modelled with fsdp2: virtual "
            "tokens, which stand in front of what is sharded, are modelled with ddp"}},
          {"layers that run again", [](JobSpec& j) { j.training.recompute.mode = "full"; }, {}},
      });
  ExpectRefusals(
      Job("prefix-tuning"),
      {
          {"layers that run again",
           [](JobSpec& j) { j.training.recompute.mode = "full"; },
           {"job.training.recompute.mode: full; must be none with prefix-tuning: a layer that runs "
            "again has no cache"}},
          {"an encoder that nothing asks for",
           [](JobSpec& j) { j.training.adapter.encoder_hidden_size = 8; },
           {"job.training.adapter.encoder_hidden_size: 8; needs prefix_projection: true"}},
          {"eager attention",
           [](JobSpec& j) { j.training.attention = "eager"; },
           {"job.training.attention: eager; is not modelled with prefix-tuning"}},
      });
}

// PEFT's own targets of the class: keys of Llama's, queries of Qwen's.
TEST(ValidateAdapterMethodsTest, UsualTargets) {
  const AdapterTargets down = BitOf(AdapterTarget::kDown);
  const auto valid = Valid(Job("ia3"));
  EXPECT_EQ(valid->adapter->targets,
            BitOf(AdapterTarget::kQuery) | BitOf(AdapterTarget::kValue) | down);
  EXPECT_EQ(valid->adapter->scaled_inputs, down);
}

}  // namespace
}  // namespace plimsoll
