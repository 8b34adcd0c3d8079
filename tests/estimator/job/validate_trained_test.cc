// Every rule of what is trained, and what stands beside frozen parts.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/refusals.h"

namespace plimsoll {
namespace {

JobSpec Job() {
  JobSpec job = With(SmallJob(), "ddp", "bf16-pure");
  job.training.trained.modules = {"mlp"};
  return job;
}

TEST(ValidateTrainedTest, RefusesWhatIsNoPart) {
  ExpectRefusals(
      Job(),
      {
          {"as it is", [](JobSpec&) {}, {}},
          {"another part",
           [](JobSpec& j) {
             j.training.trained.modules = {"bias", "vision"};
           },
           {"job.training.trained.modules: vision; must be one of embedding, attention, mlp, norm, "
            "bias, head"}},
          {"more layers than there are",
           [](JobSpec& j) { j.training.trained.layer_count = 5; },
           {"job.training.trained.layer_count: 5; must be at most 4"}},
          {"fewer than none",
           [](JobSpec& j) { j.training.trained.layer_count = -1; },
           {"job.training.trained.layer_count: -1; must be from 0 to 4096"}},
          {"biases that are not there",
           [](JobSpec& j) { j.training.trained.modules = {"bias"}; },
           {"job.training.trained.modules: bias; trains no weight of this model"}},
          {"no layer's",
           [](JobSpec& j) { j.training.trained.layer_count = 0; },
           {"job.training.trained.modules: mlp; trains no weight of this model"}},
          {"some layers of what no layer has",
           [](JobSpec& j) {
             j.training.trained.modules = {"head"};
             j.training.trained.layer_count = 2;
           },
           {"job.training.trained.layer_count: 2; counts layers, of which nothing is trained"}},
          {"layers alone",
           [](JobSpec& j) {
             j.training.trained.modules.clear();
             j.training.trained.layer_count = 2;
           },
           {}},
      });
}

TEST(ValidateTrainedTest, RefusesWhatIsNotModelledBesideFrozenParts) {
  ExpectRefusals(
      Job(),
      {
          {"adapters",
           [](JobSpec& j) {
             j.training.adapter.method = "lora";
             j.training.adapter.rank = 8;
           },
           {"job.training.adapter.method: lora; is not modelled with frozen parts"}},
          {"steps in backward",
           [](JobSpec& j) {
             j.training.optimizer.in_backward = true;
             j.training.gradient_clipping = false;
           },
           {"job.training.optimizer.in_backward: true; is not modelled with frozen parts"}},
          {"flat tensors",
           [](JobSpec& j) {
             j.runtime.framework = "fsdp1";
             j.training.precision.preset = "bf16-mixed";
           },
           {"job.training.trained.modules: mlp; is not modelled with fsdp1: its flat tensors mix "
            "what "
            "is frozen and trained"}},
          {"who trains all",
           [](JobSpec& j) {
             j.runtime.framework = "nanotron";
             j.training.precision.preset.reset();
           },
           {"job.training.trained.modules: mlp; nanotron does not have it: it trains all weights"}},
      });
}

}  // namespace
}  // namespace plimsoll
