// Random programs: the caching allocator against the simple one, and what must
// hold whatever happens.
#include <algorithm>
#include <iterator>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "estimator/allocator/caching_allocator.h"
#include "gtest/gtest.h"
#include "tests/testing/allocator_layout.h"
#include "tests/testing/simple_allocator.h"

namespace plimsoll {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;

int64_t Below(std::mt19937_64& random, int64_t end) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(end));
}

AllocatorSettings RandomSettings(std::mt19937_64& random, bool expandable) {
  AllocatorSettings settings;
  settings.expandable_segments = expandable;
  settings.capacity_bytes = (40 + Below(random, 600)) * kMib + Below(random, 2) * 512;
  if (Below(random, 2) == 0) settings.max_split_size_bytes = (21 + Below(random, 60)) * kMib;
  if (Below(random, 3) == 0) {
    settings.memory_fraction_bytes = settings.capacity_bytes * (50 + Below(random, 50)) / 100;
    settings.garbage_collection_threshold = static_cast<double>(Below(random, 10)) / 10;
  }
  if (Below(random, 3) == 0) {
    for (int32_t& divisions : settings.roundup_power2_divisions) {
      divisions = int32_t{1} << Below(random, 6);
    }
  }
  return settings;
}

// Sizes of all magnitudes; the borders of the rules, a little more and less;
// and a few that come again and again.
int64_t RandomBytes(std::mt19937_64& random) {
  constexpr int64_t kBorders[] = {512, kMib, 2 * kMib, 10 * kMib, 20 * kMib, 32 * kMib, 60 * kMib};
  switch (Below(random, 5)) {
    case 0:
      return std::max<int64_t>(1, kBorders[Below(random, std::size(kBorders))] +
                                      (Below(random, 5) - 2) * 512 + Below(random, 3) - 1);
    case 1:
      return 1 + Below(random, int64_t{1} << (1 + Below(random, 27)));
    case 2:
      return (1 + Below(random, 6)) * 20 * kMib;
    default:
      return (1 + Below(random, 6)) * 3 * kMib / (1 + 15 * Below(random, 2));
  }
}

// Blocks tile their segments without gap or overlap, neighbours are merged, and
// the sums are what the counters say.
void CheckInvariants(const CachingAllocator& allocator, const AllocatorSettings& settings) {
  int64_t allocated = 0;
  int64_t mapped = 0;
  int64_t segments = 0;
  const BlockView* previous = nullptr;
  const std::vector<BlockView> views = allocator.Snapshot();
  for (const BlockView& view : views) {
    ASSERT_GT(view.bytes, 0);
    ASSERT_EQ(view.bytes % kMinBlockBytes, 0);
    allocated += view.state == BlockState::kAllocated ? view.bytes : 0;
    mapped += view.state != BlockState::kUnmapped ? view.bytes : 0;
    segments += view.first ? 1 : 0;
    if (view.state == BlockState::kAllocated) {
      ASSERT_EQ(allocator.Bytes(view.allocation), view.bytes);
    }
    if (previous != nullptr) {
      const uint64_t end = previous->address + static_cast<uint64_t>(previous->bytes);
      ASSERT_LE(end, view.address);
      if (!view.first) {
        ASSERT_EQ(end, view.address);
        ASSERT_EQ(previous->stream, view.stream);
        ASSERT_EQ(previous->small, view.small);
        const bool idle = view.state == BlockState::kFree || view.state == BlockState::kUnmapped;
        ASSERT_FALSE(idle && previous->state == view.state) << Layout(allocator);
      }
    }
    previous = &view;
  }
  ASSERT_EQ(allocator.allocated_bytes(), allocated);
  ASSERT_EQ(allocator.reserved_bytes(), mapped);
  ASSERT_EQ(allocator.segment_count(), segments);
  ASSERT_LE(allocator.reserved_bytes(), settings.capacity_bytes);
  ASSERT_LE(allocator.allocated_bytes(), allocator.reserved_bytes());
  ASSERT_LE(allocator.reserved_bytes(), allocator.peak_reserved_bytes());
  ASSERT_LE(allocator.allocated_bytes(), allocator.peak_allocated_bytes());
}

void CheckAgreement(const CachingAllocator& allocator, const SimpleAllocator& simple) {
  ASSERT_EQ(allocator.allocated_bytes(), simple.allocated_bytes());
  ASSERT_EQ(allocator.requested_bytes(), simple.requested_bytes());
  ASSERT_EQ(allocator.reserved_bytes(), simple.reserved_bytes());
  ASSERT_EQ(allocator.inactive_split_bytes(), simple.inactive_split_bytes());
  ASSERT_EQ(allocator.segment_count(), simple.segment_count());
  ASSERT_EQ(allocator.retries(), simple.retries());
}

// One random program, played on both allocators at once.
class Program {
 public:
  Program(uint64_t seed, bool expandable)
      : random_(seed), settings_(RandomSettings(random_, expandable)) {}

  void Play(int steps) {
    for (int i = 0; i < steps; ++i) {
      Step();
      ASSERT_NO_FATAL_FAILURE(CheckAgreement(allocator_, simple_)) << "step " << i;
      ASSERT_NO_FATAL_FAILURE(CheckInvariants(allocator_, settings_)) << "step " << i;
    }
  }

  const CachingAllocator& allocator() const { return allocator_; }
  int refusals() const { return refusals_; }

 private:
  struct Live {
    Allocation allocation = kNoAllocation;
    int64_t id = 0;
  };

  void Step() {
    const int64_t dice = Below(random_, 100);
    if (dice < 1) {
      allocator_.EmptyCache();
      simple_.EmptyCache();
    } else if (dice < 15) {
      clock_ += Below(random_, 5);
      allocator_.Advance(clock_);
      simple_.Advance(clock_);
    } else if (dice < 60 || live_.empty()) {
      Allocate();
    } else {
      Free();
    }
  }

  void Allocate() {
    const int64_t bytes = RandomBytes(random_);
    const auto stream = static_cast<Stream>(Below(random_, kStreamCount));
    const Allocation allocation = allocator_.Allocate(bytes, stream);
    const std::optional<int64_t> id = simple_.Allocate(bytes, stream);
    ASSERT_EQ(allocation != kNoAllocation, id.has_value()) << bytes;
    if (!id) {
      ++refusals_;
      return;
    }
    ASSERT_EQ(allocator_.Bytes(allocation), simple_.Bytes(*id)) << bytes;
    live_.push_back({allocation, *id});
  }

  void Free() {
    std::swap(live_[Below(random_, static_cast<int64_t>(live_.size()))], live_.back());
    const Live live = live_.back();
    live_.pop_back();
    if (Below(random_, 4) == 0) {
      const int64_t tick = clock_ + Below(random_, 8) - 1;
      allocator_.FreeAt(live.allocation, tick);
      simple_.FreeAt(live.id, tick);
    } else {
      allocator_.Free(live.allocation);
      simple_.Free(live.id);
    }
  }

  std::mt19937_64 random_;
  AllocatorSettings settings_;
  CachingAllocator allocator_{settings_};
  SimpleAllocator simple_{settings_};
  std::vector<Live> live_;
  int64_t clock_ = 0;
  int refusals_ = 0;
};

constexpr int kPrograms = 60;
constexpr int kSteps = 600;

class CachingAllocatorFuzzTest : public testing::TestWithParam<bool> {};

TEST_P(CachingAllocatorFuzzTest, AgreesWithTheSimpleOne) {
  int refusals = 0;
  int64_t retries = 0;
  for (uint64_t seed = 1; seed <= kPrograms; ++seed) {
    Program program(seed, GetParam());
    ASSERT_NO_FATAL_FAILURE(program.Play(kSteps)) << "seed " << seed;
    refusals += program.refusals();
    retries += program.allocator().retries();
  }
  EXPECT_GT(refusals, kPrograms) << "programs that never run out of memory test little";
  EXPECT_GT(retries, refusals) << "and some retries help";
}

TEST_P(CachingAllocatorFuzzTest, IsDeterministic) {
  Program one(7, GetParam());
  Program other(7, GetParam());
  one.Play(kSteps);
  other.Play(kSteps);
  EXPECT_EQ(Layout(one.allocator()), Layout(other.allocator()));
}

INSTANTIATE_TEST_SUITE_P(Modes, CachingAllocatorFuzzTest, testing::Bool(),
                         [](const auto& mode) { return mode.param ? "Expandable" : "Native"; });

// With everything freed and flushed nothing is left, whatever came before.
TEST_P(CachingAllocatorFuzzTest, GivesEverythingBack) {
  for (uint64_t seed = 1; seed <= kPrograms; ++seed) {
    Program program(seed, GetParam());
    ASSERT_NO_FATAL_FAILURE(program.Play(100)) << "seed " << seed;
    CachingAllocator allocator = program.allocator();
    for (const BlockView& view : allocator.Snapshot()) {
      if (view.state == BlockState::kAllocated) allocator.Free(view.allocation);
    }
    allocator.EmptyCache();
    EXPECT_EQ(allocator.reserved_bytes(), 0) << "seed " << seed;
    EXPECT_EQ(allocator.allocated_bytes(), 0) << "seed " << seed;
    EXPECT_EQ(allocator.requested_bytes(), 0) << "seed " << seed;
    EXPECT_EQ(allocator.inactive_split_bytes(), 0) << "seed " << seed;
  }
}

}  // namespace
}  // namespace plimsoll
