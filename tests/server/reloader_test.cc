// Files that change while the server runs: taken whole, or refused and told.
#include "server/reloader.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "running_server.h"
#include "testing/certificates.h"

namespace plimsoll {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(ReloaderTest, LooksAtWhatChangedAlone) {
  Metrics metrics;
  std::vector<std::string> lines;
  const Log log(LogLevel::kInfo, [&lines](const std::string& line) { lines.push_back(line); });
  const std::string path = WriteTestFile("file", "a");
  absl::Status status;
  int reloads = 0;
  Reloader reloader({{.what = Setting::kAccessPolicy,
                      .files = [&path] { return std::vector{path}; },
                      .reload =
                          [&] {
                            ++reloads;
                            return status;
                          }}},
                    &metrics, &log);
  reloader.Look();
  EXPECT_EQ(reloads, 0);
  const std::string refused = R"(plimsoll_reload_refused{setting="access-policy"})";
  status = absl::InvalidArgumentError("bad");
  WriteTestFile("file", "other");
  reloader.Look();
  EXPECT_EQ(SeriesValue(metrics.Text(), refused), 1);
  status = absl::OkStatus();
  WriteTestFile("file", "another");
  reloader.Look();
  EXPECT_EQ(SeriesValue(metrics.Text(), refused), 0);
  EXPECT_EQ(reloads, 2);
  EXPECT_THAT(lines, ElementsAre(HasSubstr(R"("event":"not-reloaded","setting":"access-policy",)"
                                           R"("message":"bad")"),
                                 HasSubstr(R"("event":"reloaded","setting":"access-policy")")));
}

// The rules of admissions are another's while the server runs.
TEST(ReloaderTest, AnAdmissionFollowsTheNewPolicy) {
  ServerOptions options = FreePorts();
  options.admission_policy = WriteTestFile("policy.yaml", "rules: {mode: shadow}");
  const std::unique_ptr<Server> server = StartOrFail(options);
  ASSERT_NE(server, nullptr);
  const auto mode = [&server] {
    grpc::ClientContext context;
    v1::AdmitResponse response;
    EXPECT_TRUE(StubFor(server->addresses()[0])->Admit(&context, {}, &response).ok());
    return response.decision().mode();
  };
  EXPECT_EQ(mode(), "shadow");
  WriteTestFile("policy.yaml", "rules: {mode: enforce}");
  while (mode() != "enforce") {
  }
}

}  // namespace
}  // namespace plimsoll
