// The phantom's NCCL against ranks that are played out: each holds what this one holds, and the
// collective is done by its definition.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "client/measure/phantom/cuda_types.h"
#include "tests/client/measure/phantom_library.h"

namespace plimsoll {
namespace {

using Random = std::mt19937_64;
using Bytes = std::vector<char>;

constexpr int kInvalidArgument = 4;  // ncclInvalidArgument
constexpr int kInt8 = 0;
constexpr int kSum = 0;
void* const kNoStream = nullptr;
void* const kNoConfig = nullptr;

// Source: nccl.h of NCCL 2.30, ncclDataType_t.
struct Type {
  const char* name;
  int number;
  size_t bytes;
};
constexpr Type kTypes[] = {
    {"int8", 0, 1},    {"uint8", 1, 1},    {"int32", 2, 4},       {"uint32", 3, 4},
    {"int64", 4, 8},   {"uint64", 5, 8},   {"float16", 6, 2},     {"float32", 7, 4},
    {"float64", 8, 8}, {"bfloat16", 9, 2}, {"float8e4m3", 10, 1}, {"float8e5m2", 11, 1},
};

Bytes AnyBytes(Random& random, size_t size) {
  Bytes bytes(size);
  for (char& one : bytes) one = static_cast<char>(random());
  return bytes;
}

class PhantomNcclTest : public PhantomTest {
 protected:
  // Memory of the GPU that is given back with the test; of two bytes or more, as one alone is a
  // truth, which is not copied.
  class Buffer {
   public:
    explicit Buffer(const Bytes& bytes) : address_(static_cast<char*>(Malloc(bytes.size() + 2))) {
      Copy(address_, bytes.data(), bytes.size());
      size_ = bytes.size();
    }
    ~Buffer() { Free(address_); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    void* at(size_t offset = 0) const { return address_ + offset; }
    Bytes Read() const {
      Bytes bytes(size_);
      Copy(bytes.data(), address_, size_);
      return bytes;
    }

   private:
    char* address_;
    size_t size_;
  };

  static void* Communicator(int size, int rank) {
    void* communicator = nullptr;
    EXPECT_EQ(Call("ncclCommInitRankConfig", &communicator, size, UniqueId{}, rank, kNoConfig), 0);
    return communicator;
  }
  static void Destroy(void* communicator) { EXPECT_EQ(Call("ncclCommDestroy", communicator), 0); }

  static int SizeOf(void* communicator) {
    int size = 0;
    EXPECT_EQ(Call("ncclCommCount", communicator, &size), 0);
    return size;
  }
  static int RankOf(void* communicator) {
    int rank = -1;
    EXPECT_EQ(Call("ncclCommUserRank", communicator, &rank), 0);
    return rank;
  }

  // What a rank sends of its own, and what it has after `collective`.
  struct Played {
    std::string collective;
    int size, rank, root;
    Type type;
    size_t count;  // elements, as the call has them

    size_t bytes() const { return count * type.bytes; }
    bool is(const char* name) const { return collective == name; }
    // What the buffers need.
    size_t sent() const { return bytes() * (is("scatter") || is("all-to-all") ? size_of() : 1); }
    size_t received() const { return bytes() * (is("gather") || is("all-to-all") ? size_of() : 1); }
    size_t size_of() const { return static_cast<size_t>(size); }
  };

  static void Do(const Played& played, const void* from, void* to, void* communicator) {
    const auto& [name, size, rank, root, type, count] = played;
    int result = -1;
    if (name == "sum") {
      result = Call("ncclAllReduce", from, to, count, type.number, kSum, communicator, kNoStream);
    } else if (name == "reduce") {
      result =
          Call("ncclReduce", from, to, count, type.number, kSum, root, communicator, kNoStream);
    } else if (name == "broadcast") {
      result = Call("ncclBroadcast", from, to, count, type.number, root, communicator, kNoStream);
    } else if (name == "gather") {
      result = Call("ncclAllGather", from, to, count, type.number, communicator, kNoStream);
    } else if (name == "scatter") {
      result =
          Call("ncclReduceScatter", from, to, count, type.number, kSum, communicator, kNoStream);
    }
    EXPECT_EQ(result, 0) << name;
  }

  // What each of the ranks would leave here, were a sum of equals one of them.
  static Bytes Expected(const Played& played, const Bytes& own, Bytes before) {
    const std::vector<Bytes> ranks(static_cast<size_t>(played.size), own);
    const auto rank = static_cast<size_t>(played.rank);
    if (played.is("sum") || (played.is("reduce") && played.rank == played.root)) return ranks[rank];
    if (played.is("broadcast") && played.rank == played.root) return ranks[rank];
    if (played.is("scatter")) {
      const auto begin = ranks[rank].begin() + static_cast<ptrdiff_t>(rank * played.bytes());
      return {begin, begin + static_cast<ptrdiff_t>(played.bytes())};
    }
    if (!played.is("gather")) return before;
    Bytes all;
    for (const Bytes& of_rank : ranks) all.insert(all.end(), of_rank.begin(), of_rank.end());
    return all;
  }

  static Played AnyPlayed(Random& random, size_t most_count) {
    const char* const kCollectives[] = {"sum", "reduce", "broadcast", "gather", "scatter"};
    const int size = 1 + static_cast<int>(random() % 8);
    return {.collective = kCollectives[random() % 5],
            .size = size,
            .rank = static_cast<int>(random() % static_cast<uint64_t>(size)),
            .root = static_cast<int>(random() % static_cast<uint64_t>(size)),
            .type = kTypes[random() % std::size(kTypes)],
            .count = 2 + random() % most_count};
  }
};

TEST_F(PhantomNcclTest, CollectivesAreOfRanksThatAreAlike) {
  Random random(51);
  for (int i = 0; i < 400; ++i) {
    const Played played = AnyPlayed(random, 200);
    void* const communicator = Communicator(played.size, played.rank);
    const Bytes own = AnyBytes(random, played.sent());
    const Bytes before = AnyBytes(random, played.received());
    const Buffer from(own), to(before);
    Do(played, from.at(), to.at(), communicator);
    EXPECT_EQ(to.Read(), Expected(played, own, before))
        << played.collective << " of " << played.count << " " << played.type.name << ", rank "
        << played.rank << " of " << played.size;
    EXPECT_EQ(from.Read(), own) << "what is sent stays";
    Destroy(communicator);
  }
}

// A gathered list may hold its own part already, and a scattered sum may be written over its own.
TEST_F(PhantomNcclTest, CollectivesMayBeInPlace) {
  Random random(52);
  for (int i = 0; i < 100; ++i) {
    Played played = AnyPlayed(random, 200);
    played.collective = i % 2 == 0 ? "gather" : "scatter";
    void* const communicator = Communicator(played.size, played.rank);
    const size_t part = static_cast<size_t>(played.rank) * played.bytes();
    const Bytes whole = AnyBytes(random, played.bytes() * played.size_of());
    const Buffer buffer(whole);
    const Bytes own(whole.begin() + static_cast<ptrdiff_t>(part),
                    whole.begin() + static_cast<ptrdiff_t>(part + played.bytes()));
    if (played.is("gather")) {
      Do(played, buffer.at(part), buffer.at(), communicator);
      EXPECT_EQ(buffer.Read(), Expected(played, own, {}));
    } else {
      Do(played, buffer.at(), buffer.at(part), communicator);
      EXPECT_EQ(buffer.Read(), whole) << "its own part is in its place";
    }
    Destroy(communicator);
  }
}

// A tensor of over a mebibyte costs the host nothing, whatever is done with it.
TEST_F(PhantomNcclTest, WhatIsLargeIsNotMoved) {
  Random random(53);
  constexpr size_t kParts = 2;
  const size_t large = kMib + 1;
  const Buffer from(AnyBytes(random, kMib));  // as much as a copy takes
  void* const to = Malloc(kParts * large);
  const Bytes nothing(1000, 0);
  for (const char* const collective : {"sum", "reduce", "broadcast", "gather", "scatter"}) {
    void* const communicator = Communicator(kParts, 0);
    Do({collective, kParts, 0, 0, kTypes[kInt8], large}, from.at(), to, communicator);
    Bytes read(nothing.size(), 1);
    Copy(read.data(), to, read.size());
    EXPECT_EQ(read, nothing) << collective;
    Destroy(communicator);
  }
  Free(to);
}

// Sends and receipts of all with all are an exchange, by one call or by many.
TEST_F(PhantomNcclTest, AnExchangeIsTheSameByOneCallOrByMany) {
  Random random(54);
  for (int i = 0; i < 100; ++i) {
    const Type type = kTypes[random() % std::size(kTypes)];
    const int size = 1 + static_cast<int>(random() % 6);
    const size_t count = 2 + random() % 50;
    const size_t part = count * type.bytes;
    void* const communicator =
        Communicator(size, static_cast<int>(random() % static_cast<uint64_t>(size)));
    const Bytes own = AnyBytes(random, part * static_cast<size_t>(size));
    const Buffer from(own), by_one(Bytes(own.size(), 0)), by_many(Bytes(own.size(), 0));
    const void* const sent = from.at();
    EXPECT_EQ(Call("ncclAlltoAll", sent, by_one.at(), count, type.number, communicator, kNoStream),
              0);
    EXPECT_EQ(Call("ncclGroupStart"), 0);
    for (int peer = 0; peer < size; ++peer) {
      const size_t offset = static_cast<size_t>(peer) * part;
      const void* const to_peer = from.at(offset);
      EXPECT_EQ(Call("ncclSend", to_peer, count, type.number, peer, communicator, kNoStream), 0);
      EXPECT_EQ(
          Call("ncclRecv", by_many.at(offset), count, type.number, peer, communicator, kNoStream),
          0);
    }
    EXPECT_EQ(by_many.Read(), Bytes(own.size(), 0)) << "nothing moves before the group ends";
    EXPECT_EQ(Call("ncclGroupEnd"), 0);
    EXPECT_EQ(by_many.Read(), by_one.Read());
    EXPECT_EQ(by_one.Read(), own);
    Destroy(communicator);
  }
}

// Who is sent nothing sends nothing; another size is another message.
TEST_F(PhantomNcclTest, AReceiptWithoutItsLikeIsLeftAlone) {
  const struct {
    const char* what;
    int sent_to, received_from;
    size_t sent_count, received_count;
    bool moved;
  } kCases[] = {
      {"the same", 1, 1, 8, 8, true},
      {"another rank", 2, 1, 8, 8, false},
      {"a shorter one", 1, 1, 8, 4, false},
      {"a longer one", 1, 1, 4, 8, false},
  };
  void* const communicator = Communicator(3, 0);
  for (const auto& [what, sent_to, received_from, sent_count, received_count, moved] : kCases) {
    const Bytes own = {1, 2, 3, 4, 5, 6, 7, 8}, before(8, 9);
    const Buffer from(own), to(before);
    const void* const sent = from.at();
    EXPECT_EQ(Call("ncclGroupStart"), 0);
    EXPECT_EQ(Call("ncclGroupStart"), 0) << "groups within groups end with the outermost";
    EXPECT_EQ(
        Call("ncclRecv", to.at(), received_count, kInt8, received_from, communicator, kNoStream),
        0);
    EXPECT_EQ(Call("ncclSend", sent, sent_count, kInt8, sent_to, communicator, kNoStream), 0);
    EXPECT_EQ(Call("ncclGroupEnd"), 0);
    EXPECT_EQ(to.Read(), before) << what;
    EXPECT_EQ(Call("ncclGroupEnd"), 0);
    EXPECT_EQ(to.Read(), moved ? own : before) << what;
  }
  Destroy(communicator);
}

// Several of a size are received in the order in which they were sent; what was sent or broadcast
// outside a group is none of the next one's.
TEST_F(PhantomNcclTest, MessagesAreReceivedOnceAndInOrder) {
  void* const communicator = Communicator(3, 0);
  const Buffer first({1, 1, 1, 1}), second({2, 2, 2, 2}), alone({3, 3, 3, 3});
  const Buffer one(Bytes(4, 0)), two(Bytes(4, 0)), three(Bytes(4, 0)), awaited(Bytes(4, 0));
  const size_t count = 4;
  const auto send = [&](const Buffer& from) {
    const void* const sent = from.at();
    EXPECT_EQ(Call("ncclSend", sent, count, kInt8, 1, communicator, kNoStream), 0);
  };
  const auto receive = [&](const Buffer& to) {
    EXPECT_EQ(Call("ncclRecv", to.at(), count, kInt8, 1, communicator, kNoStream), 0);
  };
  const auto broadcast = [&](const Buffer& of, int root) {
    const void* const from = of.at();
    EXPECT_EQ(Call("ncclBroadcast", from, of.at(), count, kInt8, root, communicator, kNoStream), 0);
  };
  send(alone);
  broadcast(alone, 0);
  EXPECT_EQ(Call("ncclGroupStart"), 0);
  send(first);
  send(second);
  for (const Buffer* const to : {&one, &two, &three}) receive(*to);
  broadcast(awaited, 1);
  EXPECT_EQ(Call("ncclGroupEnd"), 0);
  EXPECT_EQ(one.Read(), first.Read());
  EXPECT_EQ(two.Read(), second.Read());
  EXPECT_EQ(three.Read(), Bytes(4, 0)) << "two were sent";
  EXPECT_EQ(awaited.Read(), Bytes(4, 0)) << "this rank broadcast nothing in the group";
  Destroy(communicator);
}

// As torch gathers tensors of different sizes: a broadcast of each rank's, in one group. Another
// rank's is what this one's is, where it is as large.
TEST_F(PhantomNcclTest, AGroupOfBroadcastsGathersWhatIsAsLarge) {
  Random random(55);
  for (int i = 0; i < 100; ++i) {
    const int size = 2 + static_cast<int>(random() % 5);
    const int rank = static_cast<int>(random() % static_cast<uint64_t>(size));
    void* const communicator = Communicator(size, rank);
    std::vector<size_t> counts;
    for (int peer = 0; peer < size; ++peer) counts.push_back(2 + random() % 3);
    const size_t own_count = counts[static_cast<size_t>(rank)];
    const Bytes own = AnyBytes(random, own_count);
    const Buffer from(own);
    std::vector<std::unique_ptr<Buffer>> to;
    EXPECT_EQ(Call("ncclGroupStart"), 0);
    for (int root = 0; root < size; ++root) {
      const size_t count = counts[static_cast<size_t>(root)];
      to.push_back(std::make_unique<Buffer>(Bytes(count, 0)));
      const void* const sent = from.at();
      EXPECT_EQ(
          Call("ncclBroadcast", sent, to.back()->at(), count, kInt8, root, communicator, kNoStream),
          0);
    }
    EXPECT_EQ(Call("ncclGroupEnd"), 0);
    for (size_t root = 0; root < counts.size(); ++root) {
      const bool as_large = counts[root] == own_count;
      EXPECT_EQ(to[root]->Read(), as_large ? own : Bytes(counts[root], 0)) << root;
    }
    Destroy(communicator);
  }
}

TEST_F(PhantomNcclTest, ACommunicatorKnowsItsRank) {
  const struct {
    int size, rank;
    bool is_one;
  } kCases[] = {{1, 0, true},  {8, 0, true},  {8, 7, true},   {4096, 4095, true},
                {0, 0, false}, {8, 8, false}, {8, -1, false}, {-1, 0, false}};
  UniqueId id;
  EXPECT_EQ(Call("ncclGetUniqueId", &id), 0);
  for (const auto& [size, rank, is_one] : kCases) {
    void* made[3] = {};
    const int expected = is_one ? 0 : kInvalidArgument;
    EXPECT_EQ(Call("ncclCommInitRank", &made[0], size, id, rank), expected) << size;
    EXPECT_EQ(Call("ncclCommInitRankConfig", &made[1], size, id, rank, kNoConfig), expected);
    EXPECT_EQ(Call("ncclCommInitRankScalable", &made[2], size, rank, 1, &id, kNoConfig), expected);
    for (void* const communicator : made) {
      ASSERT_EQ(communicator != nullptr, is_one) << rank << " of " << size;
      if (!is_one) continue;
      EXPECT_EQ(SizeOf(communicator), size);
      EXPECT_EQ(RankOf(communicator), rank);
      int device = -1, error = -1;
      EXPECT_EQ(Call("ncclCommCuDevice", communicator, &device), 0);
      EXPECT_EQ(device, 0);
      EXPECT_EQ(Call("ncclCommGetAsyncError", communicator, &error), 0);
      EXPECT_EQ(error, 0);
      Destroy(communicator);
    }
  }
}

// A part has as many ranks as torch said, or else as the whole; its key is its rank there, as
// long as that is one.
TEST_F(PhantomNcclTest, APartHasTheSizeThatWasSaid) {
  const struct {
    int whole, said, color, key;
    int size, rank;  // 0: no part
  } kCases[] = {
      {8, 2, 0, 1, 2, 1},  {8, 4, 3, 2, 4, 2}, {8, 0, 0, 5, 8, 5},
      {8, 8, 1, 7, 8, 7},  {8, 2, 0, 5, 2, 0},  // a key that is no rank of two
      {8, 2, -1, 0, 0, 0},                      // of no color
      {1, 0, 0, 0, 1, 0},
  };
  for (const auto& [whole, said, color, key, size, rank] : kCases) {
    void* const communicator = Communicator(whole, 0);
    void* part = communicator;
    Call<void>("plimsoll_phantom_next_group_size", said);
    EXPECT_EQ(Call("ncclCommSplit", communicator, color, key, &part, kNoConfig), 0);
    Call<void>("plimsoll_phantom_next_group_size", 0);
    ASSERT_EQ(part != nullptr, size > 0) << "of color " << color;
    if (part != nullptr) {
      EXPECT_EQ(SizeOf(part), size);
      EXPECT_EQ(RankOf(part), rank);
      Destroy(part);
    }
    EXPECT_EQ(SizeOf(communicator), whole) << "the whole stays as it is";
    Destroy(communicator);
  }
}

// Each call that sends or receives uses its communicator, once; those that only ask do not.
TEST_F(PhantomNcclTest, EachThatSendsOrReceivesIsUsedOnce) {
  const Buffer from(Bytes(8, 1)), to(Bytes(8, 2));
  std::vector<int> expected = UsedCommunicators();
  int size = 100;
  for (const char* const collective :
       {"sum", "reduce", "broadcast", "gather", "scatter", "send", "receive", "exchange", "none"}) {
    void* const communicator = Communicator(++size, 1);
    const std::string name = collective;
    for (int i = 0; i < 3; ++i) {
      const void* const sent = from.at();
      if (name == "send") {
        Call("ncclSend", sent, size_t{0}, kInt8, 0, communicator, kNoStream);
      } else if (name == "receive") {
        Call("ncclRecv", to.at(), size_t{0}, kInt8, 0, communicator, kNoStream);
      } else if (name == "exchange") {
        Call("ncclAlltoAll", sent, to.at(), size_t{0}, kInt8, communicator, kNoStream);
      } else if (name != "none") {
        Do({name, size, 1, 0, kTypes[kInt8], 0}, sent, to.at(), communicator);
      }
    }
    EXPECT_EQ(SizeOf(communicator), size);
    if (name != "none") expected.push_back(size);
    EXPECT_EQ(UsedCommunicators(), expected) << name;
    Destroy(communicator);
  }
  int first = 0;
  EXPECT_EQ(Call("plimsoll_phantom_used_communicators", &first, 1),
            static_cast<int>(expected.size()))
      << "as many as there are, not as were written";
  EXPECT_EQ(first, expected[0]);
}

// Buffers of NCCL are the GPU's memory, as any other.
TEST_F(PhantomNcclTest, ItsBuffersAreTheGpus) {
  const size_t before = FreeBytes();
  void* buffer = nullptr;
  EXPECT_EQ(Call("ncclMemAlloc", &buffer, 3 * kMib), 0);
  EXPECT_EQ(FreeBytes(), before - 4 * kMib) << "2 MiB at a time";
  void* registered = nullptr;
  void* window = nullptr;
  void* const communicator = Communicator(2, 0);
  EXPECT_EQ(Call("ncclCommRegister", communicator, buffer, 3 * kMib, &registered), 0);
  EXPECT_EQ(Call("ncclCommWindowRegister", communicator, buffer, 3 * kMib, &window, 0), 0);
  EXPECT_NE(registered, nullptr);
  EXPECT_NE(window, nullptr);
  Destroy(communicator);
  void* large = nullptr;
  EXPECT_NE(Call("ncclMemAlloc", &large, before), 0) << "3 MiB are taken";
  EXPECT_EQ(large, nullptr);
  EXPECT_EQ(Call("ncclMemFree", buffer), 0);
  EXPECT_EQ(Call("ncclMemFree", buffer), kInvalidArgument) << "twice";
  EXPECT_EQ(Call("ncclMemFree", large), 0) << "null is nothing to free";
  EXPECT_EQ(FreeBytes(), before);
}

TEST_F(PhantomNcclTest, SaysWhatItIs) {
  int version = 0, operation = 0;
  EXPECT_EQ(Call("ncclGetVersion", &version), 0);
  EXPECT_EQ(version / 10000, 2);
  void* const communicator = Communicator(2, 0);
  void* const scale = nullptr;
  EXPECT_EQ(Call("ncclRedOpCreatePreMulSum", &operation, scale, 7, 0, communicator), 0);
  EXPECT_GT(operation, 4) << "none of NCCL's own five";
  UniqueId first, second;
  EXPECT_EQ(Call("ncclGetUniqueId", &first), 0);
  EXPECT_EQ(Call("ncclCommGetUniqueId", communicator, &second), 0);
  EXPECT_EQ(std::memcmp(&first, &second, sizeof first), 0);
  EXPECT_STREQ(Call<const char*>("ncclGetErrorString", 0), "no error");
  EXPECT_THAT(Call<const char*>("ncclGetErrorString", 3), testing::HasSubstr("phantom"));
  EXPECT_STREQ(Call<const char*>("ncclGetLastError", communicator), "");
  Destroy(communicator);
}

}  // namespace
}  // namespace plimsoll
