// Who may call what: by certificate, token or socket, and how much of it at once.
#include "server/access.h"

#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "running_server.h"
#include "server/words/document.h"
#include "testing/certificates.h"

namespace plimsoll {
namespace {

using testing::HasSubstr;

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
    const auto entered = access_->Enter(identity, method);
    const auto* const refusal = std::get_if<grpc::Status>(&entered);
    return refusal == nullptr ? "" : refusal->error_message();
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
    ASSERT_TRUE(std::holds_alternative<grpc::Status>(third));
    EXPECT_EQ(std::get<grpc::Status>(third).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(std::get<grpc::Status>(third).error_message(),
                HasSubstr("2 requests of one are in flight already"));
    EXPECT_EQ(Refusal(OfCertificate("two")), "") << "others do not wait for them";
    EXPECT_EQ(Refusal(OfCertificate("free")), "");
  }
  EXPECT_EQ(Refusal(OfCertificate("one")), "") << "places are given back";
}

TEST_F(AccessTest, SaysEverythingThatIsWrongAtOnce) {
  const absl::Status status = Load(
      "callers:\n"
      "  - {methods: [Estimate]}\n"
      "  - {name: anyone, unix_socket: true, max_call_count: 0}\n"
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
  const std::string path = testing::TempDir() + "/access" + std::to_string(getpid());
  options.listen.push_back("unix:" + path + ".grpc");
  options.http_listen.push_back("unix:" + path + ".http");
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

}  // namespace
}  // namespace plimsoll
