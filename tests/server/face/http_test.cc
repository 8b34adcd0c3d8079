// The HTTP face of a real server: the JSON twins and the pages.
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/wire/json.h"
#include "tests/server/running_server.h"
#include "tests/testing/test_files.h"

namespace plimsoll {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr char kJson[] = "application/json";

class HttpTest : public testing::Test {
 protected:
  void SetUp() override {
    server_ = StartOrFail(FreePorts());
    ASSERT_NE(server_, nullptr);
  }

  // The server answers after whatever the test did to it.
  void TearDown() override {
    auto client = Client();
    const httplib::Result result = client.Get("/healthz");
    ASSERT_TRUE(result);
    EXPECT_EQ(result->status, 200);
  }

  httplib::Client Client() const { return HttpClientFor(server_->http_addresses()[0]); }

  httplib::Response Post(const std::string& path, const std::string& body) const {
    auto client = Client();
    const httplib::Result result = client.Post(path, body, kJson);
    if (!result) {
      ADD_FAILURE() << httplib::to_string(result.error());
      return {};
    }
    return *result;
  }

  double Series(const std::string& series) const {
    return SeriesValue(server_->metrics().Text(), series);
  }

  std::unique_ptr<Server> server_;
};

TEST_F(HttpTest, AnswersAsGrpcDoes) {
  const httplib::Response response = Post("/v1:estimateMemory", kGoodRequest);
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(response.get_header_value("Content-Type"), kJson);
  v1::EstimateMemoryResponse over_http;
  ASSERT_THAT(ReadJsonMessage(response.body, &over_http), testing::IsEmpty());
  v1::EstimateMemoryRequest request;
  ASSERT_THAT(ReadJsonMessage(kGoodRequest, &request), testing::IsEmpty());
  grpc::ClientContext context;
  v1::EstimateMemoryResponse over_grpc;
  ASSERT_TRUE(StubFor(server_->addresses()[0])->EstimateMemory(&context, request, &over_grpc).ok());
  EXPECT_EQ(over_http.SerializeAsString(), over_grpc.SerializeAsString());
  EXPECT_THAT(response.body, HasSubstr(R"("limitingRank":"0")"));
}

TEST_F(HttpTest, RefusesWithARpcStatus) {
  const httplib::Response response = Post("/v1:estimateMemory", R"({"job": {"modell": {}}})");
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(response.get_header_value("Content-Type"), kJson);
  EXPECT_THAT(
      response.body,
      StartsWith(
          R"({"code":3,"message":"job.modell: an object; no such field, did you )"
          R"(mean model\njob.cluster.gpu: unset; exactly one of gpu and gpuMemoryBytes )"
          R"(must be set\njob.training.sequenceLength: unset; must be set","details":[{"@type":"type.googleapis.com/)"
          R"(google.rpc.BadRequest")"));
  EXPECT_EQ(Series(R"(http_requests_total{code="400",handler="/v1:estimateMemory"})"), 1);
}

TEST_F(HttpTest, AMisreadJobOfABatchFailsAlone) {
  const std::string batch = absl::StrCat(R"({"requests": [)", kGoodRequest,
                                         R"(, {"jobb": {}, "risk": 2}, 7, )", kGoodRequest, "]}");
  const httplib::Response response = Post("/v1:batchEstimateMemory", batch);
  ASSERT_EQ(response.status, 200) << response.body;
  v1::BatchEstimateMemoryResponse results;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(response.body, &results).ok());
  ASSERT_EQ(results.results_size(), 4);
  EXPECT_TRUE(results.results(0).has_response());
  EXPECT_EQ(results.results(1).error().message(),
            "jobb: an object; no such field, did you mean job\n"
            "risk: 2; must be from 0.0001 to 0.5");
  EXPECT_EQ(results.results(2).error().message(), "request: 7; must be an object");
  EXPECT_TRUE(results.results(3).has_response());
}

// Each request in both spellings; the message of what is wrong with it.
TEST_F(HttpTest, EveryMethodNamesFieldsAsItsCallerDoes) {
  const struct {
    const char* path;
    const char* request;
    const char* message;
  } kRows[] = {
      {"/v1:listGpus", R"({"gpuCount": 1})", "gpuCount: 1; no such field"},
      {"/v1:estimateMemory", R"({"includeTimeline": true, "includeTrace": 1})",
       "includeTrace: 1; must be true or false"},
      {"/v1:recommendConfig",
       R"({"maxResults": 101, "gpuCounts": [8], "frozen": ["cluster.gpu_count"]})",
       "maxResults: 101; must be from 0 to 100\n"
       "gpuCounts: 8; must be empty where job.cluster.gpuCount may not change"},
      {"/v1:reportUsage",
       R"({"jobId": "\u00e9", "prediction": {"device": {"expectedBytes": 5, "boundBytes": 4}}})",
       "prediction.device.boundBytes: 4; must be at least the expected figure, 5"},
      {"/v1:batchEstimateMemory", R"({"requests": [], "jobCount": 1})",
       "jobCount: 1; no such field"},
  };
  ServerOptions options = FreePorts();
  options.http_listen = {absl::StrCat("unix:", TestPath("socket"))};
  options.accept_reports = true;
  const std::unique_ptr<Server> server = StartOrFail(options);
  ASSERT_NE(server, nullptr);
  auto client = HttpClientFor(options.http_listen[0]);
  for (const auto& row : kRows) {
    for (const bool snake : {false, true}) {
      const auto spelled = [snake](const std::string& text) {
        if (!snake) return text;
        std::string result;
        for (const char c : text) {
          if (c >= 'A' && c <= 'Z') result += '_';
          result += absl::ascii_tolower(static_cast<unsigned char>(c));
        }
        return result;
      };
      const httplib::Result result = client.Post(row.path, spelled(row.request), kJson);
      ASSERT_TRUE(result);
      EXPECT_EQ(result->status, 400);
      google::rpc::Status status;
      ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(result->body, &status).ok());
      for (const absl::string_view line : absl::StrSplit(row.message, '\n')) {
        EXPECT_THAT(status.message(), HasSubstr(spelled(std::string(line))));
      }
    }
  }
}

TEST_F(HttpTest, JobsOfABatchHaveNamesOfTheirOwn) {
  const httplib::Response response =
      Post("/v1:batchEstimateMemory",
           R"({"requests": [{"include_timeline": 1}, {"includeTimeline": 1}, {}]})");
  v1::BatchEstimateMemoryResponse results;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(response.body, &results).ok());
  ASSERT_EQ(results.results_size(), 3);
  EXPECT_THAT(results.results(0).error().message(),
              StartsWith("include_timeline: 1; must be true or false\n"));
  EXPECT_THAT(results.results(0).error().message(),
              HasSubstr("job.training.sequence_length: unset"));
  EXPECT_THAT(results.results(1).error().message(),
              StartsWith("includeTimeline: 1; must be true or false\n"));
  EXPECT_THAT(results.results(1).error().message(),
              HasSubstr("job.training.sequenceLength: unset"));
  EXPECT_THAT(results.results(2).error().message(),
              HasSubstr("job.training.sequenceLength: unset"));
}

TEST_F(HttpTest, ABatchIsCheckedToo) {
  EXPECT_THAT(Post("/v1:batchEstimateMemory", R"({"jobs": []})").body,
              HasSubstr("jobs: a list; no such field"));
  EXPECT_THAT(Post("/v1:batchEstimateMemory", R"({"requests": 7})").body,
              HasSubstr("requests: 7; must be a list"));
  std::string many;
  for (int i = 0; i < 3000; ++i) many += i == 0 ? "{}" : ",{}";
  EXPECT_THAT(Post("/v1:batchEstimateMemory", absl::StrCat(R"({"requests": [)", many, "]}")).body,
              HasSubstr("requests: 3000 requests; must be 1 to 1000"));
}

// An answer has many times the bytes of its question.
TEST_F(HttpTest, ABatchsAnswersAreBounded) {
  const std::string job = R"({"job": {"model": {"name": "llama-3.1-70b"},
    "training": {"sequence_length": 4096},
    "parallelism": {"pipeline_parallel_size": 80}, "runtime": {"framework": "megatron-core"},
    "cluster": {"gpu": "h100-80gb-sxm", "gpu_count": 80}}, "include_ledger": true})";
  const auto batch = [&job](int count) {
    std::string body = "{\"requests\": [";
    for (int i = 0; i < count; ++i) absl::StrAppend(&body, i > 0 ? "," : "", job);
    return body + "]}";
  };
  const httplib::Response some = Post("/v1:batchEstimateMemory", batch(2));
  ASSERT_EQ(some.status, 200) << some.body;
  v1::BatchEstimateMemoryResponse answers;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(some.body, &answers).ok());
  EXPECT_EQ(answers.results_size(), 2);
  const auto enough = kMaxBatchAnswerBytes / answers.results(0).ByteSizeLong() + 2;
  ASSERT_LE(enough, static_cast<size_t>(kMaxBatchSize));
  const httplib::Response many = Post("/v1:batchEstimateMemory", batch(static_cast<int>(enough)));
  EXPECT_EQ(many.status, 400);
  EXPECT_THAT(many.body, HasSubstr("must be fewer, or ask for less of each"));
}

TEST_F(HttpTest, ListsWithOrWithoutABody) {
  for (const char* const body : {"", "{}"}) {
    EXPECT_THAT(Post("/v1:listGpus", body).body, HasSubstr(R"("gpu":"h100-80gb-sxm")"));
    EXPECT_THAT(Post("/v1:listModels", body).body, HasSubstr(R"("parameterCount":"8030261248")"));
  }
}

TEST_F(HttpTest, SaysWhenABodyIsTooLarge) {
  const httplib::Response response = Post("/v1:estimateMemory", std::string((1 << 20) + 1, ' '));
  EXPECT_EQ(response.status, 413);
  EXPECT_THAT(response.body,
              HasSubstr("request: over 1048576 bytes; must be at most 1048576 bytes"));
  EXPECT_THAT(response.body, HasSubstr(R"("reason":"TOO_LARGE")"));
  EXPECT_EQ(Series(R"(http_requests_total{code="413",handler="/v1:estimateMemory"})"), 1);
}

TEST_F(HttpTest, TakesABodyThatComesInChunks) {
  auto client = Client();
  const std::string text = kGoodRequest;
  const auto in_two = [&](size_t, httplib::DataSink& sink) {
    sink.write(text.data(), 20);
    sink.write(text.data() + 20, text.size() - 20);
    sink.done();
    return true;
  };
  const httplib::Result result = client.Post("/v1:estimateMemory", in_two, kJson);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->status, 200) << result->body;
  const auto endless = [](size_t, httplib::DataSink& sink) {
    static const std::string kBlock(1 << 16, ' ');
    return sink.write(kBlock.data(), kBlock.size());
  };
  const httplib::Result cut = client.Post("/v1:estimateMemory", endless, kJson);
  EXPECT_TRUE(!cut || cut->status == 413);
}

TEST_F(HttpTest, AMillionBytesOfOneStringAreAnswered) {
  const std::string body =
      absl::StrCat(R"({"job": {"cluster": {"gpu": ")", std::string(1000000, 'g'), R"("}}})");
  const httplib::Response response = Post("/v1:estimateMemory", body);
  EXPECT_EQ(response.status, 400);
  EXPECT_THAT(response.body, HasSubstr("ggg...; "));
  EXPECT_LT(response.body.size(), 8192u);
}

// What comes after those is not looked at.
TEST_F(HttpTest, ExplainsSomeOfVeryManyMistakes) {
  constexpr int kFields = 60000;
  std::string body = "{\"job\": {}";
  for (int i = 0; i < kFields; ++i) absl::StrAppend(&body, ",\"f", i, "\":0");
  const httplib::Response response = Post("/v1:estimateMemory", body + "}");
  EXPECT_EQ(response.status, 400);
  EXPECT_THAT(response.body, HasSubstr("f0: 0; no such field"));
  EXPECT_LT(response.body.size(), 256u << 10);
  EXPECT_EQ(Series("plimsoll_violations_total"), 257);
}

TEST_F(HttpTest, OnlyPostsAndOnlyKnownPaths) {
  auto client = Client();
  const httplib::Result get = client.Get("/v1:estimateMemory");
  ASSERT_TRUE(get);
  EXPECT_EQ(get->status, 405);
  EXPECT_EQ(get->get_header_value("Allow"), "POST");
  const httplib::Result elsewhere = client.Get("/v2");
  ASSERT_TRUE(elsewhere);
  EXPECT_EQ(elsewhere->status, 404);
  EXPECT_THAT(elsewhere->body, StartsWith(R"({"code":5,"message":"HTTP 404 for GET /v2")"));
  EXPECT_EQ(Series(R"(http_requests_total{code="404",handler="other"})"), 1);
}

TEST_F(HttpTest, ShedsWithRetryAfter) {
  ServerOptions options = FreePorts();
  options.max_in_flight = 1;
  const std::unique_ptr<Server> server = StartOrFail(options);
  const auto permit = server->gate().Enter();
  auto client = HttpClientFor(server->http_addresses()[0]);
  const httplib::Result shed = client.Post("/v1:listGpus", "{}", kJson);
  ASSERT_TRUE(shed);
  EXPECT_EQ(shed->status, 429);
  EXPECT_EQ(shed->get_header_value("Retry-After"), "1");
  // Pages are for operators, who need them most when it is full.
  const httplib::Result metrics = client.Get("/metrics");
  ASSERT_TRUE(metrics);
  EXPECT_EQ(SeriesValue(metrics->body, "plimsoll_requests_shed_total"), 1);
}

TEST_F(HttpTest, ShowsItsMetrics) {
  Post("/v1:estimateMemory", kGoodRequest);
  auto client = Client();
  const httplib::Result result = client.Get("/metrics");
  ASSERT_TRUE(result);
  EXPECT_EQ(result->get_header_value("Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(
      SeriesValue(result->body, R"(http_requests_total{code="200",handler="/v1:estimateMemory"})"),
      1);
  EXPECT_EQ(SeriesValue(result->body, "plimsoll_estimate_peak_bytes_count"), 1);
  double estimates = 0;
  for (const char* const verdict : {"fits", "at-risk", "does-not-fit"}) {
    estimates += SeriesValue(result->body,
                             absl::StrCat("plimsoll_estimates_total{verdict=\"", verdict, "\"}"));
  }
  EXPECT_EQ(estimates, 1);
}

TEST_F(HttpTest, IsReadyUntilItIsNot) {
  auto client = Client();
  const httplib::Result ready = client.Get("/readyz");
  ASSERT_TRUE(ready);
  EXPECT_EQ(ready->status, 200);
  server_->SetNotReady();
  const httplib::Result not_ready = client.Get("/readyz");
  ASSERT_TRUE(not_ready);
  EXPECT_EQ(not_ready->status, 503);
  EXPECT_EQ(Post("/v1:listGpus", "{}").status, 200) << "answers while it drains";
}

TEST_F(HttpTest, ListensOnUnixSocketsToo) {
  char folder[] = "/tmp/plimsoll_http_XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  ServerOptions options;
  options.listen = {absl::StrCat("unix:", folder, "/grpc")};
  options.http_listen = {absl::StrCat("unix:", folder, "/http")};
  options.log_level = LogLevel::kOff;
  {
    const std::unique_ptr<Server> server = StartOrFail(options);
    ASSERT_NE(server, nullptr);
    EXPECT_EQ(server->http_addresses(), options.http_listen);
    auto client = HttpClientFor(options.http_listen[0]);
    const httplib::Result over_http = client.Post("/v1:listGpus", "{}", kJson);
    ASSERT_TRUE(over_http);
    EXPECT_EQ(over_http->status, 200);
    grpc::ClientContext context;
    v1::ListGpusResponse response;
    EXPECT_TRUE(StubFor(options.listen[0])->ListGpus(&context, {}, &response).ok());
    for (const auto* const listen : {&options.listen, &options.http_listen}) {
      ServerOptions second = options;
      second.listen.clear();
      second.http_listen = *listen;
      const auto taken = Server::Start(second);
      ASSERT_TRUE(std::holds_alternative<std::string>(taken));
      EXPECT_EQ(std::get<std::string>(taken),
                absl::StrCat("cannot listen on ", (*listen)[0], ": Address already in use"));
    }
  }
  EXPECT_EQ(rmdir(folder), 0) << "the sockets are gone";
}

}  // namespace
}  // namespace plimsoll
