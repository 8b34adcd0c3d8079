// Every rule of optimizers that project gradients, and of those that send signs.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/refusals.h"

namespace plimsoll {
namespace {

JobSpec Projecting() {
  JobSpec job = With(SmallJob(), "ddp", "bf16-pure");
  job.training.optimizer.name = "galore-adamw";
  return job;
}

JobSpec Compressing() {
  JobSpec job = With(SmallJob(), "deepspeed", "bf16-mixed");
  job.runtime.versions["deepspeed"] = "0.18";
  job.parallelism.zero_stage = 0;
  job.training.optimizer.name = "onebit-adam";
  return job;
}

TEST(ValidateOptimizerTest, RefusesWhatIsNotProjected) {
  ExpectRefusals(
      Projecting(),
      {
          {"as it is", [](JobSpec&) {}, {}},
          {"of no rank",
           [](JobSpec& j) { j.training.optimizer.rank = 0; },
           {"job.training.optimizer.rank: 0; must be from 1 to 65536"}},
          {"embeddings",
           [](JobSpec& j) { j.training.optimizer.target_modules = {"embedding"}; },
           {"job.training.optimizer.target_modules: embedding; must be one of attention, mlp, "
            "head, all-linear"}},
          {"for Adam",
           [](JobSpec& j) {
             j.training.optimizer.name = "adamw";
             j.training.optimizer.rank = 8;
             j.training.optimizer.target_modules = {"mlp", "head"};
           },
           {"job.training.optimizer.rank: 8; needs training.optimizer.name galore-adamw or "
            "apollo-adamw",
            "job.training.optimizer.target_modules: mlp, head; needs training.optimizer.name "
            "galore-adamw or apollo-adamw"}},
          {"frozen parts",
           [](JobSpec& j) { j.training.trained.modules = {"mlp"}; },
           {"job.training.trained.modules: set; is not modelled with galore-adamw"}},
          {"adapters",
           [](JobSpec& j) {
             j.training.adapter.method = "lora";
             j.training.adapter.rank = 8;
           },
           {"job.training.adapter.method: set; is not modelled with galore-adamw"}},
          {"shares of matrices",
           [](JobSpec& j) {
             j.runtime.framework = "fsdp2";
             j.parallelism.zero_stage = 3;
           },
           {"job.training.optimizer.name: galore-adamw; is not modelled with fsdp2: it projects "
            "whole matrices, as ranks have them with ddp alone"}},
          {"all at once",
           [](JobSpec& j) { j.training.optimizer.implementation = "foreach"; },
           {"job.training.optimizer.implementation: foreach; is not how galore-adamw is "
            "implemented"}},
      });
}

TEST(ValidateOptimizerTest, RefusesWhereSignsAreNotSent) {
  ExpectRefusals(
      Compressing(),
      {
          {"as it is", [](JobSpec&) {}, {}},
          {"ZeRO",
           [](JobSpec& j) { j.parallelism.zero_stage = 1; },
           {"job.parallelism.zero_stage: 1; is not compatible with onebit-adam: DeepSpeed has it "
            "without ZeRO"}},
          {"fp32",
           [](JobSpec& j) { j.training.precision.preset = "fp32"; },
           {"job.training.precision.preset: fp32; is not modelled with onebit-adam"}},
          {"frozen parts",
           [](JobSpec& j) { j.training.trained.modules = {"mlp"}; },
           {"job.training.trained.modules: set; is not modelled with onebit-adam"}},
          {"a release without it",
           [](JobSpec& j) { j.runtime.versions.clear(); },
           {"job.training.optimizer.name: onebit-adam; deepspeed does not have it: 0.19.7 dropped "
            "it, "
            "and 0.18 has it, where runtime.versions says so"}},
          {"another framework",
           [](JobSpec& j) {
             j.runtime.framework = "ddp";
             j.runtime.versions.clear();
           },
           {"job.training.optimizer.name: onebit-adam; ddp does not have it"}},
      });
}

}  // namespace
}  // namespace plimsoll
