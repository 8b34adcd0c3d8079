// What comes in and goes out: lines however they are cut, files, streams that are full, terminals.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/io/exit_code.h"
#include "client/io/line_reader.h"
#include "client/io/output_file.h"
#include "client/io/progress.h"
#include "client/io/standard_streams.h"
#include "client/io/terminal.h"
#include "client/io/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/test_files.h"

namespace plimsoll {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(ExitCodeTest, EveryStatusHasOne) {
  using Code = absl::StatusCode;
  for (int number = 1; number <= 16; ++number) {
    const auto code = static_cast<Code>(number);
    ExitCode expected = ExitCode::kFailure;
    if (code == Code::kInvalidArgument || code == Code::kNotFound || code == Code::kOutOfRange) {
      expected = ExitCode::kBadInput;
    }
    if (code == Code::kUnavailable || code == Code::kDeadlineExceeded ||
        code == Code::kResourceExhausted) {
      expected = ExitCode::kOutOfReach;
    }
    EXPECT_EQ(ToExitCode(absl::Status(code, "why")), expected) << number;
  }
}

constexpr size_t kMaxLine = 10;

// What a reader makes of a text that comes in parts of random sizes.
std::vector<std::string> InParts(const std::string& text, std::mt19937_64* random) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  LineReader reader(ends[0], kMaxLine);
  std::vector<std::string> lines;
  absl::string_view line;
  size_t at = 0;
  for (LineReader::Result result = reader.Next(&line); result != LineReader::Result::kEnd;
       result = reader.Next(&line)) {
    if (result == LineReader::Result::kLine) lines.emplace_back(line);
    if (result == LineReader::Result::kTooLong) lines.emplace_back("<long>");
    if (result != LineReader::Result::kWait) continue;
    const size_t size = std::min<size_t>(text.size() - at, 1 + (*random)() % 15);
    if (size == 0) close(std::exchange(ends[1], -1));
    if (size > 0) {
      EXPECT_EQ(write(ends[1], text.data() + at, size), static_cast<ssize_t>(size));
    }
    at += size;
    EXPECT_TRUE(reader.Fill());
  }
  close(ends[0]);
  return lines;
}

TEST(LinesInPartsTest, AreTheLinesOfTheWhole) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 500; ++round) {
    std::string text;
    for (size_t left = random() % 60; left > 0; --left) text += "aaaaab\n\0\r"[random() % 9];
    std::vector<std::string> expected = absl::StrSplit(text, '\n');
    if (expected.back().empty()) expected.pop_back();  // a line feed ends a line
    for (std::string& line : expected) {
      if (line.size() > kMaxLine) line = "<long>";
    }
    ASSERT_EQ(InParts(text, &random), expected) << text;
  }
}

TEST(OutputFileTest, HasTheTextAndNothingElse) {
  const std::string path = WriteTestFile("out", std::string(10'000, 'x'));
  for (const std::string& text :
       {std::string("a\n\0b\r\n\xff", 7), std::string(), std::string(3'000'000, 'y')}) {
    EXPECT_TRUE(WriteFile("--timeline", path, text).ok());
    EXPECT_EQ(Contents(path), text);
  }
}

TEST(OutputFileTest, SaysWhatTheSystemSaid) {
  const struct {
    std::string path;
    const char* said;
  } kRows[] = {
      {TestPath("none") + "/out", "No such file or directory"},
      {testing::TempDir(), "Is a directory"},
      {"/dev/full", "No space left on device"},
  };
  for (const auto& row : kRows) {
    EXPECT_EQ(WriteFile("--timeline", row.path, "text"),
              absl::InternalError(absl::StrCat("--timeline: ", row.path, "; ", row.said)));
  }
}

// A standard stream that leads to a file for as long as this lives.
class Redirected {
 public:
  Redirected(std::FILE* stream, const std::string& path) : stream_(stream) {
    std::fflush(stream);
    old_ = dup(fileno(stream));
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    dup2(file, fileno(stream));
    close(file);
  }
  ~Redirected() {
    std::fflush(stream_);
    std::clearerr(stream_);
    dup2(old_, fileno(stream_));
    close(old_);
  }
  Redirected(const Redirected&) = delete;
  Redirected& operator=(const Redirected&) = delete;

 private:
  std::FILE* stream_;
  int old_ = -1;
};

TEST(StandardStreamsTest, AnAnswerIsWrittenWholeOrFails) {
  const std::string out = TestPath("stdout");
  const std::string err = TestPath("stderr");
  const std::string text("answer\n\0more\n", 13);
  ExitCode code{};
  {
    const Redirected stdout_to(stdout, out), stderr_to(stderr, err);
    code = Finish(text, ExitCode::kAtRisk);
  }
  EXPECT_EQ(code, ExitCode::kAtRisk);
  EXPECT_EQ(Contents(out), text);
  EXPECT_EQ(Contents(err), "");
  bool written = true;
  {
    const Redirected stdout_to(stdout, "/dev/full"), stderr_to(stderr, err);
    code = Finish(text, ExitCode::kDone);
    written = WriteOutput("more");
  }
  EXPECT_EQ(code, ExitCode::kFailure);
  EXPECT_FALSE(written);
  EXPECT_EQ(Contents(err), "standard output: cannot be written to\n");
}

TEST(StandardStreamsTest, WordsAreCleanAndOnLinesOfTheirOwn) {
  const std::string err = TestPath("words");
  ExitCode code{};
  {
    const Redirected stderr_to(stderr, err);
    Say("one\ntwo \x1b[31mred\x07");
    code = Fail(absl::InvalidArgumentError("a: 1; must\nb: 2; must"));
  }
  EXPECT_EQ(code, ExitCode::kBadInput);
  const std::string said = Contents(err);
  EXPECT_THAT(said, StartsWith("one\ntwo "));
  EXPECT_THAT(said, HasSubstr("red"));
  EXPECT_TRUE(absl::EndsWith(said, "\na: 1; must\nb: 2; must\n")) << said;
  EXPECT_EQ(said.find_first_of("\x1b\x07"), std::string::npos);
}

// Where nobody sees it, progress is nothing.
TEST(StandardStreamsTest, ProgressIsForTerminals) {
  const std::string err = TestPath("progress");
  {
    const Redirected stderr_to(stderr, err);
    const Progress progress("searching", "10s");
  }
  EXPECT_EQ(Contents(err), "");
}

// Variables as a test sets them, and as they were after it.
class TerminalTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* const name : {"COLUMNS", "NO_COLOR", "TERM"}) {
      const char* const value = std::getenv(name);
      if (value != nullptr) old_.emplace_back(name, value);
      unsetenv(name);
    }
    setenv("TERM", "xterm", 1);
    terminal_ = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    ASSERT_GE(terminal_, 0);
    null_ = open("/dev/null", O_WRONLY | O_CLOEXEC);
  }
  void TearDown() override {
    close(terminal_);
    close(null_);
    for (const char* const name : {"COLUMNS", "NO_COLOR", "TERM"}) unsetenv(name);
    for (const auto& [name, value] : old_) setenv(name.c_str(), value.c_str(), 1);
  }

  int terminal_ = -1;
  int null_ = -1;
  std::vector<std::pair<std::string, std::string>> old_;
};

TEST_F(TerminalTest, IsAsWideAsColumnsSay) {
  const struct {
    const char* columns;
    int width;
  } kRows[] = {{"100", 100},
               {"40", 40},
               {"39", 40},
               {"1", 40},
               {"160", 160},
               {"161", 160},
               {"9999", 160},
               {"0", 80},
               {"-5", 80},
               {"many", 80},
               {"", 80},
               {"1e2", 80},
               {"99999999999999999999", 80}};
  for (const auto& row : kRows) {
    setenv("COLUMNS", row.columns, 1);
    EXPECT_EQ(DescribeTerminal(null_, "auto").width, row.width) << row.columns;
  }
}

TEST_F(TerminalTest, ElseAsWideAsItIs) {
  for (const auto& [columns, width] :
       std::vector<std::pair<int, int>>{{120, 120}, {20, 40}, {500, 160}, {0, 80}}) {
    winsize size{};
    size.ws_col = static_cast<uint16_t>(columns);
    ASSERT_EQ(ioctl(terminal_, TIOCSWINSZ, &size), 0);
    EXPECT_EQ(DescribeTerminal(terminal_, "auto").width, width) << columns;
  }
  setenv("COLUMNS", "77", 1);
  EXPECT_EQ(DescribeTerminal(terminal_, "auto").width, 77) << "COLUMNS stands before it";
  EXPECT_EQ(DescribeTerminal(-1, "auto").width, 77);
}

TEST_F(TerminalTest, HasColoursWhereTheyAreSeenOrAskedFor) {
  const auto has = [](int file, const char* color) { return DescribeTerminal(file, color).color; };
  EXPECT_TRUE(has(terminal_, "auto"));
  EXPECT_FALSE(has(null_, "auto"));
  for (const int file : {terminal_, null_, -1}) {
    EXPECT_TRUE(has(file, "always"));
    EXPECT_FALSE(has(file, "never"));
  }
  setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(has(terminal_, "auto"));
  EXPECT_TRUE(has(terminal_, "always")) << "a flag stands before a variable";
  setenv("NO_COLOR", "", 1);
  EXPECT_TRUE(has(terminal_, "auto")) << "empty it says nothing";
  setenv("TERM", "dumb", 1);
  EXPECT_FALSE(has(terminal_, "auto"));
}

// Words of one to twelve letters, some of more bytes than columns.
std::string RandomWords(std::mt19937_64* random) {
  const std::string kLetters[] = {"a", "b", "é", "┃", "7"};
  std::string text;
  for (size_t left = (*random)() % 12; left > 0; --left) {
    if (!text.empty()) text += ' ';
    for (size_t size = 1 + (*random)() % 12; size > 0; --size) text += kLetters[(*random)() % 5];
  }
  return text;
}

std::string WithoutBlanks(const std::string& text) {
  return absl::StrReplaceAll(text, {{" ", ""}, {"\n", ""}});
}

TEST(WrapRandomTest, KeepsEveryLetterAndTheWidth) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 2000; ++round) {
    const std::string text = RandomWords(&random);
    const int indent = static_cast<int>(random() % 5);
    const int width = indent + 1 + static_cast<int>(random() % 30);
    const std::string wrapped = Wrap(text, width, indent);
    ASSERT_EQ(WithoutBlanks(wrapped), WithoutBlanks(text));
    const std::vector<std::string> lines = absl::StrSplit(wrapped, '\n');
    for (size_t i = 0; i < lines.size(); ++i) {
      ASSERT_LE(DisplayWidth(lines[i]), width) << wrapped;
      ASSERT_TRUE(i == 0 ||
                  absl::StartsWith(lines[i], std::string(static_cast<size_t>(indent), ' ')));
    }
    if (DisplayWidth(text) <= width) {
      EXPECT_EQ(wrapped, text);
    }
  }
}

// Cells of a column begin, or end, at the same place in every row; nothing is left out.
TEST(ColumnsRandomTest, CellsStandUnderEachOther) {
  using Align = Columns::Align;
  std::mt19937_64 random(3);
  for (int round = 0; round < 300; ++round) {
    Columns columns({Align::kLeft, Align::kRight, Align::kLeft});
    std::vector<std::string> first, second;
    for (int row = 0; row < 5; ++row) {
      first.push_back(std::string(1 + random() % 9, 'a'));
      second.push_back(std::string(1 + random() % 9, '1'));
      columns.Add({first.back(), second.back(), "z"});
    }
    const std::vector<std::string> lines =
        absl::StrSplit(columns.ToText(2, 80), '\n', absl::SkipEmpty());
    ASSERT_EQ(lines.size(), 5u);
    const size_t last = lines[0].find('z');
    for (size_t row = 0; row < lines.size(); ++row) {
      ASSERT_EQ(lines[row].find(first[row]), 2u);
      ASSERT_EQ(lines[row].find('z'), last);
      ASSERT_EQ(lines[row].find('1') + second[row].size(), last - 2) << lines[row];
    }
  }
}

}  // namespace
}  // namespace plimsoll
