// The caching allocator a second time, slow and simple: a segment knows which
// of its bytes are in use and which of its pages are mapped, and what is free
// is found by looking. No lists of free blocks, no splitting, no merging.
#ifndef PLIMSOLL_TESTS_TESTING_SIMPLE_ALLOCATOR_H_
#define PLIMSOLL_TESTS_TESTING_SIMPLE_ALLOCATOR_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "estimator/base/role.h"
#include "estimator/job/allocator_settings.h"

namespace plimsoll {

class SimpleAllocator {
 public:
  explicit SimpleAllocator(const AllocatorSettings& settings) : settings_(settings) {}

  // What CachingAllocator's do. Ids are never used again.
  std::optional<int64_t> Allocate(int64_t bytes, Stream stream);
  void Free(int64_t id);
  void FreeAt(int64_t id, int64_t tick);
  void Advance(int64_t tick) { clock_ = tick; }
  void EmptyCache();

  int64_t allocated_bytes() const;
  int64_t requested_bytes() const;
  int64_t reserved_bytes() const;
  int64_t inactive_split_bytes() const;
  int64_t retries() const { return retries_; }
  int64_t segment_count() const { return static_cast<int64_t>(segments_.size()); }
  int64_t Bytes(int64_t id) const;

 private:
  // Bytes in use, by where they begin in their segment.
  struct Use {
    int64_t id = 0;
    int64_t bytes = 0;
    int64_t requested_bytes = 0;
    std::optional<int64_t> free_at;  // pending
  };
  struct Segment {
    Stream stream = Stream::kCompute;
    bool small = false;
    int64_t bytes = 0;
    std::vector<bool> pages;  // mapped; pages beyond are not
    std::map<int64_t, Use> uses;
    int64_t free_since = 0;
  };
  // A longest stretch of a segment that is all free, or all unmapped, or one use.
  struct Run {
    int64_t begin = 0;
    int64_t end = 0;
    char kind = 'f';  // or 'u' for unmapped, 'a' for a use
    int64_t bytes() const { return end - begin; }
  };
  struct Place {
    int64_t segment = 0;  // key in segments_
    Run run;
    int64_t growth_bytes = 0;  // unmapped behind it
  };
  struct Request {
    int64_t bytes = 0;
    Stream stream = Stream::kCompute;
    bool small = false;
  };

  static int64_t PageBytes(const Segment& segment);
  std::vector<Run> Runs(const Segment& segment) const;
  std::vector<Place> FreePlaces(Stream stream, bool small) const;
  std::optional<Place> Find(const Request& request) const;
  std::optional<Place> Grow(const Request& request);
  std::optional<Place> Take(const Request& request);
  std::optional<Place> Expand(const Request& request);
  std::optional<Place> MapFrom(int64_t key, int64_t begin, int64_t bytes);
  bool MapPages(Segment& segment, const Run& run, int64_t end);
  bool ReleaseOversize(const Request& request);
  void CollectGarbage();
  void FreeDue(int64_t tick);

  AllocatorSettings settings_;
  std::map<int64_t, Segment> segments_;  // by address
  int64_t next_segment_ = 0;
  int64_t next_id_ = 0;
  int64_t clock_ = 0;
  int64_t large_searches_ = 0;
  int64_t retries_ = 0;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_TESTS_TESTING_SIMPLE_ALLOCATOR_H_
