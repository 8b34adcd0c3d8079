// Who may call what: by certificate, token or socket, and how much of it at once.
#include "server/access/access.h"

#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/wire/status.h"
#include "server/words/document.h"
#include "tests/server/running_server.h"
#include "tests/testing/test_files.h"

namespace plimsoll {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

constexpr char kToken[] = "0123456789abcdef";

Identity Anyone() { return {.over_tls = true}; }

Identity OfCertificate(const std::string& name) {
  return {.over_tls = true, .certified = true, .names = {name}};
}

Identity OfToken(const std::string& authorization) {
  return {.over_tls = true, .authorization = authorization};
}

class AccessTest : public testing::Test {
 protected:
  // Loads a policy; `text` may name the token's file, TOKEN.
  absl::Status Load(std::string text, bool asks_certificates = true) {
    const std::string token = WriteTestFile("token", std::string(kToken) + "\n");
    if (const size_t at = text.find("TOKEN"); at != std::string::npos) text.replace(at, 5, token);
    path_ = WriteTestFile("access.yaml", text);
    auto access = Access::Load({.policy = path_, .asks_certificates = asks_certificates});
    if (access.ok()) access_ = *std::move(access);
    return access.status();
  }

  // Returns "" where the caller may, else the refusal.
  std::string Refusal(const Identity& identity, Method method = Method::kAdmit) const {
    return access_->Enter(identity, method).status().error_message();
  }

  std::string path_;
  std::unique_ptr<Access> access_;
};

TEST_F(AccessTest, KnowsCallersByWhatTheyShow) {
  ASSERT_TRUE(Load("callers:\n"
                   "  - {name: slurm, certificates: [ctld.example], methods: [Admit]}\n"
                   "  - {name: local, unix_socket: true, methods: [Admit]}\n"
                   "  - {name: portal, token_files: [TOKEN], methods: [Admit]}\n"
                   "anyone: [ListGpus]\n")
                  .ok());
  EXPECT_EQ(Refusal(OfCertificate("ctld.example")), "");
  EXPECT_EQ(Refusal({.over_unix_socket = true}), "");
  EXPECT_EQ(Refusal(OfToken("Bearer 0123456789abcdef")), "");
  EXPECT_EQ(Refusal(OfToken("bearer 0123456789abcdef")), "");
  Identity unverified = OfCertificate("ctld.example");
  unverified.certified = false;
  Identity in_the_clear = OfToken("Bearer 0123456789abcdef");
  in_the_clear.over_tls = false;
  for (const Identity& identity :
       {Anyone(), unverified, in_the_clear, OfCertificate("ctld.example.org"),
        OfToken("Bearer 0123456789abcdeF"), OfToken("Bearer 0123456789abcde"),
        OfToken("Basic 0123456789abcdef"), OfToken("Bearer "), OfToken("0123456789abcdef")}) {
    EXPECT_EQ(Refusal(identity), "anyone may not call Admit here") << identity.authorization;
    EXPECT_EQ(Refusal(identity, Method::kListGpus), "");
  }
  EXPECT_EQ(Refusal(OfCertificate("ctld.example"), Method::kReportUsage),
            "slurm may not call ReportUsage here");
  EXPECT_EQ(Refusal(OfCertificate("ctld.example"), Method::kListGpus), "") << "as anyone";
}

TEST_F(AccessTest, TheFirstWhoFitsCountsAndAStarIsAnyVerifiedCertificate) {
  ASSERT_TRUE(Load("callers:\n"
                   "  - {name: few, certificates: [a.example], methods: [ListGpus]}\n"
                   "  - {name: many, certificates: ['*'], methods: [all]}\n")
                  .ok());
  EXPECT_EQ(Refusal(OfCertificate("a.example")), "few may not call Admit here");
  EXPECT_EQ(Refusal(OfCertificate("b.example")), "");
}

TEST_F(AccessTest, EachCallerHasItsOwnPlaces) {
  ASSERT_TRUE(Load("callers:\n"
                   "  - {name: one, certificates: [one], methods: [all], max_call_count: 2}\n"
                   "  - {name: two, certificates: [two], methods: [all], max_call_count: 1}\n"
                   "  - {name: free, certificates: [free], methods: [all]}\n")
                  .ok());
  {
    const auto first = access_->Enter(OfCertificate("one"), Method::kAdmit);
    const auto second = access_->Enter(OfCertificate("one"), Method::kAdmit);
    const auto third = access_->Enter(OfCertificate("one"), Method::kAdmit);
    EXPECT_EQ(third.status().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_EQ(third.status().error_message(),
              "one is at its max_call_count of 2 here; try again in 100 ms");
    EXPECT_EQ(RetryAfterOf(third.status()), std::chrono::milliseconds(100));
    EXPECT_EQ(third.broken_rule(), AccessRule::kMaxCallCount);
    EXPECT_EQ(first.broken_rule(), std::nullopt);
    EXPECT_EQ(Refusal(OfCertificate("two")), "") << "others do not wait for them";
    EXPECT_EQ(Refusal(OfCertificate("free")), "");
  }
  EXPECT_EQ(Refusal(OfCertificate("one")), "") << "places are given back";
}

TEST_F(AccessTest, ACallerMayBeKeptFromCallingOftenAndFromKeepingCoresBusy) {
  ASSERT_TRUE(
      Load("callers:\n"
           "  - {name: often, certificates: [often], methods: [all], max_calls_per_second: 0.15}\n"
           "  - {name: busy, certificates: [busy], methods: [all], max_cores: 0.5}\n")
          .ok());
  const Identity often = OfCertificate("often"), busy = OfCertificate("busy");
  EXPECT_EQ(Refusal(often), "");
  EXPECT_EQ(Refusal(often), "") << "1.5 of ten seconds were not spent";
  EXPECT_THAT(Refusal(often),
              MatchesRegex("often is at its max_calls_per_second of 0.15 here; try again "
                           "in [0-9]+ ms"));
  EXPECT_EQ(access_->Enter(often, Method::kAdmit).broken_rule(), AccessRule::kMaxCallsPerSecond);
  access_->Enter(busy, Method::kAdmit).Charge(std::chrono::seconds(4));
  EXPECT_EQ(Refusal(busy), "");
  access_->Enter(busy, Method::kAdmit).Charge(std::chrono::seconds(2));
  const Access::Entry refused = access_->Enter(busy, Method::kAdmit);
  EXPECT_EQ(refused.broken_rule(), AccessRule::kMaxCores);
  EXPECT_GT(*RetryAfterOf(refused.status()), std::chrono::milliseconds(1500)) << "a second's work";
  EXPECT_LE(*RetryAfterOf(refused.status()), std::chrono::milliseconds(2001));
}

TEST_F(AccessTest, SaysEverythingThatIsWrongAtOnce) {
  const absl::Status status = Load(
      "callers:\n"
      "  - {methods: [Estimate]}\n"
      "  - {name: anyone, unix_socket: true, max_call_count: 0,\n"
      "     max_calls_per_second: 0, max_cores: -1, max_connection_count: 0}\n"
      "  - {name: x, certificates: [y], methods: [all]}\n"
      "  - {name: x, unix_socket: true, methods: [all], color: red}\n"
      "anyone: [everything]\n",
      /*asks_certificates=*/false);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  for (const char* const line :
       {"access.callers[0].name: not set; must be set",
        "access.callers[0]: no credential; must have certificates, unix_socket or token_files",
        "access.callers[0].methods[0]: Estimate; must be one of all, EstimateMemory",
        "access.callers[1].name: anyone; must be unique, and not anyone",
        "access.callers[1].methods: not set; must be set",
        "access.callers[1].max_call_count: 0; must be 1 or more",
        "access.callers[1].max_calls_per_second: 0; must be a number above 0",
        "access.callers[1].max_cores: -1; must be a number above 0",
        "access.callers[1].max_connection_count: 0; must be 1 or more",
        "access.callers[2].certificates: y; needs --tls-client-ca",
        "access.callers[3].name: x; must be unique, and not anyone", "access.callers[3].color",
        "access.anyone[0]: everything; must be one of"}) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(line));
  }
}

TEST_F(AccessTest, RefusesATokenThatCanBeGuessed) {
  path_ = WriteTestFile("token", "short\n");
  const std::string policy = WriteTestFile(
      "access.yaml", "callers: [{name: x, token_files: [" + path_ + "], methods: [all]}]");
  EXPECT_EQ(std::string(Access::Load({.policy = policy}).status().message()),
            path_ + ": 5 characters; must have a token of 16 or more");
}

TEST_F(AccessTest, KeepsTheOldPolicyWhereTheNewIsBad) {
  ASSERT_TRUE(Load("anyone: [Admit]").ok());
  WriteTestFile("access.yaml", "anyone: [Admits]");
  EXPECT_FALSE(access_->Reload().ok());
  EXPECT_EQ(Refusal(Anyone()), "");
  WriteTestFile("access.yaml", "anyone: [ListGpus]");
  EXPECT_TRUE(access_->Reload().ok());
  EXPECT_EQ(Refusal(Anyone()), "anyone may not call Admit here");
}

// As it stands in deploy/, but for the token's place.
TEST_F(AccessTest, TheExampleIsGood) {
  std::string text = *ReadDocument(PLIMSOLL_EXAMPLE);
  const std::string token = "/etc/plimsoll/portal.token";
  ASSERT_NE(text.find(token), std::string::npos);
  text.replace(text.find(token), token.size(), "TOKEN");
  const absl::Status status = Load(text);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(Refusal(OfToken(std::string("Bearer ") + kToken), Method::kEstimateMemory), "");
  EXPECT_EQ(Refusal(Anyone()), "anyone may not call Admit here");
}

TEST_F(AccessTest, WithoutAPolicyReportsAreForUnixSocketsAndCertificatesForTcp) {
  access_ = *Access::Load({.accept_reports = true, .asks_certificates = true});
  EXPECT_EQ(Refusal(Anyone()),
            "this server answers callers with a certificate of its --tls-client-ca alone");
  EXPECT_EQ(Refusal(OfCertificate("x")), "");
  EXPECT_EQ(Refusal({.over_unix_socket = true}), "");
  EXPECT_EQ(Refusal({.over_unix_socket = true}, Method::kReportUsage), "");
  EXPECT_THAT(Refusal(OfCertificate("x"), Method::kReportUsage),
              HasSubstr("over a unix socket alone"));
  EXPECT_FALSE((*Access::Load({}))->asks());
}

// Over both faces of a server, by its socket.
TEST_F(AccessTest, HoldsOverGrpcAndHttp) {
  ServerOptions options = FreePorts();
  options.listen.push_back("unix:" + TestPath("grpc"));
  options.http_listen.push_back("unix:" + TestPath("http"));
  options.access_policy = WriteTestFile(
      "access.yaml", "callers: [{name: local, unix_socket: true, methods: [ListGpus]}]");
  const std::unique_ptr<Server> server = StartOrFail(options);
  ASSERT_NE(server, nullptr);
  for (const size_t address : {0, 1}) {
    const bool is_unix = address == 1;
    grpc::ClientContext context;
    v1::ListGpusResponse response;
    EXPECT_EQ(StubFor(server->addresses()[address])->ListGpus(&context, {}, &response).error_code(),
              is_unix ? grpc::StatusCode::OK : grpc::StatusCode::PERMISSION_DENIED);
    auto http = HttpClientFor(server->http_addresses()[address]);
    EXPECT_EQ(http.Post("/v1:listGpus", "{}", "application/json")->status, is_unix ? 200 : 403);
    EXPECT_EQ(http.Post("/v1:listModels", "{}", "application/json")->status, 403);
    EXPECT_EQ(http.Get("/readyz")->status, 200);
  }
}

// What pools' threads do is at the caller's cost too.
TEST_F(AccessTest, SearchesAreAtTheirCallersCostOverBothFaces) {
  ServerOptions options = FreePorts();
  options.listen = {"unix:" + TestPath("grpc")};
  options.http_listen = {"unix:" + TestPath("http")};
  options.access_policy = WriteTestFile(
      "access.yaml", "callers: [{name: local, unix_socket: true, methods: [all], max_cores: 9}]");
  const std::unique_ptr<Server> server = StartOrFail(options);
  ASSERT_NE(server, nullptr);
  const auto seconds = [&] {
    return SeriesValue(server->metrics().Text(),
                       R"(plimsoll_caller_core_seconds_total{caller="local"})");
  };
  v1::RecommendConfigRequest request;
  v1::Job* const job = request.mutable_job();
  job->mutable_model()->set_name("llama-3.1-8b");
  job->mutable_training()->set_sequence_length(4096);
  job->mutable_cluster()->set_gpu("h100-80gb-sxm");
  job->mutable_cluster()->set_gpu_count(64);
  grpc::ClientContext context;
  v1::RecommendConfigResponse response;
  const grpc::Status status =
      StubFor(server->addresses()[0])->RecommendConfig(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const double over_grpc = seconds();
  EXPECT_GT(over_grpc, 1e-3) << "a search takes milliseconds at least";
  auto http = HttpClientFor(server->http_addresses()[0]);
  http.set_read_timeout(std::chrono::minutes(1));
  const httplib::Result posted =
      http.Post("/v1:recommendConfig",
                R"({"job":{"model":{"name":"llama-3.1-8b"},"training":{"sequenceLength":4096},)"
                R"("cluster":{"gpu":"h100-80gb-sxm","gpuCount":64}}})",
                "application/json");
  ASSERT_EQ(posted->status, 200) << posted->body;
  EXPECT_GT(seconds() - over_grpc, 1e-3);
}

}  // namespace
}  // namespace plimsoll
