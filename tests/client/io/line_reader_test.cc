// Lines arrive whole, in order, and as soon as they are there.
#include "client/io/line_reader.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace plimsoll {
namespace {

// What the reader makes of `parts`, written one after the other to a pipe: the
// lines, "<long>" for one that is too long.
std::vector<std::string> ReadLines(const std::vector<std::string>& parts) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  LineReader reader(ends[0], 10);
  std::vector<std::string> lines;
  absl::string_view line;
  size_t next = 0;
  for (;;) {
    const LineReader::Result result = reader.Next(&line);
    if (result == LineReader::Result::kEnd) break;
    if (result == LineReader::Result::kLine) lines.emplace_back(line);
    if (result == LineReader::Result::kTooLong) lines.emplace_back("<long>");
    if (result != LineReader::Result::kWait) continue;
    if (next < parts.size()) {
      const std::string& part = parts[next++];
      EXPECT_EQ(write(ends[1], part.data(), part.size()), static_cast<ssize_t>(part.size()));
    } else if (next++ == parts.size()) {
      close(ends[1]);
    }
    EXPECT_TRUE(reader.Fill());
  }
  close(ends[0]);
  return lines;
}

using Lines = std::vector<std::string>;

TEST(LineReaderTest, SplitsAtLineFeeds) {
  EXPECT_EQ(ReadLines({}), Lines());
  EXPECT_EQ(ReadLines({"a\nb\n"}), (Lines{"a", "b"}));
  EXPECT_EQ(ReadLines({"a\nb"}), (Lines{"a", "b"}));
  EXPECT_EQ(ReadLines({"\n\na"}), (Lines{"", "", "a"}));
}

TEST(LineReaderTest, JoinsWhatComesInParts) {
  EXPECT_EQ(ReadLines({"a", "b\nc", "d", "\n"}), (Lines{"ab", "cd"}));
}

TEST(LineReaderTest, SkipsLinesThatAreTooLong) {
  EXPECT_EQ(ReadLines({"0123456789\n"}), Lines{"0123456789"});
  EXPECT_EQ(ReadLines({"0123456789x\nb\n"}), (Lines{"<long>", "b"}));
  EXPECT_EQ(ReadLines({"0123456789x", "0123456789x", "y\nb"}), (Lines{"<long>", "b"}));
  EXPECT_EQ(ReadLines({"0123456789x", "y"}), Lines{"<long>"});
}

TEST(LineReaderTest, SaysThatReadingFails) {
  LineReader reader(-1, 10);
  EXPECT_FALSE(reader.Fill());
}

}  // namespace
}  // namespace plimsoll
