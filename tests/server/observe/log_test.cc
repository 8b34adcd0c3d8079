// A line is one JSON object, whatever is in it.
#include "server/observe/log.h"

#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"

namespace plimsoll {
namespace {

using google::protobuf::Struct;
using testing::IsEmpty;
using testing::SizeIs;

class LogTest : public testing::Test {
 protected:
  Log::Sink Sink() {
    return [this](const std::string& line) { lines_.push_back(line); };
  }

  // The object of the only line.
  Struct Only() const {
    EXPECT_THAT(lines_, SizeIs(1));
    Struct object;
    EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(lines_.at(0), &object).ok());
    return object;
  }

  std::vector<std::string> lines_;
};

TEST_F(LogTest, WritesFieldsInOrder) {
  const Log log(LogLevel::kInfo, Sink());
  log.Write(LogLevel::kWarning, "refused", {{"method", "EstimateMemory"}, {"duration_ms", 1.5}});
  ASSERT_THAT(lines_, SizeIs(1));
  const size_t time = lines_[0].find("\"level\"");
  EXPECT_EQ(lines_[0].substr(0, 9), "{\"time\":\"");
  EXPECT_EQ(lines_[0].substr(time),
            "\"level\":\"warning\",\"event\":\"refused\",\"method\":\"EstimateMemory\","
            "\"duration_ms\":1.5}\n");
}

TEST_F(LogTest, TellsTheTimeInUtc) {
  const absl::Time before = absl::Now();
  Log(LogLevel::kInfo, Sink()).Write(LogLevel::kInfo, "serving", {});
  const absl::Time after = absl::Now();
  absl::Time time;
  std::string error;
  ASSERT_TRUE(
      absl::ParseTime(absl::RFC3339_full, Only().fields().at("time").string_value(), &time, &error))
      << error;
  EXPECT_LE(before, time);
  EXPECT_LE(time, after);
}

TEST_F(LogTest, LeavesOutWhatIsBelowItsLevel) {
  const std::vector<LogLevel> kLevels = {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning,
                                         LogLevel::kError};
  for (size_t least = 0; least < kLevels.size(); ++least) {
    const Log log(kLevels[least], Sink());
    for (size_t level = 0; level < kLevels.size(); ++level) {
      lines_.clear();
      log.Write(kLevels[level], "event", {});
      EXPECT_EQ(lines_.size(), level >= least ? 1u : 0u);
      EXPECT_EQ(log.Wants(kLevels[level]), level >= least);
    }
  }
  const Log off(LogLevel::kOff, Sink());
  lines_.clear();
  off.Write(LogLevel::kError, "event", {});
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(LogTest, StaysOneLineOfUtf8WhateverCallersSend) {
  const Log log(LogLevel::kInfo, Sink());
  log.Write(LogLevel::kInfo, "refused",
            {{"a", "line\nbreak \"quoted\" \\ \x01"}, {"b", "\xff\xfe"}, {"c", "é"}});
  ASSERT_THAT(lines_, SizeIs(1));
  EXPECT_EQ(lines_[0].find('\n'), lines_[0].size() - 1);
  const Struct object = Only();
  EXPECT_EQ(object.fields().at("a").string_value(), "line\nbreak \"quoted\" \\ \x01");
  EXPECT_EQ(object.fields().at("b").string_value(), "??");
  EXPECT_EQ(object.fields().at("c").string_value(), "é");
}

TEST_F(LogTest, ShortensLongText) {
  Log(LogLevel::kInfo, Sink()).Write(LogLevel::kInfo, "refused", {{"a", std::string(5000, 'x')}});
  EXPECT_EQ(Only().fields().at("a").string_value(), std::string(1021, 'x') + "...");
}

TEST(LogLevelTest, HasNames) {
  EXPECT_EQ(ParseLogLevel("debug"), LogLevel::kDebug);
  EXPECT_EQ(ParseLogLevel("info"), LogLevel::kInfo);
  EXPECT_EQ(ParseLogLevel("warning"), LogLevel::kWarning);
  EXPECT_EQ(ParseLogLevel("error"), LogLevel::kError);
  EXPECT_EQ(ParseLogLevel("off"), LogLevel::kOff);
  for (const char* const name : {"", "Info", "warn", "none"}) {
    EXPECT_EQ(ParseLogLevel(name), std::nullopt) << name;
  }
}

}  // namespace
}  // namespace plimsoll
