// Profiles are facts with a source, and versions find their era.
#include "estimator/catalog/profile.h"

#include <set>

#include "estimator/job/vocabularies.h"
#include "gtest/gtest.h"

namespace plimsoll {
namespace {

TEST(ProfileTest, EachSaysWhatItIsAndFromWhere) {
  for (const Profile& profile : Profiles()) {
    EXPECT_FALSE(profile.name.empty());
    EXPECT_FALSE(profile.package.empty()) << profile.name;
    EXPECT_FALSE(profile.era.empty()) << profile.name;
    EXPECT_NE(profile.source.find('.'), absl::string_view::npos) << profile.name;
    EXPECT_GE(profile.vocab_size_divisor, 1) << profile.name;
    EXPECT_GE(profile.since, 0) << profile.name;
  }
}

// The name that users write finds the profile of that name.
TEST(ProfileTest, EveryFrameworkHasOne) {
  for (const auto& word : kFrameworks) {
    const Profile* profile = FindProfile(word.value, -1);
    ASSERT_NE(profile, nullptr) << word.name;
    EXPECT_EQ(profile->name, word.name);
    EXPECT_EQ(profile->framework, word.value);
  }
}

// Eras of one framework stand newest first, and none hides another.
TEST(ProfileTest, ErasAreOrdered) {
  std::set<std::pair<Framework, int>> seen;
  for (const Profile& profile : Profiles()) {
    EXPECT_TRUE(seen.insert({profile.framework, profile.since}).second) << profile.era;
    EXPECT_EQ(FindProfile(profile.framework, profile.since), &profile) << profile.era;
    const Profile* newest = FindProfile(profile.framework, -1);
    EXPECT_GE(newest->since, profile.since) << profile.era;
    EXPECT_EQ(FindProfile(profile.framework, 999999), newest) << profile.era;
  }
}

// A trainer's era is found by its release or by the month of its code, and none
// hides another.
TEST(TrainerTest, ErasAreFoundByReleaseAndByMonth) {
  const Profile& fsdp2 = *FindProfile(Framework::kFsdp2, -1);
  for (const TrainerEra& era : TrainerEras()) {
    const bool runs = (era.frameworks >> static_cast<unsigned>(Framework::kFsdp2) & 1) != 0;
    const Profile* const found = FindTrainerProfile(fsdp2, era.trainer, era.since_month);
    ASSERT_EQ(found != nullptr, runs) << era.name;
    if (!runs) continue;
    EXPECT_EQ(found->trainer_era, era.era);
    EXPECT_EQ(found->trainer_name, era.name);
    EXPECT_EQ(found->framework, Framework::kFsdp2);
    EXPECT_NE(era.source.find('.'), absl::string_view::npos);
    if (era.since == kNoRelease) continue;
    EXPECT_EQ(FindTrainerProfile(fsdp2, era.trainer, era.since), found) << era.era;
  }
  EXPECT_EQ(FindTrainerProfile(fsdp2, Trainer::kTorchtitan, 2023012), nullptr);
  EXPECT_EQ(FindTrainerProfile(fsdp2, Trainer::kTorchtitan, -1)->trainer_era,
            "July 2026 and later");
}

// torchtitan told NCCL to record no stream a year before PyTorch's default was so.
TEST(TrainerTest, StreamsAreRecordedUntilTorchtitanEndsThat) {
  const Profile& old = *FindProfile(Framework::kFsdp2, 2004);
  EXPECT_TRUE(old.records_streams);
  EXPECT_FALSE(FindProfile(Framework::kFsdp2, 2008)->records_streams);
  EXPECT_TRUE(FindTrainerProfile(old, Trainer::kTorchtitan, 2024003)->records_streams);
  for (const int month : {2024004, 2024006, 2025004, 2025008}) {
    EXPECT_FALSE(FindTrainerProfile(old, Trainer::kTorchtitan, month)->records_streams) << month;
  }
}

// The optimizer is fused by default since late in February 2025; litgpt's never is.
TEST(TrainerTest, OptimizersAreFusedByEra) {
  const Profile& fsdp2 = *FindProfile(Framework::kFsdp2, -1);
  EXPECT_FALSE(FindTrainerProfile(fsdp2, Trainer::kTorchtitan, 2025002)->fused_optimizer);
  EXPECT_TRUE(FindTrainerProfile(fsdp2, Trainer::kTorchtitan, 2025003)->fused_optimizer);
  const Profile& fsdp1 = *FindProfile(Framework::kFsdp1, -1);
  EXPECT_FALSE(FindTrainerProfile(fsdp1, Trainer::kLitgpt, -1)->fused_optimizer);
}

// In 2026 the kernel shares keys and values, and then one product makes all three.
TEST(TrainerTest, AttentionChangesIn2026) {
  const Profile& fsdp2 = *FindProfile(Framework::kFsdp2, -1);
  const auto expands = [&](int month) {
    return FindTrainerProfile(fsdp2, Trainer::kTorchtitan, month)->expands_kv;
  };
  EXPECT_TRUE(expands(2026001));
  EXPECT_FALSE(expands(2026002));
  EXPECT_FALSE(FindTrainerProfile(fsdp2, Trainer::kTorchtitan, 2026006)->joint_qkv);
  EXPECT_TRUE(FindTrainerProfile(fsdp2, Trainer::kTorchtitan, 2026007)->joint_qkv);
}

TEST(TrainerTest, EveryNameIsATrainer) {
  for (const auto& word : kTrainers) {
    const Profile* const profile =
        FindTrainerProfile(*FindProfile(Framework::kDdp, -1), word.value, -1);
    ASSERT_NE(profile, nullptr) << word.name;
    EXPECT_EQ(profile->trainer_name, word.name);
  }
}

TEST(TrainerTest, RunsOnWhatItRunsOn) {
  const auto runs = [](Trainer trainer, Framework framework) {
    return FindTrainerProfile(*FindProfile(framework, -1), trainer, -1) != nullptr;
  };
  EXPECT_TRUE(runs(Trainer::kHfTrainer, Framework::kDeepSpeed));
  EXPECT_FALSE(runs(Trainer::kTorchtitan, Framework::kDeepSpeed));
  EXPECT_FALSE(runs(Trainer::kLitgpt, Framework::kFsdp2));
  EXPECT_FALSE(runs(Trainer::kTorchtune, Framework::kNanotron));
}

// torchtitan's capabilities came by month, of which its few releases are some.
TEST(ProfileTest, AReleaseIsTheMonthOfItsEra) {
  EXPECT_EQ(MonthOrRelease(Trainer::kTorchtitan, 3), 2026007);
  EXPECT_EQ(MonthOrRelease(Trainer::kTorchtitan, 2), 2025008);
  EXPECT_EQ(MonthOrRelease(Trainer::kTorchtitan, 2025003), 2025003);
  EXPECT_EQ(MonthOrRelease(Trainer::kTorchtitan, -1), -1);
  EXPECT_EQ(MonthOrRelease(Trainer::kTorchtune, -1), 6) << "0.7 is no release";
  EXPECT_EQ(MonthOrRelease(Trainer::kHfTrainer, 5012), 5012) << "all of its eras have one";
}

// Source: torchtune 0.4 and 0.5, modules/rms_norm.py.
TEST(ProfileTest, TorchtunesNormsAreWideFrom05On) {
  const Profile& below = *FindProfile(Framework::kFsdp2, -1);
  EXPECT_FALSE(FindTrainerProfile(below, Trainer::kTorchtune, 4)->wide_norms);
  EXPECT_TRUE(FindTrainerProfile(below, Trainer::kTorchtune, 5)->wide_norms);
  EXPECT_TRUE(FindTrainerProfile(below, Trainer::kTorchtune, -1)->wide_norms);
}

// NeMo Automodel from 0.7 on; what was before is not modelled.
TEST(ProfileTest, AutomodelRunsOnOneGpuAndUnderFsdp2) {
  const Profile& fsdp2 = *FindProfile(Framework::kFsdp2, -1);
  const Profile* const newest = FindTrainerProfile(fsdp2, Trainer::kNemoAutomodel, -1);
  ASSERT_NE(newest, nullptr);
  EXPECT_TRUE(newest->last_block_gathered);
  EXPECT_TRUE(newest->reduces_units_in_fp32);
  EXPECT_FALSE(newest->root_group) << "but beside adapters";
  EXPECT_TRUE(newest->frozen_root);
  EXPECT_EQ(FindTrainerProfile(fsdp2, Trainer::kNemoAutomodel, 6), nullptr);
  const Profile& fsdp1 = *FindProfile(Framework::kFsdp1, -1);
  EXPECT_EQ(FindTrainerProfile(fsdp1, Trainer::kNemoAutomodel, -1), nullptr);
}

TEST(ProfileTest, OlderThanAllIsNone) {
  EXPECT_EQ(FindProfile(Framework::kDdp, 1013), nullptr);
  EXPECT_EQ(FindProfile(Framework::kFsdp2, 2003), nullptr);
  EXPECT_NE(FindProfile(Framework::kFsdp2, 2004), nullptr);
}

}  // namespace
}  // namespace plimsoll
