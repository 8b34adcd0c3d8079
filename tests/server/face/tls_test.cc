// TLS over both faces: who is let in, and certificates that change while the server runs.
#include "server/face/tls.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "grpc/support/log.h"
#include "gtest/gtest.h"
#include "testing/certificates.h"
#include "tests/server/raw_connection.h"
#include "tests/server/running_server.h"
#include "tests/testing/test_files.h"

namespace plimsoll {
namespace {

using testing::HasSubstr;

class TlsTest : public testing::Test {
 protected:
  // gRPC tells of every handshake that fails.
  static void SetUpTestSuite() {
    gpr_set_log_function([](gpr_log_func_args*) {});
  }

  // Puts a certificate into the server's files.
  void Put(const Pem& pem) {
    files_ = {.certificate = WriteTestFile("server.pem", pem.certificate),
              .key = WriteTestFile("server.key", pem.key),
              .client_ca = files_.client_ca};
  }

  void StartServer(bool asks_certificates) {
    if (asks_certificates) files_.client_ca = WriteTestFile("ca.pem", authority_.pem());
    Put(authority_.Issue("localhost"));
    ServerOptions options = FreePorts();
    options.listen.push_back("unix:" + TestPath("socket"));
    options.tls = files_;
    server_ = StartOrFail(options);
    ASSERT_NE(server_, nullptr);
  }

  // Starts a server that a caller with this name in its certificate may ask for GPUs, within
  // `limits` of the policy.
  void StartServerFor(const std::string& name, const std::string& limits = "") {
    files_.client_ca = WriteTestFile("ca.pem", authority_.pem());
    Put(authority_.Issue("localhost"));
    ServerOptions options = FreePorts();
    options.tls = files_;
    options.access_policy =
        WriteTestFile("access.yaml", "callers: [{name: x, certificates: [" + name +
                                         "], methods: [ListGpus]" + limits + "}]");
    server_ = StartOrFail(options);
    ASSERT_NE(server_, nullptr);
  }

  using Stub = v1::PlannerService::Stub;

  // With a connection of its own; `own` may be empty.
  std::unique_ptr<Stub> StubOf(const std::string& ca, const Pem& own) const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return v1::PlannerService::NewStub(grpc::CreateCustomChannel(
        server_->addresses()[0], grpc::SslCredentials({ca, own.key, own.certificate}), arguments));
  }

  static grpc::Status AskOver(Stub* stub) {
    grpc::ClientContext context;
    v1::ListGpusResponse response;
    return stub->ListGpus(&context, {}, &response);
  }

  // Asks over gRPC.
  grpc::Status Ask(const std::string& ca, const Pem& own = {}) const {
    return AskOver(StubOf(ca, own).get());
  }

  double Series(const std::string& series) const {
    return SeriesValue(server_->metrics().Text(), series);
  }

  // With a connection that it keeps.
  std::unique_ptr<httplib::SSLClient> HttpClientOf(const Pem& own) const {
    const Address address = *ParseAddress(server_->http_addresses()[0]);
    const std::string ca = WriteTestFile("http-ca.pem", authority_.pem());
    std::unique_ptr<httplib::SSLClient> client;
    if (own.key.empty()) {
      client = std::make_unique<httplib::SSLClient>("localhost", address.port);
    } else {
      client = std::make_unique<httplib::SSLClient>("localhost", address.port,
                                                    WriteTestFile("own.pem", own.certificate),
                                                    WriteTestFile("own.key", own.key));
    }
    client->set_ca_cert_path(ca.c_str());
    client->set_keep_alive(true);
    return client;
  }

  // Returns the status of a page or a method over HTTP; 0 where there is no connection.
  int Http(const std::string& path, const Pem& own = {}) const {
    const std::unique_ptr<httplib::SSLClient> client = HttpClientOf(own);
    const httplib::Result result =
        path == "/readyz" ? client->Get(path) : client->Post(path, "{}", "application/json");
    return result ? result->status : 0;
  }

  TestAuthority authority_;
  TlsFiles files_;
  std::unique_ptr<Server> server_;
};

TEST_F(TlsTest, AnswersOverTlsAndOverUnixSocketsInTheClear) {
  StartServer(/*asks_certificates=*/false);
  EXPECT_TRUE(Ask(authority_.pem()).ok()) << Ask(authority_.pem()).error_message();
  EXPECT_EQ(Http("/readyz"), 200);
  EXPECT_EQ(Http("/v1:listGpus"), 200);
  grpc::ClientContext context;
  v1::ListGpusResponse response;
  EXPECT_TRUE(StubFor(server_->addresses()[1])->ListGpus(&context, {}, &response).ok());
  // Another authority's server is none, and nobody is answered in the clear.
  TestAuthority other;
  EXPECT_EQ(Ask(other.pem()).error_code(), grpc::StatusCode::UNAVAILABLE);
  RawConnection plain(server_->http_addresses()[0]);
  plain.Send("GET /readyz HTTP/1.1\r\n\r\n");
  EXPECT_THAT(plain.ReadAnswer(), testing::Not(HasSubstr("200")));
  const double expiry =
      SeriesValue(server_->metrics().Text(), "plimsoll_tls_certificate_expiry_timestamp_seconds");
  EXPECT_NEAR(expiry, static_cast<double>(time(nullptr)) + 24 * 3600, 60);
}

TEST_F(TlsTest, AsksForCertificatesOfItsAuthority) {
  StartServer(/*asks_certificates=*/true);
  const Pem own = authority_.Issue("caller.example");
  EXPECT_EQ(Ask(authority_.pem()).error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_TRUE(Ask(authority_.pem(), own).ok()) << Ask(authority_.pem(), own).error_message();
  EXPECT_EQ(Http("/v1:listGpus"), 403);
  EXPECT_EQ(Http("/v1:listGpus", own), 200);
  EXPECT_EQ(Http("/readyz"), 200) << "pages are for all";
  TestAuthority other;
  const Pem foreign = other.Issue("caller.example");
  EXPECT_EQ(Ask(authority_.pem(), foreign).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Http("/v1:listGpus", foreign), 0);
}

TEST_F(TlsTest, KnowsCallersOfAPolicyByTheirNames) {
  StartServerFor("caller.example");
  EXPECT_TRUE(Ask(authority_.pem(), authority_.Issue("caller.example")).ok());
  EXPECT_EQ(Http("/v1:listGpus", authority_.Issue("caller.example")), 200);
  EXPECT_EQ(Ask(authority_.pem(), authority_.Issue("other.example")).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(Http("/v1:listGpus", authority_.Issue("other.example")), 403);
}

// Each of a certificate's names counts, over both faces: 127.0.0.1 is among them.
TEST_F(TlsTest, KnowsCallersOfAPolicyByTheirAddresses) {
  StartServerFor("127.0.0.1");
  const Pem own = authority_.Issue("caller.example");
  EXPECT_TRUE(Ask(authority_.pem(), own).ok());
  EXPECT_EQ(Http("/v1:listGpus", own), 200);
}

// Of more, the most silent is closed, and its caller's next call finds another.
TEST_F(TlsTest, ClosesConnectionsOfACallerWhoHasTooMany) {
  StartServerFor("caller.example", ", max_connection_count: 2");
  const Pem own = authority_.Issue("caller.example");
  std::vector<std::unique_ptr<Stub>> stubs;
  for (int i = 0; i < 4; ++i) {
    stubs.push_back(StubOf(authority_.pem(), own));
    EXPECT_TRUE(AskOver(stubs.back().get()).ok());
  }
  const std::string connections = R"(plimsoll_caller_connections{caller="x"})";
  const std::string closed = R"(plimsoll_grpc_connections_closed_total{reason="crowded"})";
  while (Series(closed) != 2 || Series(connections) != 2) std::this_thread::yield();
  EXPECT_TRUE(AskOver(stubs.back().get()).ok());
  stubs.clear();
  while (Series(connections) != 0) std::this_thread::yield();
  EXPECT_EQ(Series(R"(plimsoll_caller_calls_total{caller="x"})"), 5);
}

// Over HTTP they count with those over gRPC, and the one that waits longest is closed.
TEST_F(TlsTest, CountsACallersConnectionsOverBothFaces) {
  StartServerFor("caller.example", ", max_connection_count: 2");
  const Pem own = authority_.Issue("caller.example");
  const std::unique_ptr<Stub> stub = StubOf(authority_.pem(), own);
  EXPECT_TRUE(AskOver(stub.get()).ok());
  const std::string connections = R"(plimsoll_caller_connections{caller="x"})";
  while (Series(connections) != 1) std::this_thread::yield();
  const std::string closed = R"(plimsoll_http_connections_closed_total{reason="crowded"})";
  std::vector<std::unique_ptr<httplib::SSLClient>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(HttpClientOf(own));
    const httplib::Result result = clients.back()->Post("/v1:listGpus", "{}", "application/json");
    EXPECT_TRUE(result && result->status == 200);
    while (Series(connections) + Series(closed) != i + 2) std::this_thread::yield();
  }
  EXPECT_EQ(Series(closed), 2);
  EXPECT_EQ(Series(R"(plimsoll_grpc_connections_closed_total{reason="crowded"})"), 0);
  EXPECT_TRUE(AskOver(stub.get()).ok());
  clients.clear();
  while (Series(connections) != 1) std::this_thread::yield();
}

// What TLS has unpacked at once is answered at once: the socket says nothing of it.
TEST_F(TlsTest, AnswersRequestsThatCameInOneRecord) {
  StartServer(/*asks_certificates=*/false);
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  SSL_CTX_free);
  const std::unique_ptr<BIO, decltype(&BIO_free_all)> client(BIO_new_ssl_connect(context.get()),
                                                             BIO_free_all);
  BIO_set_conn_hostname(client.get(), server_->http_addresses()[0].c_str());
  const std::string first =
      "POST /v1:listGpus HTTP/1.1\r\nContent-Length: 5000\r\n\r\n" + std::string(5000, ' ');
  const std::string requests = first + first + "GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n";
  ASSERT_EQ(BIO_write(client.get(), requests.data(), static_cast<int>(requests.size())),
            static_cast<int>(requests.size()));
  std::string answers;
  char buffer[4096];
  for (int count = 0; (count = BIO_read(client.get(), buffer, sizeof buffer)) > 0;) {
    answers.append(buffer, static_cast<size_t>(count));
  }
  EXPECT_THAT(answers, testing::EndsWith("ok\n"));
}

// A new certificate of a new authority is shown within a second or so, by both faces.
TEST_F(TlsTest, TakesANewCertificateWhileItRuns) {
  StartServer(/*asks_certificates=*/false);
  TestAuthority next;
  Put(next.Issue("localhost"));
  while (!Ask(next.pem()).ok()) std::this_thread::yield();
  EXPECT_EQ(Http("/readyz"), 0) << "the old authority knows it no more";
  const std::string taken = R"(plimsoll_reloads_total{outcome="taken",setting="tls"})";
  EXPECT_GE(SeriesValue(server_->metrics().Text(), taken), 1);
}

// gRPC's certificate and HTTP's are one: where one of the files can't be handed on, none is.
TEST_F(TlsTest, TakesAllFilesOrNone) {
  files_.client_ca = WriteTestFile("ca.pem", authority_.pem());
  Put(authority_.Issue("localhost"));
  const auto tls = ServerTls::Load(files_);
  ASSERT_TRUE(tls.ok()) << tls.status().message();
  const auto context = (*tls)->HttpContext();
  Put(authority_.Issue("localhost"));
  rlimit old{};
  getrlimit(RLIMIT_NOFILE, &old);
  rlimit one_left = old;
  one_left.rlim_cur = static_cast<rlim_t>(UniqueFd(open("/dev/null", O_RDONLY)).get()) + 1;
  setrlimit(RLIMIT_NOFILE, &one_left);
  const absl::Status status = (*tls)->Reload();
  setrlimit(RLIMIT_NOFILE, &old);
  EXPECT_EQ(status, absl::ResourceExhaustedError("cannot hand it on: Too many open files"));
  EXPECT_EQ((*tls)->HttpContext(), context);
  EXPECT_TRUE((*tls)->Reload().ok());
  EXPECT_NE((*tls)->HttpContext(), context);
}

TEST_F(TlsTest, SaysWhatIsWrongWithFiles) {
  const Pem good = authority_.Issue("localhost");
  const Pem other = authority_.Issue("localhost");
  const Pem expired = authority_.Issue("localhost", 0);
  const auto refusal = [this](const Pem& pem) {
    Put(pem);
    return std::string(ServerTls::Load(files_).status().message());
  };
  EXPECT_EQ(refusal(good), "");
  EXPECT_EQ(refusal({good.certificate, other.key}),
            files_.key + ": not the key of " + files_.certificate);
  EXPECT_EQ(refusal({good.key, good.key}),
            files_.certificate + ": no certificate in it; must be PEM");
  EXPECT_EQ(refusal({good.certificate, "x"}),
            files_.key + ": no private key in it; must be PEM, without a password");
  EXPECT_THAT(refusal(expired), HasSubstr(files_.certificate + ": has expired, on 20"));
  files_.client_ca = "/nonexistent";
  EXPECT_THAT(refusal(good), HasSubstr("/nonexistent: No such file or directory"));
}

}  // namespace
}  // namespace plimsoll
