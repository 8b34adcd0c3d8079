// `plimsoll report` as its callers meet it, with a real server behind a unix socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/run/server.h"
#include "tests/client/process.h"
#include "tests/client/report/prometheus_api.h"
#include "tests/server/running_server.h"

namespace plimsoll {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

using Words = std::vector<std::string>;

// 64 GiB expected, 72 GiB at most.
constexpr char kFigures[] =
    R"("verdict":"VERDICT_FITS","device":{"expectedBytes":"68719476736","boundBytes":"77309411328"})";

std::string Prediction() {
  return absl::StrCat("plimsoll {", kFigures, R"(,"job":{"model":{"name":"llama-3.1-8b"},)",
                      R"("training":{"sequenceLength":"4096"},"parallelism":{"zeroStage":"3"},)",
                      R"("cluster":{"gpu":"h100","gpuCount":"8"}}})");
}

constexpr char kFinished[] = R"(plimsoll_usage_reports_total{outcome="finished"})";
constexpr char kRatioSum[] =
    R"(plimsoll_usage_actual_per_predicted_sum{framework="fsdp2",gpu="h100-80gb-sxm",)"
    R"(strategy="zero3"})";

class ReportTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(folder_), nullptr);
    socket_ = absl::StrCat("unix:", folder_, "/grpc");
    rows_ = absl::StrCat(folder_, "/rows.csv");
    ServerOptions options = FreePorts();
    options.listen = {socket_, "127.0.0.1:0"};
    options.http_listen.clear();
    options.accept_reports = true;
    server_ = StartOrFail(options);
    ASSERT_NE(server_, nullptr);
  }
  void TearDown() override {
    server_.reset();
    unlink(rows_.c_str());
    unlink(absl::StrCat(folder_, "/grpc").c_str());
    rmdir(folder_);
  }

  // Reports with the prediction on standard input.
  static ProcessResult Report(const Words& more, const std::string& prediction = Prediction()) {
    Words words = {"report", "--job-id", "4711", "--prediction", "-"};
    words.insert(words.end(), more.begin(), more.end());
    return Plimsoll(words, prediction);
  }

  double Series(const std::string& series) const {
    return SeriesValue(server_->metrics().Text(), series);
  }

  std::string Rows() const {
    std::ifstream file(rows_, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  char folder_[32] = "/tmp/plimsoll_report_XXXXXX";
  std::string socket_, rows_;
  std::unique_ptr<Server> server_;
};

TEST_F(ReportTest, CountsPeaksByHand) {
  const ProcessResult result =
      Report({"--peak", "48GiB", "--peak", "40960 MiB", "--server", socket_});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out,
            "finished: 48.00 of 64.00 GiB predicted, ratio 0.75, under the bound of 72.00 GiB\n");
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(Series(kFinished), 1);
  EXPECT_EQ(Series(kRatioSum), 0.75);
}

TEST_F(ReportTest, TakesThePredictionFromTheEnvironment) {
  const ProcessResult result = Plimsoll({"report", "--peak", "80GiB", "--server", socket_}, "",
                                        {"PLIMSOLL_PREDICTION=" + Prediction()});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out,
            "finished: 80.00 of 64.00 GiB predicted, ratio 1.25, over the bound of 72.00 GiB\n");
  EXPECT_EQ(Series(kRatioSum), 1.25);
}

TEST_F(ReportTest, PrintsWhatWasCounted) {
  const std::string line = R"({"actualPerPredicted":0.75,"withinBound":true,"framework":"fsdp2",)"
                           R"("gpu":"h100-80gb-sxm","strategy":"zero3"})";
  EXPECT_EQ(Report({"--peak", "48GiB", "--server", socket_, "-o", "jsonl"}).out, line + "\n");
  EXPECT_THAT(Report({"--peak", "48GiB", "--server", socket_, "-o", "json"}).out,
              HasSubstr("\n  \"actualPerPredicted\": 0.75,\n"));
  EXPECT_THAT(Report({"--peak", "48GiB", "--server", socket_, "-o", "yaml"}).out,
              HasSubstr("actual_per_predicted: 0.75\n"));
}

TEST_F(ReportTest, ReadsPeaksFromAFile) {
  for (const char* const text :
       {"49152 MiB\n46000 MiB\n", "[51539607552B, 7B]", "48GiB, 1GiB", "[\"48 GiB\"]\n",
        "\r\n51539607552B\r\n", "memory.used [MiB]\n49152\n46000\n"}) {
    const TemporaryFile file(text, "peaks");
    const ProcessResult result =
        Report({"--actual", file.path(), "--source", "nvidia-smi", "--server", socket_});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.out, StartsWith("finished: 48.00 of 64.00 GiB predicted, ratio 0.75"));
  }
  EXPECT_EQ(Series(kFinished), 6);
}

TEST_F(ReportTest, RefusesAFileThatIsNoListOfPeaks) {
  for (const char* const text : {"[1]: 2", "[a]: {b: 3}", "1,500MiB", "[[1]]", ""}) {
    const TemporaryFile file(text, "peaks");
    const ProcessResult result = Report({"--actual", file.path(), "--server", socket_});
    EXPECT_EQ(result.code, 2) << text;
    EXPECT_THAT(result.err, HasSubstr("must ")) << text;
  }
  EXPECT_EQ(Series(kFinished), 0);
}

TEST_F(ReportTest, AsksPrometheusForTheJob) {
  const PrometheusApi api(PrometheusApi::Vector({"51539607552", "0", "5e10"}));
  const ProcessResult result =
      Report({"--prometheus", api.url(), "--start", "2026-11-21T22:00:00Z", "--end",
              "2026-11-21T22:10:00Z", "--server", socket_, "--rows", rows_});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("finished: 48.00 of 64.00 GiB predicted, ratio 0.75"));
  EXPECT_EQ(result.err, api.url() + ": 1 of 3 GPUs held nothing; left out\n");
  EXPECT_THAT(api.requests(),
              ElementsAre(httplib::Params{
                  {"query",
                   "max by (gpu, UUID, GPU_I_ID, Hostname, hostname) "
                   "(max_over_time(DCGM_FI_DEV_FB_USED{hpc_job=\"4711\"}[600s])) * 1048576"},
                  {"time", "1795299000"}}));
  EXPECT_EQ(Series(kRatioSum), 0.75);
  EXPECT_THAT(Rows(), HasSubstr("source=dcgm; gpus=2;"));
}

TEST_F(ReportTest, AsksPrometheusInOtherWords) {
  const PrometheusApi api(PrometheusApi::Vector({"51539607552"}));
  const auto asked = [&](const Words& more) {
    Words words = {"--prometheus", api.url(), "--server", socket_};
    words.insert(words.end(), more.begin(), more.end());
    const ProcessResult result = Report(words);
    EXPECT_EQ(result.code, 0) << result.err;
    const httplib::Params params = api.requests().back();
    const auto time = params.find("time");
    return std::pair(params.find("query")->second, time == params.end() ? "now" : time->second);
  };
  const std::string by = "max by (gpu, UUID, GPU_I_ID, Hostname, hostname) ";
  EXPECT_EQ(asked({}),
            std::pair(by + "(max_over_time(DCGM_FI_DEV_FB_USED{hpc_job=\"4711\"}[30d])) * 1048576",
                      std::string("now")));
  EXPECT_EQ(
      asked({"--window", "1d12h", "--end", "1795299000"}),
      std::pair(by + "(max_over_time(DCGM_FI_DEV_FB_USED{hpc_job=\"4711\"}[1d12h])) * 1048576",
                std::string("1795299000")));
  EXPECT_EQ(asked({"--start", "1795299000", "--end", "1795299000"}),
            std::pair(by + "(max_over_time(DCGM_FI_DEV_FB_USED{hpc_job=\"4711\"}[1s])) * 1048576",
                      std::string("1795299000")));
  EXPECT_EQ(
      asked({"--pod", "training/llama-0", "--window", "90m"}).first,
      by + "(max_over_time(DCGM_FI_DEV_FB_USED{namespace=\"training\",pod=\"llama-0\"}[90m])) * "
           "1048576");
  EXPECT_EQ(asked({"--query", "max(nvidia_gpu_memory_used_bytes)"}).first,
            "max(nvidia_gpu_memory_used_bytes)");
}

TEST_F(ReportTest, WaitsForTheFirstScrape) {
  const PrometheusApi api([](int request) {
    if (request == 0) return std::pair(503, std::string("{}"));
    return std::pair(200, PrometheusApi::Vector(request < 3 ? Words() : Words{"51539607552"}));
  });
  const ProcessResult result =
      Report({"--prometheus", api.url(), "--wait", "60s", "--server", socket_});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(api.requests().size(), 4);
  EXPECT_EQ(Series(kFinished), 1);
}

// A job that is out of memory is counted whatever Prometheus says; another needs its peak.
TEST_F(ReportTest, SaysWherePrometheusHasNoData) {
  const PrometheusApi api(PrometheusApi::Vector({}));
  const std::string no_data =
      api.url() +
      ": no data for max by (gpu, UUID, GPU_I_ID, Hostname, hostname) "
      "(max_over_time(DCGM_FI_DEV_FB_USED{hpc_job=\"4711\"}[30d])) * 1048576";
  const Words words = {"--prometheus", api.url(), "--wait", "40ms", "--server", socket_};
  const ProcessResult finished = Report(words);
  EXPECT_EQ(finished.code, 1);
  EXPECT_EQ(finished.out, "");
  EXPECT_EQ(finished.err, no_data + "\n");
  Words out_of_memory = words;
  out_of_memory.insert(out_of_memory.end(), {"--outcome", "out-of-memory", "--rows", rows_});
  const ProcessResult result = Report(out_of_memory);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "out-of-memory: 64.00 GiB predicted, the verdict was FITS\n");
  EXPECT_EQ(result.err, no_data +
                            "; reported without its peak\n"
                            "--rows: no row; only a job that finished shows what it needed\n");
  EXPECT_EQ(Series(kFinished), 0);
  EXPECT_EQ(Series(R"(plimsoll_usage_outcomes_total{outcome="out-of-memory",verdict="fits"})"), 1);
  EXPECT_EQ(Rows(), "");
}

TEST_F(ReportTest, SaysWhatIsWrongWithPrometheus) {
  const PrometheusApi nan(PrometheusApi::Vector({"51539607552", "NaN"}));
  const ProcessResult strange = Report({"--prometheus", nan.url(), "--server", socket_});
  EXPECT_EQ(strange.code, 1);
  EXPECT_EQ(strange.err, nan.url() + ": says nan of a GPU; must be bytes above 0\n");
  const PrometheusApi broken([](int) { return std::pair(422, std::string(R"({"error":"x"})")); });
  EXPECT_EQ(Report({"--prometheus", broken.url(), "--server", socket_}).code, 1);
  std::string gone;
  {
    const PrometheusApi api("");
    gone = api.url();
  }
  const ProcessResult down = Report({"--prometheus", gone, "--server", socket_});
  EXPECT_EQ(down.code, 4);
  EXPECT_EQ(down.err, gone + ": out of reach; no connection\n");
  EXPECT_EQ(Series(kFinished), 0);
}

TEST_F(ReportTest, KeepsARowWithOrWithoutAServer) {
  const ProcessResult alone = Report({"--peak", "48GiB", "--rows", rows_});
  EXPECT_EQ(alone.code, 0) << alone.err;
  EXPECT_THAT(alone.out, StartsWith("finished: 48.00 of 64.00 GiB predicted"));
  EXPECT_THAT(Rows(), StartsWith("id,source_url_or_repo_path,model,"));
  EXPECT_THAT(Rows(), HasSubstr("\nreported-4711:whole_run_device,plimsoll report,llama-3.1-8b,"));
  EXPECT_EQ(Series(kFinished), 0);
  const std::string before = Rows();
  const ProcessResult again = Report({"--peak", "48GiB", "--rows", rows_, "--server", socket_});
  EXPECT_EQ(again.code, 0);
  EXPECT_EQ(again.err, absl::StrCat("--rows: ", rows_,
                                    " has reported-4711:whole_run_device already; not added "
                                    "again\n"));
  EXPECT_EQ(Rows(), before);
  EXPECT_EQ(Series(kFinished), 1);
}

TEST_F(ReportTest, KeepsTheRowWhereTheServerIsGone) {
  server_->Shutdown(std::chrono::milliseconds(0));
  const ProcessResult result = Report({"--peak", "48GiB", "--rows", rows_, "--server", socket_});
  EXPECT_EQ(result.code, 4);
  EXPECT_THAT(result.err, StartsWith(socket_ + ": out of reach; "));
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(Rows(), EndsWith("\r\n"));
  EXPECT_THAT(Rows(), HasSubstr("reported-4711:"));
}

TEST_F(ReportTest, ReportsAJobThatDidNotTravel) {
  const ProcessResult result = Report({"--peak", "48GiB", "--rows", rows_, "--server", socket_},
                                      absl::StrCat("{", kFigures, "}"));
  EXPECT_EQ(result.code, 2) << "no row can be made";
  EXPECT_EQ(result.err, "--rows: no row; the prediction has no job\n");
  EXPECT_THAT(result.out, StartsWith("finished: 48.00 of 64.00"));
  EXPECT_EQ(Series(kFinished), 1) << "but it is counted";
  EXPECT_EQ(Rows(), "");
}

TEST_F(ReportTest, AServerThatTakesNoneSaysSo) {
  ServerOptions options = FreePorts();
  options.listen = {absl::StrCat("unix:", folder_, "/other")};
  options.http_listen.clear();
  const std::unique_ptr<Server> other = StartOrFail(options);
  const ProcessResult result = Report({"--peak", "48GiB", "--server", options.listen[0]});
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.err, "this server takes no reports of usage; start it with --accept-reports\n");
  unlink(absl::StrCat(folder_, "/other").c_str());
}

struct Mistake {
  Words words;
  std::string message;
};

TEST_F(ReportTest, RefusesInTheseWords) {
  const Words to = {"--server", "unix:/nonexistent"};
  const Words prometheus = {"--prometheus", "http://127.0.0.1:1", "--server", "unix:/nonexistent"};
  const auto with = [](Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const Mistake mistakes[] = {
      {{"--peak", "1GiB"},
       "--server: unset; must be unix:PATH, or --rows must name a file: else nothing is counted"},
      {{"--peak", "1GiB", "--server", server_->addresses()[1]},
       absl::StrCat("--server: ", server_->addresses()[1],
                    "; must be unix:PATH, a service takes no reports by a port")},
      {to, "actual_peak_bytes: unset; must be set, but for outcome out-of-memory"},
      {with(to, {"--peak", "1GB"}),
       "--peak: 1GB; must be a size with its unit (B, KiB, MiB, GiB, TiB), as 61.5GiB"},
      {with(to, {"--peak", "44.4"}),
       "--peak: 44.4; must be a size with its unit (B, KiB, MiB, GiB, TiB), as 44.4GiB"},
      {with(to, {"--peak", "1GiB", "--gauge", "reserved"}),
       "prediction.reserved: unset; must be set: it is the gauge that was measured"},
      {with(to, {"--peak", "1GiB", "--actual", "x"}),
       "--peak: given; must not stand beside --actual"},
      {with(to, {"--actual", "-"}), "--actual: -; must not be - where --prediction is"},
      {with(to, {"--actual", "/nonexistent"}),
       "/nonexistent: No such file or directory; must be a readable file"},
      {with(to, {"--wait", "5s"}), "--wait: 5s; needs --prometheus"},
      {with(prometheus, {"--pod", "llama-0"}), "--pod: llama-0; must be NAMESPACE/POD"},
      {with(prometheus, {"--pod", "a/b", "--query", "up"}),
       "--pod: a/b; must not stand beside --query"},
      {with(prometheus, {"--window", "1h", "--query", "up"}),
       "--window: 1h; must not stand beside --query, which says its own range"},
      {with(prometheus, {"--window", "1h", "--start", "5"}),
       "--window: 1h; must not stand beside --start"},
      {with(prometheus, {"--window", "1 hour"}),
       "--window: 1 hour; must be a duration of PromQL, as 36h or 1d12h"},
      {with(prometheus, {"--window", "1h2"}),
       "--window: 1h2; must be a duration of PromQL, as 36h or 1d12h"},
      {with(prometheus, {"--start", "yesterday"}),
       "--start: yesterday; must be a time since 1970, as 2026-11-21T22:10:00Z or 1795299000"},
      {with(prometheus, {"--start", "1795299001", "--end", "1795299000"}),
       "--start: 1795299001; must not be after --end"},
      {with(prometheus, {"--wait", "2h"}), "--wait: 2h; must be a duration up to 1h, as 45s or 2m"},
      {{"--prometheus", "localhost", "--server", "unix:/nonexistent"},
       "--prometheus: localhost; must be a URL, as http://localhost:9090"},
  };
  for (const Mistake& mistake : mistakes) {
    const ProcessResult result = Report(mistake.words);
    EXPECT_EQ(result.code, 2) << mistake.message;
    EXPECT_EQ(result.err, mistake.message + "\n");
    EXPECT_EQ(result.out, "");
  }
}

TEST_F(ReportTest, SaysWhereAnIdIsNeeded) {
  const std::pair<Words, std::string> mistakes[] = {
      {{"--peak", "1GiB", "--rows", rows_},
       "--job-id: unset; must be set with --rows, it names the row\n"},
      {{"--prometheus", "http://127.0.0.1:1", "--server", socket_},
       "--prometheus: http://127.0.0.1:1; needs --job-id, --pod or --query\n"},
  };
  for (auto [words, message] : mistakes) {
    words.insert(words.begin(), {"report", "--prediction", "-"});
    const ProcessResult result = Plimsoll(words, Prediction());
    EXPECT_EQ(result.code, 2);
    EXPECT_EQ(result.err, message);
  }
}

TEST_F(ReportTest, HelpHasExamplesAndExitCodes) {
  const ProcessResult result = Plimsoll({"report", "--help"});
  EXPECT_EQ(result.code, 0);
  for (const char* const part :
       {"--prometheus URL", "plimsoll report --job-id 4711", "Exit status"}) {
    EXPECT_THAT(result.out, HasSubstr(part));
  }
}

}  // namespace
}  // namespace plimsoll
