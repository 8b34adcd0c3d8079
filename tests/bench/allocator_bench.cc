// What the caching allocator's model costs: a pair of Allocate and Free among
// many free blocks, and the replay of a step of training.
#include <benchmark/benchmark.h>

#include <iterator>
#include <random>
#include <vector>

#include "estimator/allocator/caching_allocator.h"

namespace plimsoll {
namespace {

constexpr int64_t kKib = int64_t{1} << 10;
constexpr int64_t kMib = int64_t{1} << 20;

AllocatorSettings Settings(bool expandable) {
  AllocatorSettings settings;
  settings.expandable_segments = expandable;
  return settings;
}

// Few sizes, as the activations of one model have: norms' rows, projections,
// logits. `mixed` makes hundreds of them, as sequences of all lengths do.
int64_t RandomBytes(std::mt19937_64& random, bool mixed) {
  constexpr int64_t kBytes[] = {8 * kKib,  64 * kKib, 2 * kMib,   16 * kMib,
                                32 * kMib, 56 * kMib, 112 * kMib, 344 * kMib};
  const int64_t bytes = kBytes[random() % std::size(kBytes)];
  if (mixed) return bytes + static_cast<int64_t>(random() % 16) * 32 * kKib;
  return bytes * static_cast<int64_t>(1 + random() % 3);
}

// Every second of twice as many blocks is freed: few merge with another. Then
// eight allocations are held, the oldest of which makes way for a new one.
void Pairs(benchmark::State& state, bool expandable, bool mixed) {
  const auto free_count = static_cast<size_t>(state.range(0));
  std::mt19937_64 random(1);
  CachingAllocator allocator(Settings(expandable));
  std::vector<Allocation> live;
  for (size_t i = 0; i < 2 * free_count; ++i) {
    live.push_back(allocator.Allocate(RandomBytes(random, mixed), Stream::kCompute));
  }
  for (size_t i = 0; i < live.size(); i += 2) allocator.Free(live[i]);
  std::vector<int64_t> requests;
  for (int i = 0; i < 1024; ++i) requests.push_back(RandomBytes(random, mixed));
  std::vector<Allocation> held;
  for (size_t i = 0; i < 8; ++i) held.push_back(allocator.Allocate(requests[i], Stream::kCompute));
  size_t next = 0;
  for (auto _ : state) {
    Allocation& oldest = held[next % held.size()];
    allocator.Free(oldest);
    oldest = allocator.Allocate(requests[next % requests.size()], Stream::kCompute);
    ++next;
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK_CAPTURE(Pairs, native, false, false)->Arg(30)->Arg(300)->Arg(3000);
BENCHMARK_CAPTURE(Pairs, native_mixed, false, true)->Arg(300);
BENCHMARK_CAPTURE(Pairs, expandable, true, false)->Arg(30)->Arg(300)->Arg(3000);
BENCHMARK_CAPTURE(Pairs, expandable_mixed, true, true)->Arg(300);

// Forward keeps what backward frees in reverse order, with temporaries in both,
// and gathered weights on a stream of their own that are freed with a lag.
int64_t PlayStep(CachingAllocator& allocator, int layers, int64_t clock) {
  constexpr int64_t kKept[] = {32 * kMib, 64 * kKib, 96 * kMib, 2 * kMib,   32 * kMib,
                               32 * kMib, 64 * kKib, 32 * kMib, 112 * kMib, 112 * kMib};
  constexpr int64_t kTemporary[] = {112 * kMib, 32 * kMib, 8 * kKib, 3 * kMib, 56 * kMib};
  constexpr int kTemporaryRounds = 4;
  std::vector<Allocation> kept;
  int64_t events = 0;
  const auto temporaries = [&] {
    for (int round = 0; round < kTemporaryRounds; ++round) {
      const Allocation weights = allocator.Allocate(50 * kMib, Stream::kAllGather);
      for (const int64_t bytes : kTemporary) {
        const Allocation outer = allocator.Allocate(bytes, Stream::kCompute);
        allocator.Free(allocator.Allocate(2 * bytes, Stream::kCompute));
        allocator.Free(outer);
        events += 4;
      }
      allocator.FreeAt(weights, clock + 2);
      allocator.Advance(++clock);
      events += 2;
    }
  };
  for (int layer = 0; layer < layers; ++layer) {
    for (const int64_t bytes : kKept) kept.push_back(allocator.Allocate(bytes, Stream::kCompute));
    temporaries();
  }
  for (int layer = 0; layer < layers; ++layer) {
    temporaries();
    for (size_t i = 0; i < std::size(kKept); ++i) {
      allocator.Free(kept.back());
      kept.pop_back();
    }
  }
  return events + 2 * layers * static_cast<int64_t>(std::size(kKept));
}

// Two steps from an empty allocator, 12 400 events in all.
void Replay(benchmark::State& state, bool expandable) {
  int64_t events = 0;
  for (auto _ : state) {
    CachingAllocator allocator(Settings(expandable));
    for (int step = 0; step < 2; ++step) events += PlayStep(allocator, 32, 1000 * step);
    benchmark::DoNotOptimize(allocator.peak_reserved_bytes());
  }
  state.SetItemsProcessed(events);
}
BENCHMARK_CAPTURE(Replay, native, false)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Replay, expandable, true)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace plimsoll

BENCHMARK_MAIN();
