// Lines for a reader who reads when it likes: nobody waits, and what is lost is told.
#include "server/observe/line_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace plimsoll {
namespace {

using testing::HasSubstr;

constexpr std::chrono::seconds kLong{30};
constexpr size_t kMaxBytes = 100000;

// A small pipe.
class LineWriterTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(pipe(ends_), 0);
    ASSERT_GT(fcntl(ends_[1], F_SETPIPE_SZ, 16384), 0);
    writer_ = std::make_unique<LineWriter>(
        ends_[1], kMaxBytes, [](int64_t dropped) { return absl::StrCat("lost ", dropped, "\n"); });
  }
  void TearDown() override {
    writer_.reset();
    CloseReader();
    close(ends_[1]);
  }

  void CloseReader() {
    if (ends_[0] >= 0) close(ends_[0]);
    ends_[0] = -1;
  }

  // Reads until there is this text.
  std::string ReadUntil(const std::string& text) {
    while (read_.find(text) == std::string::npos) {
      char buffer[512];
      const ssize_t count = read(ends_[0], buffer, sizeof buffer);
      if (count <= 0) break;
      read_.append(buffer, static_cast<size_t>(count));
    }
    return read_;
  }

  int ends_[2] = {-1, -1};
  std::unique_ptr<LineWriter> writer_;
  std::string read_;
};

TEST_F(LineWriterTest, WritesLinesInTheirOrder) {
  for (int i = 0; i < 100; ++i) writer_->Write(absl::StrCat(i, "\n"));
  EXPECT_TRUE(writer_->Flush(kLong));
  const std::vector<std::string> lines = absl::StrSplit(ReadUntil("\n99\n"), '\n');
  ASSERT_EQ(lines.size(), 101u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(lines[i], absl::StrCat(i));
  EXPECT_EQ(writer_->dropped(), 0);
}

TEST_F(LineWriterTest, NobodyWaitsForAReaderAndTheNextLearnsWhatIsLost) {
  constexpr int kLines = 20000;
  writer_->Write(std::string(40000, 'x') + "\n");  // more than the pipe holds
  for (int i = 0; i < kLines; ++i) writer_->Write(absl::StrCat("line ", i, "\n"));
  EXPECT_FALSE(writer_->Flush(std::chrono::milliseconds(0)));
  const int64_t dropped = writer_->dropped();
  EXPECT_GT(dropped, 0);
  const std::string note = absl::StrCat("lost ", dropped, "\n");
  EXPECT_THAT(ReadUntil(note), HasSubstr(absl::StrCat("line ", kLines - dropped - 1, "\n", note)))
      << "in the place of what was dropped";
  writer_->Write("after\n");
  EXPECT_THAT(ReadUntil("after\n"), testing::EndsWith(note + "after\n"));
  EXPECT_TRUE(writer_->Flush(kLong));
  EXPECT_EQ(writer_->dropped(), dropped);
}

TEST_F(LineWriterTest, ALineLongerThanThePipeArrivesWhole) {
  const std::string line = std::string(99999, 'x') + "\n";
  writer_->Write(line);
  EXPECT_EQ(ReadUntil("\n"), line);
}

TEST_F(LineWriterTest, EndsWhileNobodyReads) {
  for (int i = 0; i < 20000; ++i) writer_->Write("line\n");
  writer_.reset();
  CloseReader();
}

TEST_F(LineWriterTest, AReaderWhoIsGoneEndsNothing) {
  CloseReader();
  writer_->Write("unread\n");
  EXPECT_TRUE(writer_->Flush(kLong));
  EXPECT_EQ(writer_->dropped(), 1);
}

}  // namespace
}  // namespace plimsoll
