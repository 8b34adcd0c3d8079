// Connections of the HTTP face: kept between requests, without a thread of their own, and
// gone with the server.
#include "server/face/http_listener.h"

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/raw_connection.h"
#include "tests/server/running_server.h"

namespace plimsoll {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr char kGet[] = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";

std::string Post(const std::string& path, const std::string& body) {
  return absl::StrCat("POST ", path, " HTTP/1.1\r\nHost: x\r\nContent-Length: ", body.size(),
                      "\r\n\r\n", body);
}

// The port that the client's connection has on its side.
int LocalPort(const httplib::Client& client) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  EXPECT_EQ(getsockname(client.socket(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  return ntohs(address.sin_port);
}

class HttpListenerTest : public testing::Test {
 protected:
  void SetUp() override {
    server_ = StartOrFail(FreePorts());
    ASSERT_NE(server_, nullptr);
  }

  const std::string& address() const { return server_->http_addresses()[0]; }

  std::unique_ptr<Server> server_;
};

TEST_F(HttpListenerTest, AClientAsksManyTimesOnOneConnection) {
  httplib::Client client = HttpClientFor(address());
  client.set_keep_alive(true);
  const httplib::Result first = client.Get("/healthz");
  ASSERT_TRUE(first);
  EXPECT_EQ(first->get_header_value("Keep-Alive"), "timeout=75, max=1000");
  EXPECT_FALSE(first->has_header("Connection"));
  const int port = LocalPort(client);
  for (int i = 0; i < 5; ++i) {
    const httplib::Result estimate =
        client.Post("/v1:estimateMemory", kGoodRequest, "application/json");
    ASSERT_TRUE(estimate);
    EXPECT_EQ(estimate->status, 200);
    const httplib::Result refused = client.Post("/v1:estimateMemory", "{", "application/json");
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->status, 400) << "a refusal ends nothing";
    EXPECT_EQ(LocalPort(client), port);
  }
}

TEST_F(HttpListenerTest, RequestsSentAheadAreAnsweredInTurn) {
  RawConnection connection(address());
  ASSERT_TRUE(
      connection.Send(absl::StrCat(kGet, Post("/v1:listGpus", "{}"), Post("/v1:listGpus", ""), kGet,
                                   "GET /readyz HTTP/1.1\r\nConnection: Close\r\n\r\n")));
  EXPECT_THAT(connection.ReadAnswer(), EndsWith("ok\n"));
  EXPECT_THAT(connection.ReadAnswer(), HasSubstr("h100-80gb-sxm"));
  EXPECT_THAT(connection.ReadAnswer(), HasSubstr("h100-80gb-sxm"));
  EXPECT_THAT(connection.ReadAnswer(), EndsWith("ok\n"));
  EXPECT_THAT(connection.ReadAnswer(), EndsWith("ready\n"));
  EXPECT_TRUE(connection.Ends());
}

// Many more than there are threads.
TEST_F(HttpListenerTest, ConnectionsThatWaitTakeNoThread) {
  std::vector<std::unique_ptr<RawConnection>> waiting;
  for (int i = 0; i < 100; ++i) {
    waiting.push_back(std::make_unique<RawConnection>(address()));
    if (i % 2 == 0) continue;  // never said a word
    ASSERT_TRUE(waiting.back()->Send(kGet));
    EXPECT_THAT(waiting.back()->ReadAnswer(), EndsWith("ok\n"));
  }
  RawConnection late(address());
  ASSERT_TRUE(late.Send(Post("/v1:estimateMemory", kGoodRequest)));
  EXPECT_THAT(late.ReadAnswer(), StartsWith("HTTP/1.1 200"));
  for (const auto& one : waiting) {
    ASSERT_TRUE(one->Send(kGet));
    EXPECT_THAT(one->ReadAnswer(), EndsWith("ok\n")) << "still there";
  }
}

TEST_F(HttpListenerTest, TheLongestWaitingGivesWay) {
  RawConnection first(address());
  ASSERT_TRUE(first.Send(kGet));
  EXPECT_THAT(first.ReadAnswer(), EndsWith("ok\n"));
  std::vector<std::unique_ptr<RawConnection>> others;
  for (size_t i = 0; i < kMaxIdleConnections; ++i) {
    others.push_back(std::make_unique<RawConnection>(address()));
    ASSERT_TRUE(others.back()->Send(kGet));
    EXPECT_THAT(others.back()->ReadAnswer(), EndsWith("ok\n"));
  }
  EXPECT_TRUE(first.Ends());
}

TEST_F(HttpListenerTest, AStopClosesThoseThatWaitAtOnce) {
  RawConnection asked(address());
  RawConnection silent(address());
  ASSERT_TRUE(asked.Send(kGet));
  EXPECT_THAT(asked.ReadAnswer(), EndsWith("ok\n"));
  const auto begin = std::chrono::steady_clock::now();
  server_->Shutdown(std::chrono::milliseconds(0));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kMaxIdleTime / 10);
  EXPECT_TRUE(asked.Ends());
  EXPECT_TRUE(silent.Ends());
}

TEST_F(HttpListenerTest, AConnectionHasSoManyRequests) {
  RawConnection connection(address());
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 1; i < kMaxRequestsOfConnection; ++i) {
    ASSERT_TRUE(connection.Send(kGet));
    ASSERT_THAT(connection.ReadAnswer(), Not(HasSubstr("Connection: close"))) << i;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin,
            kMaxRequestsOfConnection * std::chrono::milliseconds(20))
      << "no answer waits for an acknowledgement";
  ASSERT_TRUE(connection.Send(kGet));
  EXPECT_THAT(connection.ReadAnswer(), HasSubstr("Connection: close"));
  EXPECT_TRUE(connection.Ends());
}

// What may hold a part of the request before it must not be read as a request.
TEST_F(HttpListenerTest, ClosesWhereTheNextRequestsBeginIsNotSure) {
  const std::string next = "GET /metrics HTTP/1.1\r\n\r\n";
  const struct {
    std::string text;
    const char* status;
  } kRows[] = {
      {absl::StrCat("GET /healthz HTTP/1.1\r\nContent-Length: ", next.size(), "\r\n\r\n", next),
       "HTTP/1.1 200"},
      {absl::StrCat("GET /healthz HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", next),
       "HTTP/1.1 200"},
      {absl::StrCat("no request at all\r\n\r\n", next), "HTTP/1.1 400"},
      {absl::StrCat(Post("/nowhere", next)), "HTTP/1.1 404"},
      {absl::StrCat("GET /healthz HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"), "HTTP/1.1 200"},
      {absl::StrCat("GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n", next), "HTTP/1.1 200"},
      {absl::StrCat("POST /v1:listGpus HTTP/1.1\r\nContent-Length: 9000000\r\n\r\n",
                    std::string(9000000, ' '), next),
       "HTTP/1.1 413"},
  };
  for (const auto& row : kRows) {
    RawConnection connection(address());
    connection.Send(row.text);
    const std::string answer = connection.ReadAnswer();
    EXPECT_TRUE(absl::StartsWith(answer, row.status) ||
                (answer.empty() && row.text.size() > 1000000))
        << answer;
    EXPECT_TRUE(connection.Ends()) << row.text.substr(0, 80);
  }
}

// However much is posted to a path that there is not.
TEST_F(HttpListenerTest, KeepsNothingOfWhatNobodyReads) {
  httplib::Client client = HttpClientFor(address());
  const auto endless = [](size_t, httplib::DataSink& sink) {
    static const std::string kBlock(1 << 16, ' ');
    return sink.write(kBlock.data(), kBlock.size());
  };
  const httplib::Result result = client.Post("/nowhere", endless, "application/json");
  EXPECT_TRUE(!result || result->status == 404);
}

// Of each kind more than there are threads, none of which ever ends.
TEST_F(HttpListenerTest, ProbesAreAnsweredWhateverOthersSendSlowly) {
  const std::string post = "POST /v1:estimateMemory HTTP/1.1\r\nHost: x\r\n";
  const std::string kinds[] = {"GET /heal", "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Y: ",
                               post + "Content-Length: 1000\r\n\r\n{",
                               post + "Transfer-Encoding: chunked\r\n\r\n1\r\n{"};
  std::vector<std::unique_ptr<RawConnection>> slow;
  for (const std::string& kind : kinds) {
    for (int i = 0; i < 40; ++i) {
      slow.push_back(std::make_unique<RawConnection>(address()));
      ASSERT_TRUE(slow.back()->Send(kind));
    }
    for (const char* const path : {"/healthz", "/readyz", "/metrics"}) {
      RawConnection probe(address());
      ASSERT_TRUE(probe.Send(absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: x\r\n\r\n")));
      EXPECT_THAT(probe.ReadAnswer(), StartsWith("HTTP/1.1 200")) << path << " beside " << kind;
    }
  }
}

TEST_F(HttpListenerTest, AHeadHasSoManyBytes) {
  std::string head = "GET /healthz HTTP/1.1\r\n";
  while (head.size() < kMaxHeadBytes) head += "X: " + std::string(1000, 'y') + "\r\n";
  RawConnection connection(address());
  connection.Send(head + "\r\n");
  const std::string answer = connection.ReadAnswer();
  EXPECT_TRUE(answer.empty() || absl::StartsWith(answer, "HTTP/1.1 400")) << answer;
  EXPECT_TRUE(connection.Ends());
}

TEST_F(HttpListenerTest, AStopEndsWhatIsInFlightAtItsDeadline) {
  RawConnection half(address());
  ASSERT_TRUE(
      half.Send("POST /v1:listGpus HTTP/1.1\r\nContent-Length: 9\r\n"
                "Expect: 100-continue\r\n\r\n"));
  EXPECT_THAT(half.ReadAnswer(), StartsWith("HTTP/1.1 100"));
  const auto begin = std::chrono::steady_clock::now();
  server_->Shutdown(std::chrono::milliseconds(10));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kMaxBodyTime / 4);
  EXPECT_FALSE(half.Send("[]") && absl::StartsWith(half.ReadAnswer(), "HTTP/1.1 200"));
}

// One host that sends bodies slowly leaves a quarter of the threads.
TEST_F(HttpListenerTest, SlowBodiesOfOneHostKeepNobodyElseWaiting) {
  std::vector<std::unique_ptr<RawConnection>> slow;
  for (int i = 0; i < 40; ++i) {
    slow.push_back(std::make_unique<RawConnection>(address()));
    ASSERT_TRUE(slow.back()->Send("POST /v1:listGpus HTTP/1.1\r\nContent-Length: 100\r\n\r\n{"));
  }
  RawConnection other(address(), INADDR_LOOPBACK + 1);
  ASSERT_TRUE(other.Send(Post("/v1:listGpus", "{}")));
  EXPECT_THAT(other.ReadAnswer(), HasSubstr("h100-80gb-sxm"));
}

}  // namespace
}  // namespace plimsoll
