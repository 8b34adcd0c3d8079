// Bytes written by hand are those that protobuf's own serializer writes.
#include "server/wire/wire_writer.h"

#include <cstdint>
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "plimsoll/v1/planner.pb.h"

namespace plimsoll {
namespace {

std::string LedgerBytes(const v1::LedgerEntry& from) {
  WireWriter writer;
  writer.Text(v1::LedgerEntry::kBlockFieldNumber, from.block());
  writer.Number(v1::LedgerEntry::kRoleFieldNumber, static_cast<int>(from.role()));
  writer.Number(v1::LedgerEntry::kBytesFieldNumber, from.bytes());
  writer.Number(v1::LedgerEntry::kCountFieldNumber, from.count());
  for (const std::string& pass : from.shrunk_by()) {
    writer.Bytes(v1::LedgerEntry::kShrunkByFieldNumber, pass);
  }
  return std::string(writer.bytes());
}

TEST(WireWriterTest, NumbersOfEveryLengthAndSign) {
  for (int bit = 0; bit < 64; ++bit) {
    for (const int64_t nudge : {-1, 0, 1}) {
      v1::LedgerEntry entry;
      entry.set_bytes(static_cast<int64_t>((uint64_t{1} << bit) + static_cast<uint64_t>(nudge)));
      entry.set_count(-1);
      entry.set_role(v1::ROLE_LOSS);
      EXPECT_EQ(LedgerBytes(entry), entry.SerializeAsString()) << entry.bytes();
    }
  }
}

// The form for messages of nothing but numbers writes the same.
TEST(WireWriterTest, MessagesOfNumbersOfEveryLengthAndSign) {
  for (int bit = 0; bit < 64; ++bit) {
    for (const int64_t nudge : {-1, 0, 1}) {
      v1::RankMemory rank;
      v1::Moment* const moment = rank.add_moments();
      moment->set_phase(v1::PHASE_LOSS);
      moment->set_peak_allocated_bytes(
          static_cast<int64_t>((uint64_t{1} << bit) + static_cast<uint64_t>(nudge)));
      moment->set_uncapped_peak_reserved_bytes(-1);
      WireWriter writer;
      writer.Message(v1::RankMemory::kMomentsFieldNumber,
                     {{v1::Moment::kPhaseFieldNumber, static_cast<int>(moment->phase())},
                      {v1::Moment::kFirstStepFieldNumber, false},
                      {v1::Moment::kPeakAllocatedBytesFieldNumber, moment->peak_allocated_bytes()},
                      {v1::Moment::kUncappedPeakReservedBytesFieldNumber, int64_t{-1}}});
      EXPECT_EQ(std::string(writer.bytes()), rank.SerializeAsString()) << bit << " " << nudge;
    }
  }
}

// However many bytes are kept for the length, as many are used as it takes.
TEST(WireWriterTest, LengthsThatAreGuessedWrong) {
  for (const size_t kept : {1, 2, 3}) {
    for (const size_t length : {0, 1, 125, 126, 127, 128, 129, 16383, 16384, 40000}) {
      v1::BatchEstimateMemoryResult result;
      result.mutable_response()->set_detail(std::string(length, 'x'));
      WireWriter writer;
      writer.Message(
          v1::BatchEstimateMemoryResult::kResponseFieldNumber,
          [&] {
            writer.Text(v1::EstimateMemoryResponse::kDetailFieldNumber, result.response().detail());
          },
          kept);
      EXPECT_EQ(std::string(writer.bytes()), result.SerializeAsString()) << kept << " " << length;
    }
  }
}

TEST(WireWriterTest, DoublesOfEveryKind) {
  for (const double value : {0.0, -0.0, 1.5, -1e300, 5e-324}) {
    v1::StepTermSeconds entry;
    entry.set_seconds(value);
    WireWriter writer;
    writer.Double(v1::StepTermSeconds::kSecondsFieldNumber, value);
    EXPECT_EQ(std::string(writer.bytes()), entry.SerializeAsString()) << value;
  }
}

TEST(WireWriterTest, ZeroAndEmptyAreLeftOut) {
  EXPECT_EQ(LedgerBytes({}), "");
  WireWriter writer;
  writer.Message(1, [] {});
  EXPECT_EQ(writer.bytes(), absl::string_view("\x0a\x00", 2));  // a message that is set
}

TEST(WireWriterTest, AnElementOfARepeatedTextMayBeEmpty) {
  v1::LedgerEntry entry;
  entry.add_shrunk_by("");
  entry.add_shrunk_by("zero");
  EXPECT_EQ(LedgerBytes(entry), entry.SerializeAsString());
}

TEST(WireWriterTest, RepeatedNumbersArePacked) {
  for (const int count : {0, 1, 2, 100, 5000}) {
    v1::TimelinePoint point;
    for (int i = 0; i < count; ++i) point.add_role_bytes((int64_t{1} << (i % 63)) - 1);
    WireWriter writer;
    writer.Numbers(v1::TimelinePoint::kRoleBytesFieldNumber, point.role_bytes().begin(),
                   point.role_bytes().end());
    EXPECT_EQ(std::string(writer.bytes()), point.SerializeAsString()) << count;
  }
}

// Lengths around each size of a length, and around the buffer's.
TEST(WireWriterTest, MessagesAndTextsOfEveryLength) {
  for (const size_t length : {0, 1, 125, 126, 127, 128, 129, 8150, 8190, 8191, 8192, 8193, 8200,
                              9000, 16383, 16384, 16385, 40000, 3000000}) {
    v1::BatchEstimateMemoryResponse response;
    for (int i = 0; i < 3; ++i) {
      response.add_results()->mutable_response()->set_detail(std::string(length, 'x'));
    }
    WireWriter writer;
    for (const auto& result : response.results()) {
      writer.Message(v1::BatchEstimateMemoryResponse::kResultsFieldNumber, [&] {
        writer.Message(v1::BatchEstimateMemoryResult::kResponseFieldNumber, [&] {
          writer.Text(v1::EstimateMemoryResponse::kDetailFieldNumber, result.response().detail());
        });
      });
    }
    EXPECT_TRUE(writer.bytes() == response.SerializeAsString()) << length;
  }
}

TEST(WireWriterTest, TextsOfTwoParts) {
  for (const size_t length : {0, 1, 126, 127, 128, 8190, 8192, 9000, 16384, 3000000}) {
    const std::string second(length, 'x');
    v1::Assumption assumption;
    assumption.set_field("job." + second);
    WireWriter writer;
    writer.Bytes(v1::Assumption::kFieldFieldNumber, "job.", second);
    EXPECT_TRUE(writer.bytes() == assumption.SerializeAsString()) << length;
  }
}

TEST(WireWriterTest, RandomMessages) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 2000; ++round) {
    v1::EstimateMemoryResponse response;
    WireWriter writer;
    for (uint64_t left = random() % 20; left > 0; --left) {
      v1::LedgerEntry* const entry = response.add_ledger();
      entry->set_block(std::string(random() % 300, 'b'));
      entry->set_bytes(static_cast<int64_t>(random() >> random() % 64));
      for (uint64_t passes = random() % 3; passes > 0; --passes) entry->add_shrunk_by("pass");
      writer.Bytes(v1::EstimateMemoryResponse::kLedgerFieldNumber, LedgerBytes(*entry));
    }
    EXPECT_EQ(std::string(writer.bytes()), response.SerializeAsString());
  }
}

}  // namespace
}  // namespace plimsoll
