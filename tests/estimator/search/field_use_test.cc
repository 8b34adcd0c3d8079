#include <set>

#include "estimator/search/fields.h"
#include "estimator/search/knobs.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace plimsoll {
namespace {

TEST(FieldUseTest, KnobsAreChosen) {
  std::set<absl::string_view> chosen;
  for (const FieldRow& row : kFieldRows) {
    if (row.use == FieldUse::kChosen) chosen.insert(row.path);
  }
  std::set<absl::string_view> knobs;
  for (const Knob& knob : kKnobs) knobs.insert(knob.field);
  EXPECT_EQ(chosen, knobs);
}

TEST(FieldUseTest, SectionsAreWhatTheyHold) {
  for (const char* path : {"*", "parallelism", "training", "cluster", "training.recompute"}) {
    EXPECT_EQ(UseOf(path), FieldUse::kChosen) << path;
  }
  for (const char* path :
       {"model", "model.transformer", "training.precision", "runtime", "runtime.allocator",
        "runtime.versions.torch", "model.hf_config.text_config.hidden_size"}) {
    EXPECT_EQ(UseOf(path), FieldUse::kKept) << path;
  }
  for (const char* path : {"training.adapter", "training.optimizer", "training.adapter.method"}) {
    EXPECT_EQ(UseOf(path), FieldUse::kOffered) << path;
  }
  EXPECT_EQ(UseOf("training.recompute.mode"), FieldUse::kPart);
  EXPECT_EQ(UseOf("parallelism.pipeline_layout"), FieldUse::kFollows);
}

TEST(FieldUseTest, SayWhyASearchMayNotChangeThem) {
  EXPECT_EQ(NotAllowed("parallelism.zero_stage"), "");
  EXPECT_EQ(NotAllowed("*"), "");
  EXPECT_EQ(NotAllowed("training.adapter"), "");
  EXPECT_EQ(NotAllowed("training.recompute.mode"), "changes with the whole of training.recompute");
  EXPECT_EQ(NotAllowed("parallelism.pipeline_layout"), "follows from other fields, allow these");
  EXPECT_EQ(NotAllowed("model.name"), "is never changed by a search");
  EXPECT_NE(NotAllowed("parallelism.zero"), "");
}

TEST(FieldUseTest, AnotherTrainingIsNamed) {
  EXPECT_TRUE(IsNamed({"training.adapter"}, "training.adapter.method"));
  EXPECT_TRUE(IsNamed({"a", "training.adapter.method"}, "training.adapter.method"));
  EXPECT_FALSE(IsNamed({"*", "training"}, "training.adapter.method"));
  EXPECT_FALSE(IsNamed({}, "training.adapter.method"));
}

TEST(FieldUseTest, OthersAreNone) {
  for (const char* path : {"", ".", "job", "job.model", "model.", "model.nam", "model.name.x",
                           "parallelism.zero", "training.recompute.mode.x", "runtime.compiled",
                           "runtime.version.torch", "parallelism.", "**"}) {
    EXPECT_FALSE(UseOf(path).has_value()) << path;
  }
}

}  // namespace
}  // namespace plimsoll
