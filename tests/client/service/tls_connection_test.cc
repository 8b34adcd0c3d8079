// The program asks a server over TLS, with a certificate or a token.
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "testing/certificates.h"
#include "tests/client/process.h"
#include "tests/server/running_server.h"
#include "tests/testing/test_files.h"

namespace plimsoll {
namespace {

using testing::HasSubstr;

class TlsConnectionTest : public testing::Test {
 protected:
  void SetUp() override {
    const Pem pem = authority_.Issue("localhost");
    ca_ = WriteTestFile("ca.pem", authority_.pem());
    token_ = WriteTestFile("token", "0123456789abcdef\n");
    ServerOptions options = FreePorts();
    options.tls = {.certificate = WriteTestFile("server.pem", pem.certificate),
                   .key = WriteTestFile("server.key", pem.key),
                   .client_ca = ca_};
    options.access_policy =
        WriteTestFile("access.yaml",
                      "callers:\n"
                      "  - {name: portal, token_files: [" +
                          token_ +
                          "], methods: [ListGpus]}\n"
                          "  - {name: user, certificates: [user.example], methods: [ListGpus]}\n");
    server_ = StartOrFail(options);
    ASSERT_NE(server_, nullptr);
  }

  ProcessResult Gpus(const std::vector<std::string>& flags,
                     const std::vector<std::string>& environment = {}) const {
    std::vector<std::string> words = {"gpus", "--server", server_->addresses()[0]};
    words.insert(words.end(), flags.begin(), flags.end());
    return Plimsoll(words, "", environment);
  }

  TestAuthority authority_;
  std::string ca_, token_;
  std::unique_ptr<Server> server_;
};

TEST_F(TlsConnectionTest, ShowsACertificateOrATokenOrIsRefused) {
  const ProcessResult stranger = Gpus({"--tls-ca", ca_});
  EXPECT_EQ(stranger.code, 1);
  EXPECT_THAT(stranger.err, HasSubstr("anyone may not call ListGpus here"));
  const ProcessResult portal = Gpus({"--tls-ca", ca_, "--token-file", token_});
  EXPECT_EQ(portal.code, 0) << portal.err;
  EXPECT_THAT(portal.out, HasSubstr("h100-80gb-sxm"));
  const Pem own = authority_.Issue("user.example");
  const ProcessResult user =
      Gpus({}, {"PLIMSOLL_TLS_CA=" + ca_,
                "PLIMSOLL_TLS_CERTIFICATE=" + WriteTestFile("own.pem", own.certificate),
                "PLIMSOLL_TLS_KEY=" + WriteTestFile("own.key", own.key)});
  EXPECT_EQ(user.code, 0) << user.err;
  EXPECT_EQ(user.out, portal.out);
}

TEST_F(TlsConnectionTest, SaysWhatIsMissingOrWrong) {
  EXPECT_THAT(Gpus({"--token-file", token_}).err, HasSubstr("--token-file requires --tls-ca"));
  EXPECT_THAT(Gpus({"--tls-ca", "/nonexistent"}).err,
              HasSubstr("/nonexistent: No such file or directory; must be a readable file"));
  TestAuthority other;
  const ProcessResult impostor =
      Gpus({"--tls-ca", WriteTestFile("other.pem", other.pem()), "--timeout", "2s"});
  EXPECT_NE(impostor.code, 0);
  EXPECT_THAT(impostor.err, HasSubstr(server_->addresses()[0]));
}

}  // namespace
}  // namespace plimsoll
