// Every rule of the allocator's settings, and what they become.
#include "gmock/gmock.h"
#include "tests/testing/refusals.h"

namespace plimsoll {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr int64_t kMib = int64_t{1} << 20;

AllocatorSettings SettingsOf(void (*edit)(AllocatorSpec&)) {
  JobSpec job = SmallJob();
  edit(job.runtime.allocator);
  return Valid(job)->allocator;
}

TEST(ValidateAllocatorTest, RefusesInTheseWords) {
  ExpectRefusals(
      SmallJob(),
      {
          {"all at once and well",
           [](JobSpec& j) {
             AllocatorSpec& to = j.runtime.allocator;
             to.expandable_segments = true;
             to.max_split_size_bytes = 21 * kMib;
             to.roundup_power2_division_count = {8};
             to.garbage_collection_threshold = 0.8;
             to.memory_fraction = 0.9;
           },
           {}},
          {"splits no smaller than a segment",
           [](JobSpec& j) { j.runtime.allocator.max_split_size_bytes = 20 * kMib; },
           {"job.runtime.allocator.max_split_size_bytes: 20971520; must be from 20971521 to "
            "1125899906842624"}},
          {"one byte more",
           [](JobSpec& j) { j.runtime.allocator.max_split_size_bytes = 20971521; },
           {}},
          {"a split beyond all memory",
           [](JobSpec& j) { j.runtime.allocator.max_split_size_bytes = int64_t{1} << 51; },
           {"job.runtime.allocator.max_split_size_bytes: 2251799813685248; must be from 20971521 "
            "to 1125899906842624"}},
          {"two divisions",
           [](JobSpec& j) {
             j.runtime.allocator.roundup_power2_division_count = {1, 2};
           },
           {"job.runtime.allocator.roundup_power2_division_count: 2 numbers; must be one number, "
            "or 16"}},
          {"no power of 2",
           [](JobSpec& j) { j.runtime.allocator.roundup_power2_division_count = {3}; },
           {"job.runtime.allocator.roundup_power2_division_count[0]: 3; must be 0 or a power of 2 "
            "up to 64"}},
          {"too large a power",
           [](JobSpec& j) { j.runtime.allocator.roundup_power2_division_count = {128}; },
           {"job.runtime.allocator.roundup_power2_division_count[0]: 128; must be 0 or a power of "
            "2 up to 64"}},
          {"a negative one",
           [](JobSpec& j) { j.runtime.allocator.roundup_power2_division_count = {-4}; },
           {"job.runtime.allocator.roundup_power2_division_count[0]: -4; must be 0 or a power of 2 "
            "up to 64"}},
          {"the last of sixteen",
           [](JobSpec& j) {
             j.runtime.allocator.roundup_power2_division_count.assign(16, 4);
             j.runtime.allocator.roundup_power2_division_count[15] = 5;
           },
           {"job.runtime.allocator.roundup_power2_division_count[15]: 5; must be 0 or a power of 2 "
            "up to 64"}},
          {"a threshold that nothing reaches",
           [](JobSpec& j) { j.runtime.allocator.garbage_collection_threshold = 0.8; },
           {"job.runtime.allocator.garbage_collection_threshold: 0.8; moves no byte without "
            "memory_fraction"}},
          {"a threshold above all",
           [](JobSpec& j) {
             j.runtime.allocator.garbage_collection_threshold = 1.5;
             j.runtime.allocator.memory_fraction = 0.5;
           },
           {"job.runtime.allocator.garbage_collection_threshold: 1.5; must be from 0 to 1"}},
          {"a negative fraction",
           [](JobSpec& j) { j.runtime.allocator.memory_fraction = -0.5; },
           {"job.runtime.allocator.memory_fraction: -0.5; must be from 0 to 1"}},
      });
}

TEST(ValidateAllocatorTest, UnsetIsPyTorchsOwn) {
  const AllocatorSettings settings = SettingsOf([](AllocatorSpec&) {});
  EXPECT_FALSE(settings.expandable_segments);
  EXPECT_EQ(settings.max_split_size_bytes, kUnlimitedBytes);
  EXPECT_EQ(settings.memory_fraction_bytes, kUnlimitedBytes);
  EXPECT_EQ(settings.garbage_collection_threshold, 0);
  EXPECT_THAT(settings.roundup_power2_divisions, Each(0));
}

TEST(ValidateAllocatorTest, OneNumberIsForAllIntervals) {
  EXPECT_THAT(SettingsOf([](AllocatorSpec& s) {
                s.roundup_power2_division_count = {4};
              }).roundup_power2_divisions,
              Each(4));
  const auto sixteen = SettingsOf([](AllocatorSpec& s) {
    s.roundup_power2_division_count = {1, 2, 4, 8, 16, 32, 64, 0, 1, 2, 4, 8, 16, 32, 64, 0};
  });
  EXPECT_THAT(sixteen.roundup_power2_divisions,
              ElementsAre(1, 2, 4, 8, 16, 32, 64, 0, 1, 2, 4, 8, 16, 32, 64, 0));
}

// A fraction is one of what the CUDA runtime reports, less what others hold.
TEST(ValidateAllocatorTest, TheFractionIsOfTheGpu) {
  const auto half = [](AllocatorSpec& s) { s.memory_fraction = 0.5; };
  EXPECT_EQ(SettingsOf(half).memory_fraction_bytes, (int64_t{79} << 30) / 2);
}

// From 0.7 on, which is no release. Source: torchtune __init__.py.
TEST(ValidateAllocatorTest, TorchtuneExpandsSegmentsWhereNothingIsSaid) {
  JobSpec job = With(SmallJob(), "ddp");
  job.cluster.gpu_count = 1;
  job.runtime.trainer = "torchtune";
  EXPECT_FALSE(Valid(job)->allocator.expandable_segments);
  job.runtime.versions["torchtune"] = "0.7";
  EXPECT_TRUE(Valid(job)->allocator.expandable_segments);
  job.runtime.allocator.expandable_segments = false;
  EXPECT_FALSE(Valid(job)->allocator.expandable_segments);
}

}  // namespace
}  // namespace plimsoll
