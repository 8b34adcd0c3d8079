// Files that change while the server runs: taken whole, or refused and told.
#include "server/run/reloader.h"

#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/catalog/catalog.h"
#include "server/wire/json.h"
#include "server/words/document.h"
#include "tests/server/running_server.h"
#include "tests/testing/test_files.h"

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

// What changes while it is being read is read once more.
TEST(ReloaderTest, MissesNoChangeThatComesWhileItReads) {
  Metrics metrics;
  const Log log(LogLevel::kOff);
  const std::string path = WriteTestFile("file", "a");
  std::string read;
  Reloader reloader({{.what = Setting::kSpeed,
                      .files = [&path] { return std::vector{path}; },
                      .reload =
                          [&] {
                            read = *ReadDocument(path);
                            if (read == "half") WriteTestFile("file", "whole");
                            return absl::OkStatus();
                          }}},
                    &metrics, &log);
  WriteTestFile("file", "half");
  reloader.Look();
  reloader.Look();
  EXPECT_EQ(read, "whole");
}

// Writes the embedded table of this name under another id.
std::string WriteTable(const std::string& name, const std::string& id) {
  std::string text = *ReadDocument(PLIMSOLL_CATALOG_FOLDER "/" + name);
  const size_t begin = text.find("\nid: ") + 5;
  return WriteTestFile(name, text.replace(begin, text.find('\n', begin) - begin, id));
}

class TablesTest : public testing::Test {
 protected:
  // By whose tables a search answers.
  v1::RecommendConfigResponse Answer() const {
    v1::RecommendConfigRequest request;
    EXPECT_THAT(ReadJsonMessage(kGoodRequest, &request), testing::IsEmpty());
    request.add_allowed_changes("parallelism.zero_stage");
    grpc::ClientContext context;
    v1::RecommendConfigResponse response;
    const grpc::Status status =
        StubFor(server_->addresses()[0])->RecommendConfig(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  double Refused(const std::string& setting) const {
    return SeriesValue(server_->metrics().Text(),
                       "plimsoll_reload_refused{setting=\"" + setting + "\"}");
  }

  std::unique_ptr<Server> server_;
};

TEST_F(TablesTest, AnswersFollowNewOnes) {
  ServerOptions options = FreePorts();
  options.calibration = WriteTable("calibration.yaml", "first");
  options.speed = WriteTable("speed.yaml", "fast");
  server_ = StartOrFail(options);
  ASSERT_NE(server_, nullptr);
  EXPECT_EQ(Answer().calibration_id(), "first");
  EXPECT_EQ(Answer().speed_id(), "fast");
  WriteTable("calibration.yaml", "second");
  WriteTable("speed.yaml", "faster");
  while (Answer().calibration_id() != "second" || Answer().speed_id() != "faster") {
  }
  WriteTestFile("calibration.yaml", "id: third");
  WriteTestFile("speed.yaml", "id: fastest");
  while (Refused("calibration") != 1 || Refused("speed") != 1) std::this_thread::yield();
  EXPECT_EQ(Answer().calibration_id(), "second");
  EXPECT_EQ(Answer().speed_id(), "faster");
}

TEST_F(TablesTest, TheEmbeddedOneStaysBesideAFile) {
  ServerOptions options = FreePorts();
  options.speed = WriteTable("speed.yaml", "fast");
  server_ = StartOrFail(options);
  ASSERT_NE(server_, nullptr);
  WriteTable("speed.yaml", "faster");
  while (Answer().speed_id() != "faster") {
  }
  EXPECT_EQ(Answer().calibration_id(), LoadCatalog().calibration.id);
}

// A decision estimates, searches, and estimates what it found: by one catalog, though another
// comes meanwhile.
TEST(PlannerTest, AnAdmissionSeesOneCatalog) {
  Metrics metrics;
  const Log log(LogLevel::kOff);
  v1::AdmissionPolicy policy;
  policy.mutable_rules()->set_mode("enforce");
  policy.mutable_rules()->set_resize("allowed");
  policy.mutable_rules()->add_allowed_changes("parallelism.zero_stage");
  Calibration next = LoadCatalog().calibration;
  next.id = "next";
  Planner planner(LoadCatalog(), policy, &metrics, &log);
  const SearchStop stop = {.enough =
                               [&](double) {
                                 planner.SetCalibration(next);
                                 return false;
                               },
                           .given_up = [] { return grpc::StatusCode::OK; }};
  v1::AdmitRequest request;
  EXPECT_THAT(ReadJsonMessage(kGoodRequest, &request), testing::IsEmpty());
  request.mutable_job()->mutable_parallelism()->set_zero_stage(0);
  request.set_resize_allowed(true);
  const auto decide = [&] {
    WireWriter written;
    v1::AdmitResponse response;
    EXPECT_TRUE(planner.Admit(request, /*reading=*/{}, stop, &written).ok());
    EXPECT_TRUE(response.ParseFromString(std::string(written.bytes())));
    EXPECT_EQ(response.decision().decision(), v1::DECISION_RESIZE) << response.DebugString();
    return response.decision().prediction();
  };
  EXPECT_THAT(decide(), HasSubstr("\"" + LoadCatalog().calibration.id + "\""));
  EXPECT_THAT(decide(), HasSubstr("\"next\""));
}

}  // namespace
}  // namespace plimsoll
