// The phantom's memory against a second, simple one: random programs that allocate, map, copy and
// fill, of which a model says what is free, whose an address is and what is read back.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "client/measure/phantom/cuda_types.h"
#include "tests/client/measure/phantom_library.h"

namespace plimsoll {
namespace {

using Random = std::mt19937_64;

constexpr size_t kGranularity = 2 * kMib;
constexpr size_t kCapacity = kTotal - kContext;
void* const kNoStream = nullptr;
const void* const kNoProperties = nullptr;

size_t RoundedUp(size_t bytes) { return (bytes + kGranularity - 1) / kGranularity * kGranularity; }

// One of a map's, or its end where it has none.
template <typename Map>
auto AnyOf(Random& random, Map& map) {
  auto at = map.begin();
  if (!map.empty()) std::advance(at, random() % map.size());
  return at;
}

// What is held, as a list of everything that was asked for and not given back.
class Held {
 public:
  struct Block {
    size_t bytes;
    bool counted;
  };
  struct Piece {
    size_t bytes;
    bool released = false;
    std::vector<uint64_t> mapped_at = {};
  };

  std::map<uint64_t, Block> blocks;  // of cudaMalloc, cudaMallocManaged, cuMemAddressReserve
  std::map<uint64_t, Piece> pieces;  // of cuMemCreate

  size_t FreeBytes() const {
    size_t used = 0;
    for (const auto& [address, block] : blocks) used += block.counted ? block.bytes : 0;
    for (const auto& [handle, piece] : pieces) used += piece.bytes;
    return kCapacity - used;
  }

  // Adds a block, which must lie beside all others.
  void Add(uint64_t address, Block block) {
    EXPECT_EQ(address % kGranularity, 0U);
    const auto after = blocks.lower_bound(address);
    if (after != blocks.end()) {
      EXPECT_LE(address + block.bytes, after->first);
    }
    if (after != blocks.begin()) {
      const auto before = std::prev(after);
      EXPECT_LE(before->first + before->second.bytes, address);
    }
    blocks[address] = block;
  }

  // Whether a part of the range is mapped.
  bool IsMapped(uint64_t address, size_t bytes) const {
    return std::any_of(pieces.begin(), pieces.end(), [&](const auto& entry) {
      const auto& [size, released, at] = entry.second;
      return std::any_of(at.begin(), at.end(), [&, size = size](uint64_t one) {
        return one < address + bytes && address < one + size;
      });
    });
  }

  // Returns whether anything was mapped there.
  bool Unmap(uint64_t address, size_t bytes) {
    bool found = false;
    for (auto piece = pieces.begin(); piece != pieces.end();) {
      std::vector<uint64_t>& at = piece->second.mapped_at;
      const auto is_within = [&](uint64_t one) { return one >= address && one < address + bytes; };
      found = std::erase_if(at, is_within) > 0 || found;
      piece = at.empty() && piece->second.released ? pieces.erase(piece) : std::next(piece);
    }
    return found;
  }
};

class PhantomMemoryTest : public PhantomTest {
 protected:
  void SetUp() override { ASSERT_EQ(FreeBytes(), kCapacity); }

  void TearDown() override {
    for (const auto& [address, block] : held_.blocks) {
      static_cast<void>(held_.Unmap(address, block.bytes));
      Call("cuMemUnmap", address, block.bytes);
      Free(reinterpret_cast<void*>(address));
    }
    for (const auto& [handle, piece] : held_.pieces) {
      if (!piece.released) {
        EXPECT_EQ(Call("cuMemRelease", handle), kSuccess);
      }
    }
    EXPECT_EQ(FreeBytes(), kCapacity) << "everything was given back";
  }

  void Allocate(size_t bytes, bool managed) {
    const size_t rounded = RoundedUp(bytes);
    const bool fits = managed || rounded <= held_.FreeBytes();
    void* address = nullptr;
    const int result = managed ? Call("cudaMallocManaged", &address, bytes, 1U)
                               : Call("cudaMalloc", &address, bytes);
    ASSERT_EQ(result, fits ? kSuccess : kOutOfMemory) << bytes;
    ASSERT_EQ(address != nullptr, fits);
    if (fits) held_.Add(reinterpret_cast<uint64_t>(address), {rounded, !managed});
  }

  void Reserve(size_t bytes) {
    uint64_t address = 0;
    const bool whole = bytes > 0 && bytes % kGranularity == 0;
    ASSERT_EQ(Call("cuMemAddressReserve", &address, bytes, size_t{0}, uint64_t{0}, 0ULL),
              whole ? kSuccess : kInvalidValue);
    if (whole) held_.Add(address, {bytes, false});
  }

  void Create(size_t bytes) {
    const bool whole = bytes > 0 && bytes % kGranularity == 0;
    const bool fits = bytes <= held_.FreeBytes();
    uint64_t handle = 0;
    ASSERT_EQ(Call("cuMemCreate", &handle, bytes, kNoProperties, 0ULL), !whole ? kInvalidValue
                                                                        : fits ? kSuccess
                                                                               : kOutOfMemory);
    if (!whole || !fits) return;
    EXPECT_NE(handle, 0U);
    EXPECT_TRUE(held_.pieces.emplace(handle, Held::Piece{bytes}).second) << "a handle of its own";
  }

  void Release(Random& random) {
    const auto piece = AnyOf(random, held_.pieces);
    if (piece == held_.pieces.end()) return;
    ASSERT_EQ(Call("cuMemRelease", piece->first),
              piece->second.released ? kInvalidValue : kSuccess);
    piece->second.released = true;
    if (piece->second.mapped_at.empty()) held_.pieces.erase(piece);
  }

  // Maps a piece somewhere in a block: one of memory is refused, as is what is mapped there
  // already, or would reach out of it.
  void Map(Random& random) {
    const auto block = AnyOf(random, held_.blocks);
    const auto piece = AnyOf(random, held_.pieces);
    if (block == held_.blocks.end() || piece == held_.pieces.end()) return;
    const uint64_t address =
        block->first + random() % (block->second.bytes / kGranularity) * kGranularity;
    const size_t bytes = piece->second.bytes;
    const bool within = address + bytes <= block->first + block->second.bytes;
    const bool can = !block->second.counted && within && !held_.IsMapped(address, bytes);
    ASSERT_EQ(Call("cuMemMap", address, bytes, size_t{0}, piece->first, 0ULL),
              can ? kSuccess : kInvalidValue);
    if (can) piece->second.mapped_at.push_back(address);
  }

  void Unmap(Random& random) {
    const auto block = AnyOf(random, held_.blocks);
    if (block == held_.blocks.end()) return;
    const uint64_t address = block->first;
    const size_t bytes = kGranularity * (1 + random() % (block->second.bytes / kGranularity));
    const bool found = held_.Unmap(address, bytes);
    ASSERT_EQ(Call("cuMemUnmap", address, bytes), found ? kSuccess : kInvalidValue);
  }

  // Frees a block with nothing mapped in it; what is no block's start is refused.
  void FreeAny(Random& random) {
    const auto block = AnyOf(random, held_.blocks);
    if (block == held_.blocks.end()) return;
    const auto [address, of] = *block;
    EXPECT_EQ(Call("cudaFree", reinterpret_cast<void*>(address + 1)), kInvalidValue);
    EXPECT_EQ(Call("cuMemAddressFree", address + of.bytes - 1, of.bytes), kInvalidValue);
    if (held_.Unmap(address, of.bytes)) {
      ASSERT_EQ(Call("cuMemUnmap", address, of.bytes), kSuccess);
    }
    Free(reinterpret_cast<void*>(address));
    held_.blocks.erase(address);
  }

  // Whatever is within a block is of the block, and nothing else is.
  void ExpectRangeOf(uint64_t address) {
    uint64_t start = 0;
    size_t bytes = 0;
    const int result = Call("cuMemGetAddressRange_v2", &start, &bytes, address);
    auto block = held_.blocks.upper_bound(address);
    const bool some = block != held_.blocks.begin() &&
                      address < std::prev(block)->first + std::prev(block)->second.bytes;
    ASSERT_EQ(result, some ? kSuccess : kInvalidValue);
    if (!some) return;
    --block;
    EXPECT_EQ(start, block->first);
    EXPECT_EQ(bytes, block->second.bytes);
  }

  void Step(Random& random) {
    const size_t odd = random() % 3 == 0 ? 1 + random() % kGranularity : 0;
    const size_t bytes = kGranularity * (1 + random() % 60);
    switch (random() % 8) {
      case 0:
      case 1:
        return Allocate(bytes + odd, /*managed=*/false);
      case 2:
        return random() % 2 == 0 ? Allocate(bytes + odd, /*managed=*/true) : Reserve(bytes + odd);
      case 3:
        return Create(bytes + odd);
      case 4:
        return Release(random);
      case 5:
        return Map(random);
      case 6:
        return Unmap(random);
      default:
        return FreeAny(random);
    }
  }

  Held held_;
};

TEST_F(PhantomMemoryTest, RandomProgramsHoldWhatTheyAskedFor) {
  Random random(41);
  for (int step = 0; step < 4000 && !HasFatalFailure(); ++step) {
    Step(random);
    ASSERT_EQ(FreeBytes(), held_.FreeBytes()) << step;
    const auto block = AnyOf(random, held_.blocks);
    if (block == held_.blocks.end()) continue;
    ExpectRangeOf(block->first + random() % block->second.bytes);
    ExpectRangeOf(block->first + block->second.bytes);
  }
}

// A range of addresses is not memory, and memory is none of addresses: each is had alone.
TEST_F(PhantomMemoryTest, AddressesAndMemoryAreCountedApart) {
  const struct {
    size_t bytes;
    int reserved, created;
  } kCases[] = {
      {0, kInvalidValue, kInvalidValue},
      {1, kInvalidValue, kInvalidValue},
      {kGranularity - 1, kInvalidValue, kInvalidValue},
      {kGranularity, kSuccess, kSuccess},
      {kGranularity + kMib, kInvalidValue, kInvalidValue},
      {kCapacity, kSuccess, kSuccess},
      {kCapacity + kGranularity, kSuccess, kOutOfMemory},
      {size_t{2} << 40, kSuccess, kOutOfMemory},       // addresses of 2 TiB
      {size_t{32} << 40, kOutOfMemory, kOutOfMemory},  // more than there are
  };
  for (const auto& [bytes, reserved, created] : kCases) {
    uint64_t address = 0, handle = 0;
    EXPECT_EQ(Call("cuMemAddressReserve", &address, bytes, size_t{0}, uint64_t{0}, 0ULL), reserved)
        << bytes;
    EXPECT_EQ(FreeBytes(), kCapacity) << bytes;
    EXPECT_EQ(Call("cuMemCreate", &handle, bytes, kNoProperties, 0ULL), created) << bytes;
    EXPECT_EQ(FreeBytes(), kCapacity - (created == kSuccess ? bytes : 0)) << bytes;
    if (reserved == kSuccess) {
      EXPECT_EQ(Call("cuMemAddressFree", address, bytes), kSuccess);
    }
    if (created == kSuccess) {
      EXPECT_EQ(Call("cuMemRelease", handle), kSuccess);
    }
  }
}

// Where all 16 TiB of addresses were given out, those that were given back are given again. In a
// process of its own: other tests want addresses too.
class PhantomAddressTest : public PhantomTest {
 protected:
  static uint64_t Reserve(size_t bytes) {
    uint64_t address = 0;
    const int result = Call("cuMemAddressReserve", &address, bytes, size_t{0}, uint64_t{0}, 0ULL);
    return result == kSuccess ? address : 0;
  }

  // Returns what is wrong. 3 TiB, ten times: more than there are, but never at once.
  static std::string ReserveOneByOne() {
    constexpr size_t kRange = size_t{3} << 40;
    for (int i = 0; i < 10; ++i) {
      const uint64_t range = Reserve(kRange);
      if (range == 0) return "nothing is held, and nothing is left";
      if (Call("cuMemAddressFree", range, kRange) != kSuccess) return "cannot be freed";
    }
    return "";
  }

  static std::string ReserveAgainAndAgain() {
    constexpr size_t kRange = size_t{3} << 40, kStep = size_t{1} << 37;
    const uint64_t first = Reserve(kRange);
    if (first == 0) return "no addresses at all";
    size_t others = 0;
    while (Reserve(kStep) != 0) ++others;
    if (others * kStep >= size_t{16} << 40) return "more than there are";
    if (Reserve(kRange) != 0) return "addresses that others have";
    uint64_t range = first;
    for (int i = 0; i < 40; ++i) {
      if (Call("cuMemAddressFree", range, kRange) != kSuccess) return "cannot be freed";
      range = Reserve(kRange);
      if (range == 0) return "not given again";
      if (range > first) return "over those of another";
    }
    return "";
  }
};

TEST_F(PhantomAddressTest, AreGivenAgain) {
  const auto reserve = [](std::string (*run)()) {
    const std::string wrong = run();
    std::fprintf(stderr, "%s\n", wrong.c_str());
    std::_Exit(wrong.empty() ? 0 : 1);
  };
  EXPECT_EXIT(reserve(ReserveAgainAndAgain), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(reserve(ReserveOneByOne), testing::ExitedWithCode(0), "");
}

// Source: CUDA 13 runtime API, cudaMalloc, cudaMallocManaged.
TEST_F(PhantomMemoryTest, NothingIsNoMemoryAndTooMuchIsNone) {
  const struct {
    size_t bytes;
    int plain, managed;
  } kCases[] = {
      {0, kSuccess, kInvalidValue},
      {~size_t{0}, kOutOfMemory, kOutOfMemory},
      {~size_t{0} - kGranularity, kOutOfMemory, kOutOfMemory},
  };
  for (const auto& [bytes, plain, managed] : kCases) {
    void* address = &address;
    EXPECT_EQ(Call("cudaMalloc", &address, bytes), plain) << bytes;
    EXPECT_EQ(address, nullptr) << bytes;
    EXPECT_EQ(Call("cudaMallocManaged", &address, bytes, 1U), managed) << bytes;
    EXPECT_EQ(FreeBytes(), kCapacity) << bytes;
  }
}

TEST_F(PhantomMemoryTest, RuntimeAndDriverTellTheSame) {
  void* const address = Malloc(5 * kMib);
  size_t free_bytes = 0, total_bytes = 0, granularity = 0;
  EXPECT_EQ(Call("cuMemGetInfo_v2", &free_bytes, &total_bytes), kSuccess);
  EXPECT_EQ(free_bytes, FreeBytes());
  EXPECT_EQ(total_bytes, kTotal);
  EXPECT_EQ(Call("cuMemGetAllocationGranularity", &granularity, kNoProperties, 0), kSuccess);
  EXPECT_EQ(granularity, kGranularity);
  const uint64_t number = reinterpret_cast<uint64_t>(address);
  unsigned type = 0;
  uint64_t pointer = 0;
  EXPECT_EQ(Call("cuPointerGetAttribute", static_cast<void*>(&type), 2, number), kSuccess);
  EXPECT_EQ(type, 2U) << "the device's";
  EXPECT_EQ(Call("cuPointerGetAttribute", static_cast<void*>(&pointer), 3, number + 7), kSuccess);
  EXPECT_EQ(pointer, number + 7);
  EXPECT_EQ(Call("cuPointerGetAttribute", static_cast<void*>(&type), 4, number), kInvalidValue);
  const uint64_t own = reinterpret_cast<uint64_t>(&type);
  EXPECT_EQ(Call("cuPointerGetAttribute", static_cast<void*>(&type), 2, own), kInvalidValue);
  Free(address);
}

// Host memory is pinned from its first byte to its last, as long as it is registered.
TEST_F(PhantomMemoryTest, HostMemoryIsPinnedFromItsFirstByteToItsLast) {
  std::vector<char> host(1 << 16);
  std::map<size_t, size_t> pinned;  // offset and size
  Random random(42);
  for (int step = 0; step < 500; ++step) {
    const size_t offset = random() % 16 * 4096;
    if (pinned.count(offset) == 0) {
      pinned[offset] = 1 + random() % 4096;
      EXPECT_EQ(Call("cudaHostRegister", static_cast<void*>(&host[offset]), pinned[offset], 0U),
                kSuccess);
    } else {
      pinned.erase(offset);
      EXPECT_EQ(Call("cudaHostUnregister", static_cast<void*>(&host[offset])), kSuccess);
    }
    const size_t asked = random() % host.size();
    const bool is_pinned = std::any_of(pinned.begin(), pinned.end(), [&](const auto& range) {
      return asked >= range.first && asked < range.first + range.second;
    });
    PointerAttributes attributes;
    const void* const address = &host[asked];
    ASSERT_EQ(Call("cudaPointerGetAttributes", &attributes, address), kSuccess);
    EXPECT_EQ(attributes.type, is_pinned ? kHost : kUnregistered);
    EXPECT_EQ(attributes.device, is_pinned ? 0 : -2);
    EXPECT_EQ(attributes.device_pointer, is_pinned ? address : nullptr);
    EXPECT_EQ(attributes.host_pointer, attributes.device_pointer);
  }
  for (const auto& [offset, bytes] : pinned) {
    EXPECT_EQ(Call("cudaHostUnregister", static_cast<void*>(&host[offset])), kSuccess);
  }
}

// Memory of the GPU beside the same bytes on the host: every copy and fill is done to both.
class PhantomCopyTest : public PhantomTest {
 protected:
  static constexpr size_t kBytes = 3 * kMib;

  void SetUp() override {
    device_ = static_cast<char*>(Malloc(kBytes));
    mirror_.assign(kBytes, 0);
  }
  void TearDown() override { Free(device_); }

  // A range of two bytes or more: one alone is a truth, which is not copied.
  static std::pair<size_t, size_t> AnyRange(Random& random, size_t most) {
    const size_t bytes = 2 + random() % (most - 1);
    return {random() % (kBytes - bytes), bytes};
  }

  void Write(Random& random) {
    const auto [at, bytes] = AnyRange(random, 50'000);
    std::vector<char> written(bytes);
    for (char& one : written) one = static_cast<char>(random());
    Copy(device_ + at, written.data(), bytes);
    std::memcpy(&mirror_[at], written.data(), bytes);
  }

  void Fill(Random& random) {
    const auto [at, bytes] = AnyRange(random, 2 * kMib);
    const int value = static_cast<int>(random() % 256);
    EXPECT_EQ(Call("cudaMemsetAsync", static_cast<void*>(device_ + at), value, bytes, kNoStream),
              kSuccess);
    if (bytes <= kMib) std::memset(&mirror_[at], value, bytes);
  }

  void Move(Random& random) {
    const auto [from, bytes] = AnyRange(random, 2 * kMib);
    const size_t to = random() % (kBytes - bytes);
    const void* const source = device_ + from;
    void* const target = device_ + to;
    if (random() % 2 == 0) {
      EXPECT_EQ(Call("cudaMemcpy", target, source, bytes, 3), kSuccess);
    } else {
      EXPECT_EQ(Call("cudaMemcpyPeerAsync", target, 0, source, 0, bytes, kNoStream), kSuccess);
    }
    if (bytes <= kMib) std::memmove(&mirror_[to], &mirror_[from], bytes);
  }

  // Rows of a picture within a wider one, to the other half.
  void MoveRows(Random& random) {
    const size_t width = 2 + random() % 400, height = 1 + random() % 900;
    const size_t from_pitch = width + random() % 1000, to_pitch = width + random() % 1000;
    const void* const source = device_;
    void* const target = device_ + kBytes / 2;
    EXPECT_EQ(Call("cudaMemcpy2DAsync", target, to_pitch, source, from_pitch, width, height, 3,
                   kNoStream),
              kSuccess);
    for (size_t row = 0; row < height; ++row) {
      std::copy_n(mirror_.begin() + static_cast<ptrdiff_t>(row * from_pitch), width,
                  mirror_.begin() + static_cast<ptrdiff_t>(kBytes / 2 + row * to_pitch));
    }
  }

  void Step(Random& random) {
    switch (random() % 4) {
      case 0:
        return Write(random);
      case 1:
        return Fill(random);
      case 2:
        return Move(random);
      default:
        return MoveRows(random);
    }
  }

  char* device_ = nullptr;
  std::vector<char> mirror_;
};

TEST_F(PhantomCopyTest, WhatIsSmallIsMovedAndWhatIsLargeIsNot) {
  Random random(43);
  std::vector<char> read(kMib);
  for (int step = 0; step < 400; ++step) {
    Step(random);
    const auto [at, bytes] = AnyRange(random, kMib);
    Copy(read.data(), device_ + at, bytes);
    ASSERT_EQ(std::memcmp(read.data(), &mirror_[at], bytes), 0) << step;
  }
}

// What is read of one byte, from all that happened so far. Source: values.h.
struct Happened {
  enum Kind { kWritten, kLaunched, kNumber, kRead } kind;
  const void* what = nullptr;  // the byte, or the kernel
};

// The last of a kind, or none.
const Happened* LastOf(const std::vector<Happened>& all, Happened::Kind kind) {
  const auto found =
      std::find_if(all.rbegin(), all.rend(), [&](const Happened& one) { return one.kind == kind; });
  return found == all.rend() ? nullptr : &*found;
}

// Whether what is read at `from` is what memory holds: the host wrote that byte last, no more
// than two kernels ago, or the thread asked for a number since it last read a byte.
bool IsHeld(const std::vector<Happened>& all, const void* from) {
  const Happened* const written = LastOf(all, Happened::kWritten);
  if (written != nullptr && written->what == from) {
    const auto launches =
        std::count_if(all.begin() + (written - all.data()), all.end(),
                      [](const Happened& one) { return one.kind == Happened::kLaunched; });
    if (launches <= 2) return true;
  }
  const Happened* const number = LastOf(all, Happened::kNumber);
  const Happened* const read = LastOf(all, Happened::kRead);
  return number != nullptr && (read == nullptr || read < number);
}

TEST_F(PhantomCopyTest, OneByteIsWhatTheHostWroteOrWhatKernelsWouldHave) {
  const char plain = 0, any = 0;
  Register(&plain, "_ZN2at6native18elementwise_kernelI11FillFunctor");
  Register(&any, "_ZN2at6native13reduce_kernelI14or_kernel_cuda");
  std::vector<Happened> all;
  for (int i = 0; i < 3; ++i) all.push_back({Happened::kLaunched, &plain});
  for (int i = 0; i < 3; ++i) Launch(&plain);  // what other tests wrote is not its own any more
  Random random(44);
  for (int step = 0; step < 3000; ++step) {
    char* const byte = device_ + random() % 3;
    const size_t index = static_cast<size_t>(byte - device_);
    switch (random() % 4) {
      case 0:
        mirror_[index] = static_cast<char>(2 + random() % 100);
        Copy(byte, &mirror_[index], 1);
        all.push_back({Happened::kWritten, byte});
        break;
      case 1:
        all.push_back({Happened::kLaunched, random() % 2 == 0 ? &plain : &any});
        Launch(all.back().what);
        break;
      case 2:
        if (random() % 4 != 0) break;
        Call<void>("plimsoll_phantom_read_number");
        all.push_back({Happened::kNumber});
        break;
      default:
        char read = 0;
        Copy(&read, byte, 1);
        const char truth = LastOf(all, Happened::kLaunched)->what == &any ? 0 : 1;
        ASSERT_EQ(read, IsHeld(all, byte) ? mirror_[index] : truth) << step;
        all.push_back({Happened::kRead, byte});
    }
  }
}

}  // namespace
}  // namespace plimsoll
