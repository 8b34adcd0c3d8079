#include "tests/testing/simple_allocator.h"

#include <algorithm>
#include <limits>

namespace plimsoll {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;

}  // namespace

int64_t SimpleAllocator::PageBytes(const Segment& segment) {
  return (segment.small ? 2 : 20) * kMib;
}

std::vector<SimpleAllocator::Run> SimpleAllocator::Runs(const Segment& segment) const {
  std::vector<Run> runs;
  const auto add = [&](int64_t begin, int64_t end, char kind) {
    if (begin == end) return;
    if (!runs.empty() && runs.back().kind == kind && kind != 'a') {
      runs.back().end = end;
    } else {
      runs.push_back({begin, end, kind});
    }
  };
  const auto add_gap = [&](int64_t begin, int64_t end) {
    if (!settings_.expandable_segments) return add(begin, end, 'f');
    const int64_t page_bytes = PageBytes(segment);
    for (size_t page = 0; page < segment.pages.size(); ++page) {
      const int64_t page_begin = static_cast<int64_t>(page) * page_bytes;
      const int64_t from = std::max(begin, page_begin);
      const int64_t to = std::min(end, page_begin + page_bytes);
      if (from < to) add(from, to, segment.pages[page] ? 'f' : 'u');
    }
    const int64_t known = static_cast<int64_t>(segment.pages.size()) * page_bytes;
    if (end > known) add(std::max(begin, known), end, 'u');
  };
  int64_t at = 0;
  for (const auto& [begin, use] : segment.uses) {
    add_gap(at, begin);
    add(begin, begin + use.bytes, 'a');
    at = begin + use.bytes;
  }
  add_gap(at, segment.bytes);
  return runs;
}

// In the order of best fit.
std::vector<SimpleAllocator::Place> SimpleAllocator::FreePlaces(Stream stream, bool small) const {
  std::vector<Place> places;
  for (const auto& [key, segment] : segments_) {
    if (segment.stream != stream || segment.small != small) continue;
    const std::vector<Run> runs = Runs(segment);
    for (size_t i = 0; i < runs.size(); ++i) {
      if (runs[i].kind != 'f') continue;
      const bool grows = i + 1 < runs.size() && runs[i + 1].kind == 'u';
      places.push_back({key, runs[i], grows ? runs[i + 1].bytes() : 0});
    }
  }
  std::stable_sort(places.begin(), places.end(),
                   [](const Place& a, const Place& b) { return a.run.bytes() < b.run.bytes(); });
  return places;
}

std::optional<SimpleAllocator::Place> SimpleAllocator::Find(const Request& request) const {
  std::vector<Place> places = FreePlaces(request.stream, request.small);
  std::erase_if(places, [&](const Place& place) { return place.run.bytes() < request.bytes; });
  if (places.empty()) return std::nullopt;
  size_t best = 0;
  const auto expanded = [&](size_t i) { return places[i].run.bytes() + places[i].growth_bytes; };
  while (settings_.expandable_segments && best + 1 < places.size() &&
         expanded(best + 1) < expanded(best)) {
    ++best;
  }
  const int64_t bytes = places[best].run.bytes();
  if (request.bytes < settings_.max_split_size_bytes) {
    if (bytes >= settings_.max_split_size_bytes) return std::nullopt;
  } else if (bytes >= request.bytes + 20 * kMib) {
    return std::nullopt;
  }
  return places[best];
}

std::optional<int64_t> SimpleAllocator::Allocate(int64_t bytes, Stream stream) {
  FreeDue(clock_);
  const Request request{RoundBlock(settings_, bytes), stream, RoundBlock(settings_, bytes) <= kMib};
  if (!request.small) ++large_searches_;
  std::optional<Place> place = Find(request);
  if (!place) place = Grow(request);
  if (!place) return std::nullopt;
  const int64_t rest = place->run.bytes() - request.bytes;
  const bool split = request.small || settings_.expandable_segments
                         ? rest >= 512
                         : request.bytes < settings_.max_split_size_bytes && rest > kMib;
  Use use;
  use.id = next_id_++;
  use.bytes = split ? request.bytes : place->run.bytes();
  use.requested_bytes = bytes;
  segments_.at(place->segment).uses[place->run.begin] = use;
  return use.id;
}

std::optional<SimpleAllocator::Place> SimpleAllocator::Grow(const Request& request) {
  CollectGarbage();
  std::optional<Place> place = Take(request);
  if (!place && ReleaseOversize(request)) place = Take(request);
  if (place) return place;
  EmptyCache();
  ++retries_;
  return Take(request);
}

std::optional<SimpleAllocator::Place> SimpleAllocator::Take(const Request& request) {
  const int64_t bytes = SegmentBytes(request.bytes);
  if (settings_.memory_fraction_bytes != kUnlimitedBytes &&
      reserved_bytes() + bytes > settings_.memory_fraction_bytes) {
    return std::nullopt;
  }
  if (settings_.expandable_segments) return Expand(request);
  if (bytes > settings_.capacity_bytes - reserved_bytes()) return std::nullopt;
  segments_[next_segment_] = {request.stream, request.small, bytes, {}, {}, 0};
  return Place{next_segment_++, {0, bytes, 'f'}, 0};
}

std::optional<SimpleAllocator::Place> SimpleAllocator::Expand(const Request& request) {
  for (const auto& [key, segment] : segments_) {
    if (segment.stream != request.stream || segment.small != request.small) continue;
    const std::vector<Run> runs = Runs(segment);
    for (size_t i = 0; i < runs.size(); ++i) {
      if (runs[i].kind != 'u') continue;
      const size_t first = i > 0 && runs[i - 1].kind == 'f' ? i - 1 : i;
      size_t last = first;
      while (last < runs.size() && runs[last].kind != 'a') ++last;
      if (runs[last - 1].end - runs[first].begin < request.bytes) continue;
      return MapFrom(key, runs[first].begin, request.bytes);
    }
  }
  Segment segment;
  segment.stream = request.stream;
  segment.small = request.small;
  const int64_t page_bytes = PageBytes(segment);
  segment.bytes = RoundUp(settings_.capacity_bytes + settings_.capacity_bytes / 8, page_bytes);
  int64_t key = 0;
  while (segments_.count(key) > 0) ++key;
  if (segment.bytes < request.bytes) return std::nullopt;
  segments_[key] = segment;
  return MapFrom(key, 0, request.bytes);
}

std::optional<SimpleAllocator::Place> SimpleAllocator::MapFrom(int64_t key, int64_t begin,
                                                               int64_t bytes) {
  Segment& segment = segments_.at(key);
  while (true) {
    const std::vector<Run> runs = Runs(segment);
    auto run = std::find_if(runs.begin(), runs.end(), [&](const Run& r) { return r.end > begin; });
    if (run->kind == 'f' && run->end - begin >= bytes) return Place{key, {begin, run->end, 'f'}, 0};
    if (run->kind == 'f') ++run;
    if (!MapPages(segment, *run, std::min(run->end, begin + bytes))) return std::nullopt;
  }
}

bool SimpleAllocator::MapPages(Segment& segment, const Run& run, int64_t end) {
  const int64_t page_bytes = PageBytes(segment);
  const int64_t first = run.begin / page_bytes;
  const int64_t last = CeilDivide(end, page_bytes);
  if (reserved_bytes() + (last - first) * page_bytes > settings_.capacity_bytes) return false;
  if (static_cast<int64_t>(segment.pages.size()) < last) segment.pages.resize(last);
  std::fill(segment.pages.begin() + first, segment.pages.begin() + last, true);
  return true;
}

bool SimpleAllocator::ReleaseOversize(const Request& request) {
  const int64_t oversize = settings_.max_split_size_bytes;
  if (oversize == kUnlimitedBytes || settings_.expandable_segments) return false;
  const int64_t wanted = std::max(request.bytes, oversize);
  std::vector<Place> places = FreePlaces(request.stream, request.small);
  for (const Place& place : places) {
    if (place.run.bytes() < wanted) continue;
    segments_.erase(place.segment);
    return true;
  }
  int64_t released = 0;
  while (released < wanted && !places.empty() && places.back().run.bytes() >= oversize) {
    released += places.back().run.bytes();
    segments_.erase(places.back().segment);
    places.pop_back();
  }
  return released >= wanted;
}

void SimpleAllocator::CollectGarbage() {
  const double threshold = settings_.garbage_collection_threshold;
  if (settings_.memory_fraction_bytes == kUnlimitedBytes || threshold <= 0) return;
  const auto most =
      static_cast<int64_t>(threshold * static_cast<double>(settings_.memory_fraction_bytes));
  while (!settings_.expandable_segments && reserved_bytes() > most) {
    std::map<int64_t, int64_t> ages;  // by segment
    int64_t sum = 0;
    for (const auto& [key, segment] : segments_) {
      if (segment.small || !segment.uses.empty()) continue;
      ages[key] = large_searches_ - segment.free_since;
      sum += ages[key];
    }
    if (ages.empty()) return;
    const auto count = static_cast<int64_t>(ages.size());
    for (const auto& [key, age] : ages) {
      if (age * count >= sum) segments_.erase(key);
    }
  }
}

void SimpleAllocator::EmptyCache() {
  FreeDue(std::numeric_limits<int64_t>::max());
  std::vector<int64_t> empty;
  for (auto& [key, segment] : segments_) {
    if (!settings_.expandable_segments) {
      if (segment.uses.empty()) empty.push_back(key);
      continue;
    }
    const int64_t page_bytes = PageBytes(segment);
    const bool had_pages = std::count(segment.pages.begin(), segment.pages.end(), true) > 0;
    for (size_t page = 0; page < segment.pages.size(); ++page) {
      const int64_t begin = static_cast<int64_t>(page) * page_bytes;
      bool used = false;
      for (const auto& [at, use] : segment.uses) {
        used = used || (at < begin + page_bytes && at + use.bytes > begin);
      }
      segment.pages[page] = segment.pages[page] && used;
    }
    if (had_pages && segment.uses.empty()) empty.push_back(key);
  }
  for (const int64_t key : empty) segments_.erase(key);
}

void SimpleAllocator::Free(int64_t id) {
  constexpr int64_t kBeforeAll = std::numeric_limits<int64_t>::min();
  FreeAt(id, kBeforeAll);
  FreeDue(kBeforeAll);
}

void SimpleAllocator::FreeAt(int64_t id, int64_t tick) {
  for (auto& [key, segment] : segments_) {
    for (auto& [begin, use] : segment.uses) {
      if (use.id == id) use.free_at = tick;
    }
  }
}

void SimpleAllocator::FreeDue(int64_t tick) {
  for (auto& [key, segment] : segments_) {
    const auto freed = std::erase_if(segment.uses, [&](const auto& entry) {
      return entry.second.free_at.has_value() && *entry.second.free_at <= tick;
    });
    if (freed > 0) segment.free_since = large_searches_;
  }
}

int64_t SimpleAllocator::allocated_bytes() const {
  int64_t sum = 0;
  for (const auto& [key, segment] : segments_) {
    for (const auto& [begin, use] : segment.uses) sum += use.free_at ? 0 : use.bytes;
  }
  return sum;
}

int64_t SimpleAllocator::requested_bytes() const {
  int64_t sum = 0;
  for (const auto& [key, segment] : segments_) {
    for (const auto& [begin, use] : segment.uses) sum += use.requested_bytes;
  }
  return sum;
}

int64_t SimpleAllocator::reserved_bytes() const {
  int64_t sum = 0;
  for (const auto& [key, segment] : segments_) {
    sum += settings_.expandable_segments
               ? std::count(segment.pages.begin(), segment.pages.end(), true) * PageBytes(segment)
               : segment.bytes;
  }
  return sum;
}

int64_t SimpleAllocator::inactive_split_bytes() const {
  int64_t sum = 0;
  for (const auto& [key, segment] : segments_) {
    if (settings_.expandable_segments || segment.uses.empty()) continue;
    for (const Run& run : Runs(segment)) sum += run.kind == 'f' ? run.bytes() : 0;
  }
  return sum;
}

int64_t SimpleAllocator::Bytes(int64_t id) const {
  for (const auto& [key, segment] : segments_) {
    for (const auto& [begin, use] : segment.uses) {
      if (use.id == id) return use.bytes;
    }
  }
  return 0;
}

}  // namespace plimsoll
