// Admit over both faces, by the server's own policy.
#include <google/protobuf/util/json_util.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "server/wire/json.h"
#include "tests/server/running_server.h"
#include "tests/testing/test_files.h"

namespace plimsoll {
namespace {

using google::protobuf::util::MessageDifferencer;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kPolicy[] = R"(
rules: {mode: warn}
partitions:
  strict: {mode: enforce, gpu_types: {h100: h100-80gb-sxm}}
namespaces:
  research: {mode: shadow}
)";

// Does not fit as it is.
constexpr char kTooLarge[] = R"("job": {"model": {"name": "llama-3.1-8b"},
  "training": {"sequenceLength": 2048, "globalBatchSize": 16},
  "cluster": {"gpu": "h100-80gb-sxm", "gpuCount": 8}})";

class AdmitServiceTest : public testing::Test {
 protected:
  void SetUp() override {
    ServerOptions options = FreePorts();
    options.admission_policy = WriteTestFile("policy.yaml", kPolicy);
    server_ = StartOrFail(options);
    ASSERT_NE(server_, nullptr);
  }

  httplib::Response Post(const std::string& body) const {
    auto client = HttpClientFor(server_->http_addresses()[0]);
    const httplib::Result result = client.Post("/v1:admit", body, "application/json");
    EXPECT_TRUE(result);
    return result ? *result : httplib::Response();
  }

  v1::AdmissionDecision OverHttp(const std::string& body) const {
    const httplib::Response response = Post(body);
    EXPECT_EQ(response.status, 200) << response.body;
    v1::AdmitResponse answer;
    EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(response.body, &answer).ok());
    return answer.decision();
  }

  v1::AdmissionDecision OverGrpc(const std::string& body) const {
    v1::AdmitRequest request;
    EXPECT_THAT(ReadJsonMessage(body, &request), IsEmpty());
    grpc::ClientContext context;
    v1::AdmitResponse response;
    const grpc::Status status =
        StubFor(server_->addresses()[0])->Admit(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.decision();
  }

  double Series(const std::string& labels) const {
    return SeriesValue(server_->metrics().Text(),
                       absl::StrCat("plimsoll_admissions_total{", labels, "}"));
  }

  std::unique_ptr<Server> server_;
};

TEST_F(AdmitServiceTest, DecidesByTheServersPolicy) {
  const struct {
    const char* place;
    const char* mode;
    v1::Decision decision;
  } kRows[] = {
      {R"("partition": "strict")", "enforce", v1::DECISION_REJECT},
      {R"("partition": "other")", "warn", v1::DECISION_WARN},
      {R"("partition": "strict", "namespace": "research")", "shadow", v1::DECISION_ADMIT},
  };
  for (const auto& row : kRows) {
    const std::string body =
        absl::StrCat("{\"schedulerRequest\": {", row.place, "}, ", kTooLarge, "}");
    const v1::AdmissionDecision decision = OverHttp(body);
    EXPECT_EQ(decision.mode(), row.mode);
    EXPECT_EQ(decision.decision(), row.decision) << row.place;
    EXPECT_EQ(decision.enforced(), v1::DECISION_REJECT);
    EXPECT_TRUE(MessageDifferencer::Equals(decision, OverGrpc(body))) << row.place;
  }
  EXPECT_EQ(Series(R"(cause="does-not-fit",decision="reject",enforced="reject",mode="enforce")"),
            2);
  EXPECT_EQ(Series(R"(cause="does-not-fit",decision="admit",enforced="reject",mode="shadow")"), 2);
  EXPECT_EQ(Series(R"(cause="fits",decision="admit",enforced="admit",mode="warn")"), 0);
}

// The server reads the words of a job as the command line does.
TEST_F(AdmitServiceTest, ReadsTheUsersWords) {
  const v1::AdmissionDecision decision = OverHttp(R"({"schedulerRequest": {"scheduler": "slurm",
      "partition": "strict", "tresPerNode": "gres:gpu:h100:8",
      "scriptWords": "#PLIMSOLL model=meta-llama/Llama-3.1-8B seq_len=4k\n#PLIMSOLL zero=3"}})");
  EXPECT_EQ(decision.cause(), v1::CAUSE_FITS) << decision.message();
  EXPECT_EQ(decision.job().cluster().gpu(), "h100-80gb-sxm");
  EXPECT_EQ(decision.job().training().sequence_length(), 4096);
}

// A malformed job is a decision, a malformed request is none; both in the caller's names.
TEST_F(AdmitServiceTest, TellsAJobFromARequest) {
  const v1::AdmissionDecision decision = OverHttp(R"({"schedulerRequest": {"partition": "strict"},
      "job": {"model": {"name": "llama-3.1-8b"}, "training": {"sequenceLenght": 1,
      "microBatchSize": "x"}}})");
  EXPECT_EQ(decision.cause(), v1::CAUSE_BAD_WORDS);
  EXPECT_THAT(
      decision.message(),
      HasSubstr("job.training.sequenceLenght: 1; no such field, did you mean sequenceLength\n"));
  EXPECT_THAT(decision.message(), HasSubstr("job.training.microBatchSize: \"x\"; "));
  const httplib::Response refused =
      Post(R"({"schedulerRequests": {}, "policy": {"rules": {"atRisk": 1}}})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("schedulerRequests: "));
  EXPECT_THAT(refused.body, HasSubstr("policy.rules.atRisk: 1; "));
}

TEST_F(AdmitServiceTest, RefusesAPolicyThatIsNone) {
  ServerOptions options = FreePorts();
  options.admission_policy = "/no/such/policy.yaml";
  EXPECT_THAT(std::get<std::string>(Server::Start(options)),
              HasSubstr("admission policy: /no/such/policy.yaml: No such file or directory"));
}

}  // namespace
}  // namespace plimsoll
