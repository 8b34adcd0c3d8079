// Answers that are kept: what comes back, what goes, and that nobody can tell one from an answer
// that was computed.
#include "server/planner/kept_answers.h"

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/wire/json.h"
#include "server/words/document.h"
#include "tests/server/running_server.h"
#include "tests/testing/test_files.h"

namespace plimsoll {
namespace {

constexpr size_t kMaxBytes = 1 << 20;
constexpr char kKeptBytes[] = "plimsoll_kept_answer_bytes";
constexpr char kRecalled[] = "plimsoll_recalled_answers_total";

class KeptAnswersTest : public testing::Test {
 protected:
  // As two calls that find nothing do.
  void Keep(const std::string& request, const std::string& answer) {
    for (int i = 0; i < 2; ++i) kept_.Keep(request, answer, Verdict::kAtRisk, 7);
  }

  // What is kept, or "none".
  std::string Find(const std::string& request) {
    const auto found = kept_.Find(request);
    if (!found.has_value()) return "none";
    return {reinterpret_cast<const char*>(found->bytes.begin()), found->bytes.size()};
  }

  double kept_bytes() const { return SeriesValue(metrics_.Text(), kKeptBytes); }

  Metrics metrics_;
  KeptAnswers kept_{kMaxBytes, &metrics_};
};

TEST_F(KeptAnswersTest, GivesWhatItWasGiven) {
  EXPECT_EQ(Find("a"), "none");
  Keep("a", "of a");
  Keep("b", "of b");
  EXPECT_EQ(Find("a"), "of a");
  EXPECT_EQ(Find("b"), "of b");
  EXPECT_EQ(Find("ab"), "none");
  EXPECT_EQ(kept_.Find("a")->verdict, Verdict::kAtRisk);
  EXPECT_EQ(kept_.Find("a")->peak_bytes, 7);
  Keep("a", "of a");
  EXPECT_EQ(Find("a"), "of a");
}

TEST_F(KeptAnswersTest, KeepsWhatIsAskedForTwice) {
  kept_.Keep("once", "of once", Verdict::kFits, 1);
  EXPECT_EQ(Find("once"), "none");
  EXPECT_EQ(kept_bytes(), 0);
  kept_.Keep("once", "of once", Verdict::kFits, 1);
  EXPECT_EQ(Find("once"), "of once");
}

TEST_F(KeptAnswersTest, TakesNoMoreThanItMay) {
  for (int i = 0; i < 5000; ++i) {
    Keep(absl::StrCat("request ", i), std::string(4000, 'x'));
    if (i % 100 == 0) {
      ASSERT_LE(kept_bytes(), kMaxBytes);
    }
  }
  EXPECT_GT(kept_bytes(), kMaxBytes / 2);
  EXPECT_EQ(Find("request 0"), "none");
  EXPECT_NE(Find("request 4999"), "none");
}

TEST_F(KeptAnswersTest, KeepsWhatIsAskedForAgain) {
  Keep("asked", "again");
  for (int i = 0; i < 5000; ++i) {
    Keep(absl::StrCat("request ", i), std::string(4000, 'x'));
    if (i % 10 == 0) {
      ASSERT_EQ(Find("asked"), "again") << i;
    }
  }
}

TEST_F(KeptAnswersTest, KeepsNothingThatDrivesOutMany) {
  Keep("large", std::string(kMaxBytes / 64, 'x'));
  Keep(std::string(kMaxBytes / 64, 'x'), "large");
  EXPECT_EQ(Find("large"), "none");
  EXPECT_EQ(kept_bytes(), 0);
}

TEST_F(KeptAnswersTest, CountsWhatItTakesUntilItsEnd) {
  {
    KeptAnswers other(kMaxBytes, &metrics_);
    for (int i = 0; i < 2; ++i) other.Keep("a", "of a", Verdict::kFits, 1);
    EXPECT_GT(kept_bytes(), 0);
  }
  EXPECT_EQ(kept_bytes(), 0);
}

TEST_F(KeptAnswersTest, MayKeepNothingAtAll) {
  KeptAnswers none(0, &metrics_);
  for (int i = 0; i < 2; ++i) none.Keep("a", "of a", Verdict::kFits, 1);
  EXPECT_FALSE(none.Find("a").has_value());
}

TEST_F(KeptAnswersTest, AnyThreadMayCall) {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([this] {
      for (int i = 0; i < 2000; ++i) {
        const std::string request = absl::StrCat("request ", i % 500);
        Keep(request, request + std::string(4000, 'x'));
        const std::string found = Find(request);
        EXPECT_TRUE(found == "none" || found == request + std::string(4000, 'x'));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(kept_bytes(), kMaxBytes);
}

// A server that keeps answers, and the calls of one client.
class RecallTest : public testing::Test {
 protected:
  void Start(const ServerOptions& options) {
    server_ = StartOrFail(options);
    ASSERT_NE(server_, nullptr);
    stub_ = StubFor(server_->addresses()[0]);
  }

  static v1::EstimateMemoryRequest Request(const std::string& detail) {
    v1::EstimateMemoryRequest request;
    EXPECT_THAT(ReadJsonMessage(kGoodRequest, &request), testing::IsEmpty());
    request.set_detail(detail);
    return request;
  }

  v1::EstimateMemoryResponse Ask(const v1::EstimateMemoryRequest& request) const {
    grpc::ClientContext context;
    v1::EstimateMemoryResponse response;
    const grpc::Status status = stub_->EstimateMemory(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  double Series(const std::string& name) const {
    return SeriesValue(server_->metrics().Text(), name);
  }

  std::unique_ptr<Server> server_;
  std::unique_ptr<v1::PlannerService::Stub> stub_;
};

TEST_F(RecallTest, AnswersAreTheSameBytesAsWithoutIt) {
  ServerOptions without = FreePorts();
  without.max_kept_answer_bytes = 0;
  Start(without);
  std::vector<std::string> computed;
  for (const char* const detail : {"summary", "replay"}) {
    computed.push_back(Ask(Request(detail)).SerializeAsString());
    EXPECT_EQ(Ask(Request(detail)).SerializeAsString(), computed.back());
  }
  EXPECT_EQ(Series(kRecalled), 0);
  Start(FreePorts());
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(Ask(Request("summary")).SerializeAsString(), computed[0]);
    EXPECT_EQ(Ask(Request("replay")).SerializeAsString(), computed[1]);
    EXPECT_EQ(Series(kRecalled), i < 2 ? 0 : 2 * (i - 1));
  }
}

TEST_F(RecallTest, EachCallIsCounted) {
  Start(FreePorts());
  const v1::EstimateMemoryRequest request = Request("summary");
  const bool fits = Ask(request).verdict() == v1::VERDICT_FITS;
  const double sum = Series("plimsoll_estimate_peak_bytes_sum");
  for (int i = 0; i < 3; ++i) Ask(request);
  EXPECT_EQ(Series(kRecalled), 2);
  EXPECT_EQ(Series(R"(plimsoll_estimates_total{verdict="fits"})"), fits ? 4 : 0);
  EXPECT_EQ(Series(R"(plimsoll_estimates_total{verdict="at-risk"})"), fits ? 0 : 4);
  EXPECT_EQ(Series("plimsoll_estimate_peak_bytes_sum"), 4 * sum);
  const std::string method =
      R"({grpc_method="EstimateMemory",grpc_service="plimsoll.v1.PlannerService",grpc_type="unary"})";
  EXPECT_EQ(Series("grpc_server_started_total" + method), 4);
  EXPECT_EQ(Series("grpc_server_handling_seconds_count" + method), 4);
}

TEST_F(RecallTest, RefusalsAreNotKept) {
  Start(FreePorts());
  v1::EstimateMemoryRequest request = Request("summary");
  request.mutable_job()->mutable_cluster()->set_gpu_count(-1);
  for (int i = 0; i < 3; ++i) {
    grpc::ClientContext context;
    v1::EstimateMemoryResponse response;
    EXPECT_EQ(stub_->EstimateMemory(&context, request, &response).error_code(),
              grpc::StatusCode::INVALID_ARGUMENT);
  }
  EXPECT_EQ(Series(R"(plimsoll_estimates_total{verdict="refused"})"), 3);
  EXPECT_EQ(Series(kRecalled), 0);
  EXPECT_EQ(Series(kKeptBytes), 0);
}

// A caller over its limit is refused whether its answer is kept or not.
TEST_F(RecallTest, LimitsOfCallersHold) {
  ServerOptions options = FreePorts();
  options.access_policy = WriteTestFile("access.yaml", R"(
anyone: [ListGpus]
callers: [{name: gate, unix_socket: true, methods: [EstimateMemory], max_calls_per_second: 1}]
)");
  options.listen.push_back("unix:" + TestPath("socket"));
  Start(options);
  stub_ = StubFor(options.listen.back());
  grpc::Status status;
  int answered = 0;
  while (status.ok() && answered < 1000) {
    grpc::ClientContext context;
    v1::EstimateMemoryResponse response;
    status = stub_->EstimateMemory(&context, Request("summary"), &response);
    if (status.ok()) ++answered;
  }
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Series(kRecalled), answered - 2);
  EXPECT_EQ(Series(R"(plimsoll_caller_calls_total{caller="gate"})"), answered + 1);
  stub_ = StubFor(server_->addresses()[0]);
  grpc::ClientContext context;
  v1::EstimateMemoryResponse response;
  EXPECT_EQ(stub_->EstimateMemory(&context, Request("summary"), &response).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
}

// Writes the embedded table under another id.
std::string WriteCalibration(const std::string& id) {
  std::string text = *ReadDocument(PLIMSOLL_CATALOG_FOLDER "/calibration.yaml");
  const size_t begin = text.find("\nid: ") + 5;
  return WriteTestFile("calibration.yaml", text.replace(begin, text.find('\n', begin) - begin, id));
}

TEST_F(RecallTest, NoAnswerOutlivesItsTables) {
  ServerOptions options = FreePorts();
  options.calibration = WriteCalibration("first");
  Start(options);
  const v1::EstimateMemoryRequest request = Request("summary");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Ask(request).calibration_id(), "first");
  EXPECT_EQ(Series(kRecalled), 1);
  WriteCalibration("second");
  const std::string taken = R"(plimsoll_reloads_total{outcome="taken",setting="calibration"})";
  while (Series(taken) != 1) Ask(request);
  EXPECT_EQ(Ask(request).calibration_id(), "second");
  EXPECT_EQ(Ask(request).calibration_id(), "second");
}

}  // namespace
}  // namespace plimsoll
