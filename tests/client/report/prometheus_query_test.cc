// What is asked of Prometheus, and what becomes of every kind of answer.
#include "client/report/prometheus_query.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/report/prometheus_api.h"

namespace plimsoll {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

absl::StatusOr<std::vector<double>> AskAt(const std::string& url) {
  return Ask({.url = url, .promql = "up", .timeout = absl::Seconds(60)});
}

TEST(PromqlTest, AsksForThePeakOfEachGpuInBytes) {
  EXPECT_EQ(DcgmQuery("hpc_job=\"4711\"", "3600s"),
            "max by (gpu, UUID, GPU_I_ID, Hostname, hostname) "
            "(max_over_time(DCGM_FI_DEV_FB_USED{hpc_job=\"4711\"}[3600s])) * 1048576");
}

TEST(PromqlTest, ALiteralStaysOne) {
  EXPECT_EQ(PromqlQuoted("4711"), "\"4711\"");
  EXPECT_EQ(PromqlQuoted("a\"} or up{x=\"\\"), R"("a\"} or up{x=\"\\")");
  EXPECT_EQ(PromqlQuoted("a\nb"), R"("a\nb")");
}

TEST(AskTest, ReturnsEachValue) {
  const PrometheusApi api(PrometheusApi::Vector({"36000000000", "3.5e+10", "0"}));
  const auto values = AskAt(api.url());
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_THAT(*values, ElementsAre(36e9, 35e9, 0));
  ASSERT_EQ(api.requests().size(), 1);
  EXPECT_EQ(api.requests()[0], (httplib::Params{{"query", "up"}}));
}

TEST(AskTest, NoSeriesAreNoValues) {
  const PrometheusApi api(PrometheusApi::Vector({}));
  const auto values = AskAt(api.url());
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_THAT(*values, IsEmpty());
}

TEST(AskTest, TimeAndPathOfTheUrlArePassedOn) {
  const PrometheusApi api([](int) { return std::pair(200, PrometheusApi::Vector({"1"})); },
                          "/monitoring");
  const auto values = Ask({.url = api.url() + "/monitoring/",
                           .promql = "max(x{a=\"b c\"}) > 1",
                           .time = absl::FromUnixSeconds(1795299000),
                           .timeout = absl::Seconds(60)});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(api.requests()[0],
            (httplib::Params{{"query", "max(x{a=\"b c\"}) > 1"}, {"time", "1795299000"}}));
}

TEST(AskTest, RefusesWhatIsNoUrl) {
  for (const char* const url : {"", "localhost:9090", "ftp://x", "http://", "http://a b",
                                "http:///x", "http://x?query=1", "http://user@x"}) {
    const auto values = AskAt(url);
    EXPECT_EQ(values.status().code(), absl::StatusCode::kInvalidArgument) << url;
    EXPECT_EQ(values.status().message(),
              absl::StrCat("--prometheus: ", url, "; must be a URL, as http://localhost:9090"));
  }
}

struct BadAnswer {
  int status;
  std::string body;
  absl::StatusCode code;
  std::string message;  // behind the URL
};

TEST(AskTest, EachBadAnswerIsOneLine) {
  const std::string no_vector =
      ": answers with no instant vector; the query must give one sample for each GPU";
  constexpr auto kInternal = absl::StatusCode::kInternal;
  const BadAnswer answers[] = {
      {400,
       R"({"status":"error","errorType":"bad_data","error":"1:5: parse error:\nun\u001bexpected"})",
       kInternal, ": HTTP 400; 1:5: parse error: un expected"},
      {422, absl::StrCat(R"({"status":"error","error":")", std::string(5000, 'x'), "\"}"),
       kInternal, absl::StrCat(": HTTP 422; ", std::string(197, 'x'), "...")},
      {503, R"({"status":"error","errorType":"timeout","error":"query timed out"})",
       absl::StatusCode::kUnavailable, ": HTTP 503; query timed out"},
      {404, "<html>", kInternal, ": HTTP 404; not Prometheus's HTTP API"},
      {200, "<html>", kInternal, ": HTTP 200; not Prometheus's HTTP API"},
      {200, "", kInternal, ": HTTP 200; not Prometheus's HTTP API"},
      {200, "[]", kInternal, no_vector},
      {200, "{}", kInternal, no_vector},
      {200, R"({"data":{"resultType":"vector"}})", kInternal, no_vector},
      {200, R"({"data":{"resultType":"scalar","result":[1,"5"]}})", kInternal, no_vector},
      {200, R"({"data":{"resultType":"matrix","result":[{"values":[[1,"5"]]}]}})", kInternal,
       no_vector},
      {200, R"({"data":{"resultType":"vector","result":[{"histogram":[1,{}]}]}})", kInternal,
       no_vector},
      {200, R"({"data":{"resultType":"vector","result":[{"value":[1,5]}]}})", kInternal, no_vector},
      {200, PrometheusApi::Vector({"many"}), kInternal, no_vector},
      {200, std::string(1 << 20, '['), kInternal, ": HTTP 200; not Prometheus's HTTP API"},
      {200, std::string((16 << 20) + 1, ' '), kInternal,
       ": answers with over 16 MiB; the query asks for too much"},
  };
  for (const BadAnswer& answer : answers) {
    const PrometheusApi api([&answer](int) { return std::pair(answer.status, answer.body); });
    const auto values = AskAt(api.url());
    EXPECT_EQ(values.status().code(), answer.code) << answer.body.substr(0, 80);
    EXPECT_EQ(std::string(values.status().message()), api.url() + answer.message);
  }
}

TEST(AskTest, TakesTheAnswerOfALargeCluster) {
  const PrometheusApi api(PrometheusApi::Vector(std::vector<std::string>(20000, "36000000000")));
  const auto values = AskAt(api.url());
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->size(), 20000);
}

// A port that accepts connections and says nothing.
TEST(AskTest, SaysWhereNobodyAnswers) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  socklen_t size = sizeof address;
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  const std::string url = absl::StrCat("http://127.0.0.1:", ntohs(address.sin_port));
  const auto refused = AskAt(url);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(refused.status().message(), url + ": out of reach; no connection");
  ASSERT_EQ(listen(listener, 1), 0);
  const auto silent = Ask({.url = url, .promql = "up", .timeout = absl::Milliseconds(50)});
  EXPECT_EQ(silent.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(silent.status().message(), url + ": no whole answer; --timeout is 50ms");
  close(listener);
}

// Sends a byte of a header that never ends, again and again, until its caller has gone.
class DrippingServer {
 public:
  DrippingServer() : listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    socklen_t size = sizeof address;
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    EXPECT_EQ(listen(listener_, 1), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] {
      const int caller = accept(listener_, nullptr, nullptr);
      send(caller, "HTTP/1.1 200 OK\r\nX: ", 20, MSG_NOSIGNAL);
      pollfd gone = {.fd = caller, .events = POLLRDHUP, .revents = 0};
      while (poll(&gone, 1, /*timeout=*/20) == 0) send(caller, "x", 1, MSG_NOSIGNAL);
      close(caller);
    });
  }
  ~DrippingServer() {
    thread_.join();
    close(listener_);
  }

  std::string url() const { return absl::StrCat("http://127.0.0.1:", port_); }

 private:
  const int listener_;
  int port_ = 0;
  std::thread thread_;
};

TEST(AskTest, TheTimeoutIsOfTheWholeAnswer) {
  const DrippingServer server;
  const auto values = Ask({.url = server.url(),
                           .promql = "up",
                           .time = absl::InfiniteFuture(),
                           .timeout = absl::Milliseconds(200)});
  EXPECT_EQ(values.status().message(),
            absl::StrCat(server.url(), ": no whole answer; --timeout is 200ms"));
}

}  // namespace
}  // namespace plimsoll
