// Connections over gRPC: how many there may be, what they may send, and what happens where
// the system has no more of them.
#include "server/face/grpc_connections.h"

#include <dirent.h>
#include <sys/resource.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/http2_frames.h"
#include "tests/server/raw_connection.h"
#include "tests/server/running_server.h"
#include "tests/testing/test_files.h"

namespace plimsoll {
namespace {

using testing::HasSubstr;

constexpr char kCrowded[] = R"(plimsoll_grpc_connections_closed_total{reason="crowded"})";
constexpr char kInsistent[] = R"(plimsoll_grpc_connections_closed_total{reason="insistent"})";
constexpr char kFlooding[] = R"(plimsoll_grpc_connections_closed_total{reason="flooding"})";

class GrpcConnectionsTest : public testing::Test {
 protected:
  void StartServer(const ServerOptions& options) {
    server_ = StartOrFail(options);
    ASSERT_NE(server_, nullptr);
  }

  const std::string& address() const { return server_->addresses()[0]; }
  double Series(const std::string& series) const {
    return SeriesValue(server_->metrics().Text(), series);
  }
  void WaitFor(const std::string& series, double value) const {
    while (Series(series) != value) std::this_thread::yield();
  }

  // With a connection of its own.
  static std::unique_ptr<v1::PlannerService::Stub> StubOf(const std::string& target) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return v1::PlannerService::NewStub(
        grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments));
  }

  // Asks over such a one.
  grpc::Status Ask(const std::string& target, size_t bytes = 0, int times = 1) const {
    const auto stub = StubOf(target);
    v1::EstimateMemoryRequest request;
    request.mutable_job()->mutable_model()->set_name(std::string(bytes, 'x'));
    grpc::Status status;
    for (int i = 0; i < times; ++i) {
      grpc::ClientContext context;
      v1::EstimateMemoryResponse response;
      status = stub->EstimateMemory(&context, request, &response);
      if (status.error_code() != grpc::StatusCode::INVALID_ARGUMENT) return status;
    }
    return grpc::Status::OK;
  }

  std::unique_ptr<Server> server_;
};

// A caller may send any number of large requests: what counts is sent without a call. Over
// whichever address: gRPC names their peers each in its way.
TEST_F(GrpcConnectionsTest, TakesManyLargeRequestsOverEveryAddress) {
  const std::string path = TestPath("socket");
  ServerOptions options = FreePorts();
  options.listen = {"127.0.0.1:0", absl::StrCat("unix:", path)};
  constexpr char kIpv6[] = "[::1]:0";  // which not every machine has
  if (ProbeListen(*ParseAddress(kIpv6)).empty()) options.listen.emplace_back(kIpv6);
  StartServer(options);
  constexpr size_t kBytes = 900'000;
  constexpr int kTimes = 40;  // 36 MB
  for (const std::string& address : server_->addresses()) {
    const grpc::Status status = Ask(address, kBytes, kTimes);
    EXPECT_TRUE(status.ok()) << address << ": " << status.error_message();
  }
  EXPECT_EQ(Series(kFlooding), 0);
  WaitFor("plimsoll_grpc_connections", 0);
}

TEST_F(GrpcConnectionsTest, ClosesTheMostSilentWhereThereAreTooMany) {
  ServerOptions options = FreePorts();
  options.max_connections = 3;
  StartServer(options);
  std::vector<std::unique_ptr<RawConnection>> silent;
  for (int i = 0; i < 5; ++i) silent.push_back(std::make_unique<RawConnection>(address()));
  WaitFor(kCrowded, 2);
  EXPECT_EQ(Series("plimsoll_grpc_connections"), 3);
  EXPECT_TRUE(Ask(address()).ok());
  EXPECT_EQ(Series(kCrowded), 3);
}

// Who is told to come back later, and calls all the same.
TEST_F(GrpcConnectionsTest, ClosesWhoDoesNotStayAway) {
  ServerOptions options = FreePorts();
  options.max_in_flight = 1;
  StartServer(options);
  const auto permit = server_->gate().Enter();
  const auto stub = StubOf(address());
  grpc::StatusCode code = grpc::StatusCode::RESOURCE_EXHAUSTED;
  while (code == grpc::StatusCode::RESOURCE_EXHAUSTED) {
    grpc::ClientContext context;
    v1::ListGpusResponse response;
    code = stub->ListGpus(&context, {}, &response).error_code();
  }
  EXPECT_EQ(code, grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Series(kInsistent), 1);
}

TEST_F(GrpcConnectionsTest, ClosesWhatSendsAHeadWithoutAnEnd) {
  StartServer(FreePorts());
  constexpr uint32_t kOther = INADDR_LOOPBACK + 1;
  RawConnection flood(address(), kOther);
  ASSERT_TRUE(flood.Send(EndlessHead()));
  const std::string frame = Frame(kContinuation, 0, 1, std::string(16384, 'a'));
  constexpr int kMostFrames = 4096;  // 64 MiB
  int frames = 0;
  while (frames < kMostFrames && flood.Send(frame)) ++frames;
  EXPECT_LT(frames, kMostFrames);
  WaitFor(kFlooding, 1);
  EXPECT_TRUE(Ask(address()).ok());
  EXPECT_TRUE(RawConnection(address(), kOther).Ends()) << "its host has to wait";
}

// Takes all descriptors that this process may have, but for some.
class ScarceDescriptors {
 public:
  explicit ScarceDescriptors(int left) {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit scarce = before_;
    scarce.rlim_cur = static_cast<rlim_t>(HighestOpen() + 1 + left);
    setrlimit(RLIMIT_NOFILE, &scarce);
    for (int fd = dup(0); fd >= 0 && left-- <= 0; fd = dup(0)) taken_.push_back(fd);
  }
  ~ScarceDescriptors() {
    for (const int fd : taken_) close(fd);
    setrlimit(RLIMIT_NOFILE, &before_);
  }
  ScarceDescriptors(const ScarceDescriptors&) = delete;
  ScarceDescriptors& operator=(const ScarceDescriptors&) = delete;

 private:
  static int HighestOpen() {
    DIR* const folder = opendir("/proc/self/fd");
    int highest = 0;
    while (const dirent* const entry = readdir(folder)) {
      highest = std::max(highest, std::atoi(entry->d_name));
    }
    closedir(folder);
    return highest;
  }

  rlimit before_{};
  std::vector<int> taken_;
};

TEST_F(GrpcConnectionsTest, GoesOnListeningWhereDescriptorsRanOut) {
  StartServer(FreePorts());
  auto pages = HttpClientFor(server_->http_addresses()[0]);
  pages.set_keep_alive(true);
  EXPECT_EQ(pages.Get("/readyz")->status, 200);
  auto waiting = std::make_unique<RawConnection>(address());
  WaitFor("plimsoll_grpc_connections", 1);
  {
    const int client = socket(AF_INET, SOCK_STREAM, 0);
    const ScarceDescriptors scarce(0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(ParseAddress(address())->port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(client, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
    while (Series("plimsoll_grpc_accept_failures_total") < 1) std::this_thread::yield();
    EXPECT_EQ(Series(kCrowded), 1) << "the silent one made room";
    close(client);
  }
  while (pages.Get("/readyz")->status != 200) std::this_thread::yield();
  EXPECT_TRUE(Ask(address()).ok());
}

TEST_F(GrpcConnectionsTest, SaysWhereTheSystemAllowsTooFew) {
  ServerOptions options = FreePorts();
  options.max_connections = int64_t{1} << 32;
  const auto started = Server::Start(options);
  ASSERT_TRUE(std::holds_alternative<std::string>(started));
  EXPECT_THAT(std::get<std::string>(started),
              HasSubstr("max connections: 4294967296 need 8589935104 descriptors; the system "
                        "allows "));
}

}  // namespace
}  // namespace plimsoll
