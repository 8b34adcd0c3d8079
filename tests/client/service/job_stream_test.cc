// Lines of jobs against a service in this process, and how commands find a service.
#include "client/service/job_stream.h"

#include <fcntl.h>
#include <google/protobuf/util/json_util.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "client/format/json_writer.h"
#include "client/service/admission.h"
#include "client/service/service.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "server/run/server.h"
#include "tests/testing/test_files.h"

namespace plimsoll {
namespace {

using google::protobuf::util::JsonStringToMessage;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

std::string JobLine(int64_t sequence_length, const std::string& more = "") {
  return absl::StrCat(R"({"job":{"model":{"name":"gpt2"},"training":{"sequenceLength":)",
                      sequence_length, R"(},"cluster":{"gpu":"a100-80gb-sxm","gpuCount":1}})", more,
                      "}");
}

struct Streamed {
  absl::StatusOr<JobStreamCounts> counts;
  std::vector<std::string> lines;
};

class JobStreamTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto opened = OpenService(Connection());
    ASSERT_TRUE(opened.ok()) << opened.status();
    service_ = new Service(*std::move(opened));
  }
  static void TearDownTestSuite() { delete service_; }

  static Streamed Stream(StreamFunction* function, const std::string& input) {
    const int file = open(WriteTestFile("jobs", input).c_str(), O_RDONLY | O_CLOEXEC);
    std::string out;
    Streamed streamed;
    streamed.counts = function(file, service_->client, [&out](absl::string_view text) {
      absl::StrAppend(&out, text);
      return true;
    });
    close(file);
    streamed.lines = absl::StrSplit(out, '\n', absl::SkipEmpty());
    return streamed;
  }

  static Service* service_;
};

Service* JobStreamTest::service_ = nullptr;

// Around the size of a batch; each answer is the one that the job gets by itself.
TEST_F(JobStreamTest, EachLineHasItsOwnAnswer) {
  for (const int count : {0, 1, 63, 64, 65, 128, 129}) {
    std::string input;
    for (int i = 0; i < count; ++i) absl::StrAppend(&input, JobLine(64 + i % 70), "\n");
    const Streamed streamed = Stream(&StreamEstimates, input);
    ASSERT_TRUE(streamed.counts.ok()) << streamed.counts.status();
    EXPECT_EQ(streamed.counts->answered, count);
    EXPECT_EQ(streamed.counts->refused, 0);
    ASSERT_EQ(streamed.lines.size(), static_cast<size_t>(count));
    for (int i = 0; i < count; i += 31) {
      v1::EstimateMemoryRequest request;
      ASSERT_TRUE(
          JsonStringToMessage(JobLine(64 + i % 70, R"(,"detail":"summary")"), &request).ok());
      const auto alone = service_->client.EstimateMemory(request);
      ASSERT_TRUE(alone.ok()) << alone.status();
      std::string json;
      AppendJson(*alone, &json);
      EXPECT_EQ(streamed.lines[static_cast<size_t>(i)], json) << i << " of " << count;
    }
  }
}

// A line whose request has so many bytes, more than a config may have.
std::string LineOfBytes(size_t bytes) {
  const auto line = [](size_t length) {
    return absl::StrCat(R"({"job":{"model":{"hfConfig":{"p":")", std::string(length, 'x'),
                        R"("}}}})");
  };
  v1::EstimateMemoryRequest request;
  EXPECT_TRUE(JsonStringToMessage(line(bytes / 2), &request).ok());
  return line(bytes / 2 + bytes - request.ByteSizeLong());
}

// A request holds what a chunk takes, at the most that its lines may be.
TEST_F(JobStreamTest, LargeLinesAreRefusedOneByOne) {
  constexpr size_t kMost = kMaxRequestBytes / 2 - 5;  // beside an entry's tag and length
  for (const size_t first : {kMost - 1, kMost}) {
    for (const size_t second : {kMost, kMost + 1}) {
      const std::string input = absl::StrCat(LineOfBytes(first), "\n", LineOfBytes(second), "\n");
      const Streamed streamed = Stream(&StreamEstimates, input);
      ASSERT_TRUE(streamed.counts.ok()) << streamed.counts.status();
      EXPECT_EQ(streamed.counts->refused, 2);
      ASSERT_EQ(streamed.lines.size(), 2u);
      EXPECT_TRUE(absl::StrContains(streamed.lines[0], "must be at most 65536 bytes"));
      const char* const rule =
          second > kMost ? "must be at most 524283 bytes" : "must be at most 65536 bytes";
      EXPECT_TRUE(absl::StrContains(streamed.lines[1], rule)) << streamed.lines[1];
    }
  }
}

// Bad lines at the ends and the middle of batches: line n answers line n.
TEST_F(JobStreamTest, BadLinesKeepTheirPlaces) {
  std::string input;
  std::vector<bool> good;
  const std::string kBad[] = {"",          "{",
                              "[]",        R"({"job":{"training":{"sequenceLength":"x"}}})",
                              JobLine(-1), R"({"jobs":1})",
                              "\xff"};
  for (int i = 0; i < 200; ++i) {
    const bool bad = i % 64 == 0 || i % 64 == 63 || (i > 100 && i < 120);
    absl::StrAppend(&input, bad ? kBad[i % 7] : JobLine(64 + i), "\n");
    good.push_back(!bad);
  }
  const Streamed streamed = Stream(&StreamEstimates, input);
  ASSERT_TRUE(streamed.counts.ok()) << streamed.counts.status();
  ASSERT_EQ(streamed.lines.size(), good.size());
  int answered = 0;
  for (size_t i = 0; i < good.size(); ++i) {
    EXPECT_THAT(streamed.lines[i], StartsWith(good[i] ? "{\"verdict\":" : "{\"error\":")) << i;
    answered += good[i] ? 1 : 0;
  }
  EXPECT_EQ(streamed.counts->answered, answered);
  EXPECT_EQ(streamed.counts->refused, 200 - answered);
}

TEST_F(JobStreamTest, NothingButBadLinesAsksForNothing) {
  const Streamed streamed = Stream(&StreamEstimates, "\n\n{\n" + std::string(1'100'000, 'x'));
  ASSERT_TRUE(streamed.counts.ok()) << streamed.counts.status();
  EXPECT_EQ(streamed.counts->refused, 4);
  ASSERT_EQ(streamed.lines.size(), 4u);
  EXPECT_THAT(streamed.lines[3], HasSubstr("line: too long; must be at most 1048576 bytes"));
}

// A search for each line, the refused among them.
TEST_F(JobStreamTest, RecommendationsKeepTheirPlaces) {
  const Streamed streamed =
      Stream(&StreamRecommendations,
             absl::StrCat(JobLine(64), "\n", JobLine(-1), "\n{\n", JobLine(128), "\n"));
  ASSERT_TRUE(streamed.counts.ok()) << streamed.counts.status();
  EXPECT_EQ(streamed.counts->answered, 2);
  EXPECT_EQ(streamed.counts->refused, 2);
  ASSERT_EQ(streamed.lines.size(), 4u);
  for (const size_t i : {size_t{0}, size_t{3}}) {
    v1::RecommendConfigResponse response;
    ASSERT_TRUE(JsonStringToMessage(streamed.lines[i], &response).ok()) << streamed.lines[i];
    EXPECT_GT(response.fit_count(), 0) << streamed.lines[i];
  }
  EXPECT_THAT(streamed.lines[1], HasSubstr("job.training.sequence_length: -1; "));
  EXPECT_THAT(streamed.lines[2], HasSubstr("must be JSON"));
}

TEST_F(JobStreamTest, EndsWhereReadingOrWritingFails) {
  const auto put = [](absl::string_view /*text*/) { return true; };
  const auto unreadable = StreamEstimates(-1, service_->client, put);
  EXPECT_EQ(unreadable.status(),
            absl::UnknownError("the jobs: cannot be read; Bad file descriptor"));
  int asked = 0;
  const int file = open(WriteTestFile("one", JobLine(64) + "\n" + JobLine(65)).c_str(), O_RDONLY);
  const auto unwritable = StreamEstimates(file, service_->client, [&](absl::string_view /*text*/) {
    ++asked;
    return false;
  });
  close(file);
  EXPECT_EQ(unwritable.status(), absl::UnknownError("standard output: cannot be written to"));
  EXPECT_EQ(asked, 1) << "it is not tried again";
}

TEST_F(JobStreamTest, EndsWhereNobodyAnswers) {
  const PlannerClient nobody(
      grpc::CreateChannel("unix:/no/such/socket", grpc::InsecureChannelCredentials()), "nobody",
      absl::Minutes(1));
  for (StreamFunction* const function : {&StreamEstimates, &StreamRecommendations}) {
    const int file = open(WriteTestFile("jobs", JobLine(64) + "\n").c_str(), O_RDONLY | O_CLOEXEC);
    std::string out;
    const auto counts = function(file, nobody, [&out](absl::string_view text) {
      absl::StrAppend(&out, text);
      return true;
    });
    close(file);
    EXPECT_EQ(counts.status().code(), absl::StatusCode::kUnavailable) << counts.status();
    EXPECT_THAT(out, IsEmpty());
  }
}

Connection To(const std::string& server, const std::string& timeout) {
  Connection connection;
  connection.server = server;
  connection.timeout = timeout;
  return connection;
}

TEST(ConnectionTest, ATimeoutIsADurationUpToADay) {
  const struct {
    const char* text;
    absl::Duration timeout;
  } kGood[] = {{"10s", absl::Seconds(10)},   {"500ms", absl::Milliseconds(500)},
               {"1m30s", absl::Seconds(90)}, {"1ns", absl::Nanoseconds(1)},
               {"24h", absl::Hours(24)},     {"0.5s", absl::Milliseconds(500)}};
  for (const auto& row : kGood) {
    const auto timeout = CheckConnection(To("", row.text));
    ASSERT_TRUE(timeout.ok()) << timeout.status();
    EXPECT_EQ(*timeout, row.timeout) << row.text;
  }
  for (const char* const text : {"", "10", "0s", "0", "-1s", "soon", "10 s", "24h1ns", "25h", "inf",
                                 "1d", "99999999999h", "1s2"}) {
    EXPECT_EQ(CheckConnection(To("", text)).status(),
              absl::InvalidArgumentError(absl::StrCat(
                  "--timeout: ", text, "; must be a duration up to 24h, as 10s or 500ms")));
  }
}

// What is for the service in this process is of no use with another, and the reverse.
TEST(ConnectionTest, WhatIsOfNoUseIsRefused) {
  const struct {
    const char* flag;
    std::string Connection::*member;
    bool with_server;
  } kRows[] = {
      {"--calibration", &Connection::calibration, false},
      {"--speed", &Connection::speed, false},
      {"--tls-ca", &Connection::tls_ca, true},
      {"--tls-certificate", &Connection::tls_certificate, true},
      {"--tls-key", &Connection::tls_key, true},
      {"--token-file", &Connection::token_file, true},
  };
  for (const auto& row : kRows) {
    for (const bool has_server : {false, true}) {
      Connection connection = To(has_server ? "127.0.0.1:1" : "", "10s");
      connection.*row.member = "some.file";
      const absl::Status status = CheckConnection(connection).status();
      EXPECT_EQ(status.ok(), has_server == row.with_server) << row.flag;
      if (status.ok()) continue;
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(
          std::string(status.message()),
          StartsWith(absl::StrCat(row.flag, ": some.file; must ",
                                  has_server ? "not be given" : "be given", " with --server")));
      EXPECT_EQ(OpenService(connection).status(), status);
    }
  }
}

TEST(ConnectionTest, FilesThatCannotBeReadSaySo) {
  const std::string none = TestPath("none.pem");
  const std::string some = WriteTestFile("some.pem", "some");
  for (std::string Connection::*const member : {&Connection::tls_ca, &Connection::tls_certificate,
                                                &Connection::tls_key, &Connection::token_file}) {
    Connection connection = To("127.0.0.1:1", "10s");
    connection.tls_ca = some;
    connection.*member = none;
    const absl::Status status = OpenService(connection).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(status.message()),
              none + ": No such file or directory; must be a readable file");
  }
  Connection embedded;
  embedded.calibration = none;
  const absl::Status status = OpenService(embedded).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), StartsWith("calibration: "));
}

TEST(ConnectionTest, TheServiceInThisProcessAnswersEveryMethod) {
  const auto service = OpenService(Connection());
  ASSERT_TRUE(service.ok()) << service.status();
  EXPECT_NE(service->embedded, nullptr);
  const auto models = service->client.ListModels();
  const auto gpus = service->client.ListGpus();
  ASSERT_TRUE(models.ok() && gpus.ok());
  EXPECT_GT(models->models_size(), 5);
  EXPECT_GT(gpus->gpus_size(), 5);
  google::rpc::Status refusal;
  v1::RecommendConfigResponse response;
  const absl::Status refused = service->client.RecommendConfig({}, &response, &refusal);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refusal.code(), 3);
  EXPECT_EQ(refusal.message(), std::string(refused.message()));
  EXPECT_FALSE(service->client.EstimateMemory({}).ok());
}

// A decision of the service in this process, by the request's own rules.
TEST(ConnectionTest, AdmissionsAreDecidedOrRefused) {
  v1::AdmitRequest request;
  request.mutable_scheduler_request()->set_scheduler("slurm");
  request.mutable_scheduler_request()->set_environment_words(
      "model=gpt2 seq_len=64 gpu=a100-80gb-sxm gpus=1");
  const auto decision = AskAdmission(Connection(), request, absl::Now());
  ASSERT_TRUE(decision.ok()) << decision.status();
  EXPECT_EQ(decision->cause(), v1::CAUSE_FITS) << decision->message();
  request.mutable_policy()->mutable_rules()->set_mode("sometimes");
  const auto refused = AskAdmission(Connection(), request, absl::Now());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("policy.rules.mode: sometimes"));
  EXPECT_EQ(AskAdmission(To("", "never"), request, absl::Now()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace plimsoll
