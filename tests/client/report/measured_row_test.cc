// Rows to calibrate from: their fields, and the file that several writers share.
#include "client/report/measured_row.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace plimsoll {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

TEST(CsvFieldTest, IsQuotedWhereItMustBe) {
  EXPECT_EQ(CsvField("a b; c"), "a b; c");
  EXPECT_EQ(CsvField(""), "");
  EXPECT_EQ(CsvField("a,b"), "\"a,b\"");
  EXPECT_EQ(CsvField("say \"x\""), "\"say \"\"x\"\"\"");
  EXPECT_EQ(CsvField("a\r\nb"), "\"a\r\nb\"");
}

v1::ReportUsageRequest Report() {
  v1::ReportUsageRequest request;
  request.set_job_id("4711");
  request.set_gauge("reserved");
  request.set_source("torch");
  request.set_outcome("finished");
  request.add_actual_peak_bytes(60);
  request.add_actual_peak_bytes(62);
  v1::Prediction& prediction = *request.mutable_prediction();
  prediction.mutable_reserved()->set_expected_bytes(66);
  prediction.mutable_reserved()->set_bound_bytes(72);
  prediction.set_estimator_version("0.1.0");
  prediction.set_calibration_id("site");
  v1::Job& job = *prediction.mutable_job();
  job.mutable_model()->set_name("llama-3.1-8b");
  job.mutable_training()->set_sequence_length(4096);
  job.mutable_training()->set_attention("flash");
  job.mutable_parallelism()->set_sequence_parallel(false);
  job.mutable_parallelism()->set_tensor_parallel_size(2);
  job.mutable_cluster()->set_gpu_count(8);
  return request;
}

v1::ReportUsageResponse Labels() {
  v1::ReportUsageResponse labels;
  labels.set_framework("megatron-core");
  labels.set_gpu("h100-80gb-sxm");
  return labels;
}

TEST(RowOfTest, StandsUnderItsColumns) {
  const MeasuredRow row = RowOf(Report(), Labels());
  EXPECT_EQ(row.id, "reported-4711:whole_run_reserved");
  const std::vector<std::string> names = absl::StrSplit(MeasuredHeader(), ',');
  // Only the last field has commas.
  const std::vector<std::string> fields =
      absl::StrSplit(row.line, absl::MaxSplits(',', static_cast<int>(names.size()) - 1));
  ASSERT_EQ(fields.size(), names.size());
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (!fields[i].empty()) absl::StrAppend(&text, names[i], ": ", fields[i], "\n");
  }
  EXPECT_EQ(text,
            "id: reported-4711:whole_run_reserved\n"
            "source_url_or_repo_path: plimsoll report\n"
            "model: llama-3.1-8b\n"
            "gpu: h100-80gb-sxm\n"
            "num_gpus: 8\n"
            "framework: megatron-core\n"
            "tp: 2\n"
            "sequence_parallel: false\n"
            "seq_len: 4096\n"
            "attention: flash\n"
            "measured_value: 62\n"
            "unit: B\n"
            "what_is_measured: reserved\n"
            "notes: grade=B; moment=whole run; outcome=finished; source=torch; gpus=2; "
            "predicted=66; bound=72; estimator=0.1.0; calibration=site\n"
            "job: \"{\"\"model\"\":{\"\"name\"\":\"\"llama-3.1-8b\"\"},\"\"training\"\":"
            "{\"\"sequence_length\"\":\"\"4096\"\",\"\"attention\"\":\"\"flash\"\"},"
            "\"\"parallelism\"\":{\"\"tensor_parallel_size\"\":\"\"2\"\","
            "\"\"sequence_parallel\"\":false},\"\"cluster\"\":{\"\"gpu_count\"\":\"\"8\"\"}}\"\n");
}

class AppendRowTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(folder_), nullptr);
    path_ = absl::StrCat(folder_, "/rows.csv");
  }
  void TearDown() override {
    unlink(path_.c_str());
    rmdir(folder_);
  }

  static absl::Status AppendTo(const std::string& file, const MeasuredRow& row) {
    return AppendRow(file, row, absl::Now() + absl::Minutes(1));
  }
  absl::Status Append(const MeasuredRow& row) const { return AppendTo(path_, row); }

  std::string Text() const {
    std::ifstream file(path_, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  char folder_[32] = "/tmp/plimsoll_rows_XXXXXX";
  std::string path_;
};

TEST_F(AppendRowTest, WritesTheHeaderOnce) {
  EXPECT_TRUE(Append({"a", "a,1"}).ok());
  EXPECT_TRUE(Append({"b", "b,2"}).ok());
  EXPECT_EQ(Text(), absl::StrCat(MeasuredHeader(), "\r\na,1\r\nb,2\r\n"));
}

TEST_F(AppendRowTest, AJobHasOneRow) {
  EXPECT_TRUE(Append({"a", "a,1"}).ok());
  EXPECT_TRUE(Append({"a", "a,2"}).ok());
  EXPECT_TRUE(Append({"aa", "aa,3"}).ok()) << "another id that ends alike";
  EXPECT_EQ(Text(), absl::StrCat(MeasuredHeader(), "\r\na,1\r\naa,3\r\n"));
}

// As a full disk or a crash left it: within the job, within a column, within the header.
TEST_F(AppendRowTest, TakesHalfARowOut) {
  for (const char* half : {"a,1,\"{\r\n", "a,1", "a"}) {
    std::ofstream(path_) << MeasuredHeader() << "\r\nb,2\r\n" << half;
    EXPECT_TRUE(Append({"a", "a,1"}).ok());
    EXPECT_EQ(Text(), absl::StrCat(MeasuredHeader(), "\r\nb,2\r\na,1\r\n")) << half;
  }
  std::ofstream(path_) << MeasuredHeader().substr(0, 20);
  EXPECT_TRUE(Append({"a", "a,1"}).ok());
  EXPECT_EQ(Text(), absl::StrCat(MeasuredHeader(), "\r\na,1\r\n"));
}

// As an editor left it.
TEST_F(AppendRowTest, KeepsAWholeRowWithoutAnEnd) {
  const std::vector<std::string> columns = absl::StrSplit(MeasuredHeader(), ',');
  const std::string row = absl::StrCat("a", std::string(columns.size() - 1, ','), "\"{\n}\"");
  std::ofstream(path_) << MeasuredHeader() << "\n" << row;
  EXPECT_TRUE(Append({"a", "a,1"}).ok()) << "there already";
  EXPECT_TRUE(Append({"b", "b,2"}).ok());
  EXPECT_EQ(Text(), absl::StrCat(MeasuredHeader(), "\n", row, "\r\nb,2\r\n"));
  std::ofstream(path_) << MeasuredHeader();
  EXPECT_TRUE(Append({"b", "b,2"}).ok());
  EXPECT_EQ(Text(), absl::StrCat(MeasuredHeader(), "\r\nb,2\r\n"));
}

// Text within quotation marks is no row.
TEST_F(AppendRowTest, AQuotedIdIsNoRow) {
  EXPECT_TRUE(Append({"a", "a,\"x\r\nb,y\""}).ok());
  EXPECT_TRUE(Append({"b", "b,2"}).ok());
  EXPECT_THAT(Text(), EndsWith("\r\nb,2\r\n"));
}

TEST_F(AppendRowTest, WaitsForAnotherNoLongerThanItMay) {
  std::ofstream(path_) << MeasuredHeader() << "\r\n";
  const int other = open(path_.c_str(), O_RDONLY);
  ASSERT_EQ(flock(other, LOCK_EX), 0);
  EXPECT_EQ(AppendRow(path_, {"a", "a,1"}, absl::Now()).message(),
            absl::StrCat("--rows: ", path_, "; locked by another for too long"));
  close(other);
}

TEST_F(AppendRowTest, LeavesAnotherFileAlone) {
  std::ofstream(path_) << "precious\n";
  EXPECT_EQ(Append({"b", "b,2"}).message(),
            absl::StrCat("--rows: ", path_, "; its first line must be ", MeasuredHeader()));
  EXPECT_EQ(Text(), "precious\n");
}

TEST_F(AppendRowTest, SaysWhatTheSystemSays) {
  EXPECT_EQ(AppendTo("/nonexistent/rows.csv", {"b", "b,2"}).message(),
            "--rows: /nonexistent/rows.csv; No such file or directory");
  EXPECT_EQ(AppendTo("/dev/zero", {"b", "b,2"}).message(),
            "--rows: /dev/zero; must be a regular file");
}

TEST_F(AppendRowTest, WritersAtOnceLoseNothing) {
  constexpr int kWriters = 8, kRows = 50;
  std::vector<std::thread> writers;
  for (int writer = 0; writer < kWriters; ++writer) {
    writers.emplace_back([this, writer] {
      for (int row = 0; row < kRows; ++row) {
        const std::string id = absl::StrCat(writer, "-", row);
        EXPECT_TRUE(Append({id, absl::StrCat(id, ",", std::string(300, 'x'))}).ok());
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  const std::string text = Text();
  EXPECT_THAT(text, StartsWith(MeasuredHeader() + "\r\n"));
  EXPECT_THAT(text, EndsWith("x\r\n"));
  const std::vector<std::string> lines = absl::StrSplit(text, "\r\n");
  EXPECT_EQ(lines.size(), kWriters * kRows + 2);  // the header, and nothing behind the last
  for (int writer = 0; writer < kWriters; ++writer) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("\n", writer, "-", kRows - 1, ",xxx")));
  }
}

}  // namespace
}  // namespace plimsoll
