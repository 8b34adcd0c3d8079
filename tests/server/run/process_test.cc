// The program itself: its one line, its settings, its signals, its exit codes.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "google/protobuf/stubs/logging.h"
#include "google/protobuf/wrappers.pb.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "gtest/gtest.h"
#include "server/wire/json.h"
#include "tests/server/raw_connection.h"
#include "tests/server/running_server.h"

namespace plimsoll {
namespace {

using testing::HasSubstr;

// plimsoll-server as a child, its output in pipes.
class Process {
 public:
  explicit Process(std::vector<std::string> arguments, std::vector<std::string> environment = {}) {
    int out[2], err[2];
    EXPECT_EQ(pipe(out), 0);
    EXPECT_EQ(pipe(err), 0);
    arguments.insert(arguments.begin(), PLIMSOLL_SERVER_PATH);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(out[1], STDOUT_FILENO);
      dup2(err[1], STDERR_FILENO);
      for (const int fd : {out[0], out[1], err[0], err[1]}) close(fd);
      execve(PLIMSOLL_SERVER_PATH, Pointers(arguments).data(), Pointers(environment).data());
      _exit(127);
    }
    close(out[1]);
    close(err[1]);
    out_ = fdopen(out[0], "r");
    err_ = fdopen(err[0], "r");
  }
  ~Process() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    fclose(out_);
    fclose(err_);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  std::string ReadLine() { return ReadLineOf(out_); }
  std::string ReadErrorLine() { return ReadLineOf(err_); }
  void Signal(int signal) { kill(pid_, signal); }

  // Returns the exit code, once it has ended.
  int Wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  // Returns what else it wrote, once it has ended.
  std::string RestOfOutput() { return Rest(out_); }
  std::string RestOfErrors() { return Rest(err_); }

 private:
  static std::vector<char*> Pointers(std::vector<std::string>& strings) {
    std::vector<char*> pointers;
    for (std::string& text : strings) pointers.push_back(text.data());
    pointers.push_back(nullptr);
    return pointers;
  }
  static std::string ReadLineOf(FILE* file) {
    std::string line;
    for (int c = fgetc(file); c != EOF && c != '\n'; c = fgetc(file)) line += static_cast<char>(c);
    return line;
  }
  static std::string Rest(FILE* file) {
    std::string text;
    for (int c = fgetc(file); c != EOF; c = fgetc(file)) text += static_cast<char>(c);
    return text;
  }

  pid_t pid_ = 0;
  FILE* out_ = nullptr;
  FILE* err_ = nullptr;
};

struct Addresses {
  std::string grpc, http;
};

// Reads "plimsoll-server: grpc <address> http <address>".
Addresses ReadAddresses(Process* process) {
  const std::string line = process->ReadLine();
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  if (words.size() != 5 || words[0] != "plimsoll-server:") {
    ADD_FAILURE() << line << process->RestOfErrors();
    return {"127.0.0.1:1", "127.0.0.1:1"};
  }
  return {words[2], words[4]};
}

const std::vector<std::string> kFreePorts = {"--listen", "127.0.0.1:0", "--http-listen",
                                             "127.0.0.1:0"};

std::vector<std::string> With(std::vector<std::string> arguments,
                              const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(ProcessTest, ServesSaysSoInOneLineAndEndsOnSigterm) {
  // gRPC's own client does not answer a farewell while nobody calls: the server
  // stops waiting for it after the timeout.
  Process process(With(kFreePorts, {"--drain-delay-ms", "0", "--drain-timeout-ms", "200"}));
  const Addresses addresses = ReadAddresses(&process);
  grpc::ClientContext context;
  v1::ListGpusResponse response;
  EXPECT_TRUE(StubFor(addresses.grpc)->ListGpus(&context, {}, &response).ok());
  auto client = HttpClientFor(addresses.http);
  EXPECT_TRUE(client.Get("/readyz"));
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_EQ(process.RestOfOutput(), "");
}

// A job with maps in it, some of which come back.
constexpr char kJobWithMaps[] = R"("job": {
    "model": {"hf_config": {"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2,
      "num_attention_heads": 4, "intermediate_size": 512, "vocab_size": 1024}},
    "training": {"sequence_length": 512, "global_batch_size": 16},
    "runtime": {"framework": "deepspeed",
                "versions": {"torch": "2.6", "nccl": "2.21", "deepspeed": "0.16"}},
    "cluster": {"gpu": "a100", "gpu_count": 4}})";

// What came of a call: the status with its details and the response, byte by byte.
std::string RawAnswer(const std::string& address, const std::string& method,
                      const std::string& request) {
  grpc::GenericStub stub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  const grpc::Slice slice(request);
  const grpc::ByteBuffer sent(&slice, 1);
  grpc::ByteBuffer response;
  std::promise<grpc::Status> done;
  stub.UnaryCall(&context, absl::StrCat("/", kServiceName, "/", method), {}, &sent, &response,
                 [&](grpc::Status status) { done.set_value(std::move(status)); });
  const grpc::Status status = done.get_future().get();
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(!response.Valid() || response.Dump(&slices).ok());
  std::string answer = absl::StrCat(status.error_message(), status.error_details());
  for (const grpc::Slice& part : slices) answer.append(part.begin(), part.end());
  return answer;
}

struct SameCall {
  const char* method;
  const char* path;
  google::protobuf::Message* request;
  std::string json;
};

// Maps are kept in hash tables, whose order changes from call to call.
TEST(ProcessTest, TheSameRequestHasTheSameBytesInEachProcess) {
  Process processes[] = {Process(kFreePorts), Process(kFreePorts)};
  const Addresses addresses[] = {ReadAddresses(&processes[0]), ReadAddresses(&processes[1])};
  v1::ListGpusRequest gpus;
  v1::ListModelsRequest models;
  v1::EstimateMemoryRequest estimate, refused;
  v1::RecommendConfigRequest recommend;
  v1::BatchEstimateMemoryRequest batch;
  const std::string bad = R"("job": {"model": {"name": "x"}, "training": {"sequence_length": 0}})";
  const SameCall calls[] = {
      {"ListGpus", "/v1:listGpus", &gpus, "{}"},
      {"ListModels", "/v1:listModels", &models, "{}"},
      {"EstimateMemory", "/v1:estimateMemory", &estimate, absl::StrCat("{", kJobWithMaps, "}")},
      {"EstimateMemory", "/v1:estimateMemory", &refused, absl::StrCat("{", bad, "}")},
      {"BatchEstimateMemory", "/v1:batchEstimateMemory", &batch,
       absl::StrCat("{\"requests\": [{", kJobWithMaps, "}, {", bad, "}]}")},
      {"RecommendConfig", "/v1:recommendConfig", &recommend,
       absl::StrCat("{\"gpus\": [\"a100\", \"h200\"], ",
                    R"("gpu_hour_prices": {"a100": 1.5, "h200": 3}, )", kJobWithMaps, "}")},
  };
  for (const SameCall& call : calls) {
    ASSERT_TRUE(ReadJsonMessage(call.json, call.request).empty()) << call.json;
    std::set<std::string> answers, bodies;
    for (int i = 0; i < 6; ++i) {
      answers.insert(
          RawAnswer(addresses[i % 2].grpc, call.method, call.request->SerializeAsString()));
      auto client = HttpClientFor(addresses[i % 2].http);
      const httplib::Result result = client.Post(call.path, call.json, "application/json");
      ASSERT_TRUE(result) << call.path;
      bodies.insert(result->body);
    }
    EXPECT_EQ(answers.size(), 1u) << call.method << " " << call.json;
    EXPECT_EQ(bodies.size(), 1u) << call.path << " " << call.json;
    EXPECT_GT(answers.begin()->size(), 100u) << call.method;
  }
}

// A stream of health answers, and a call whose message comes after SIGTERM: the
// order of the end, without a clock.
TEST(ProcessTest, FinishesWhatIsInFlightAfterSigterm) {
  Process process(With(kFreePorts, {"--drain-delay-ms", "60000"}));
  const Addresses addresses = ReadAddresses(&process);
  const auto channel = grpc::CreateChannel(addresses.grpc, grpc::InsecureChannelCredentials());
  grpc::CompletionQueue queue;
  const auto step = [&queue](auto start) {
    start();
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  using google::protobuf::Int32Value;
  using google::protobuf::StringValue;
  grpc::TemplatedGenericStub<StringValue, Int32Value> health_stub(channel);
  grpc::ClientContext watch_context;
  auto watch = health_stub.PrepareCall(&watch_context, "/grpc.health.v1.Health/Watch", &queue);
  ASSERT_TRUE(step([&] { watch->StartCall(nullptr); }));
  ASSERT_TRUE(step([&] { watch->WriteLast(StringValue(), {}, nullptr); }));
  Int32Value health;
  ASSERT_TRUE(step([&] { watch->Read(&health, nullptr); }));
  EXPECT_EQ(health.value(), 1);

  grpc::TemplatedGenericStub<v1::ListGpusRequest, v1::ListGpusResponse> stub(channel);
  grpc::ClientContext context;
  auto call = stub.PrepareCall(&context, absl::StrCat("/", kServiceName, "/ListGpus"), &queue);
  ASSERT_TRUE(step([&] { call->StartCall(nullptr); }));

  process.Signal(SIGTERM);
  ASSERT_TRUE(step([&] { watch->Read(&health, nullptr); }));
  EXPECT_EQ(health.value(), 2) << "not serving";
  auto client = HttpClientFor(addresses.http);
  const httplib::Result ready = client.Get("/readyz");
  ASSERT_TRUE(ready);
  EXPECT_EQ(ready->status, 503);
  grpc::ClientContext late_context;
  v1::ListGpusResponse late;
  EXPECT_TRUE(v1::PlannerService::NewStub(channel)->ListGpus(&late_context, {}, &late).ok())
      << "answers while load balancers take notice";

  ASSERT_TRUE(step([&] { call->WriteLast({}, {}, nullptr); }));
  v1::ListGpusResponse response;
  EXPECT_TRUE(step([&] { call->Read(&response, nullptr); }));
  EXPECT_GT(response.gpus_size(), 0);
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 1) << "a second signal ends it at once";
  EXPECT_THAT(process.RestOfErrors(), HasSubstr(R"("event":"killed")"));
}

// A request over HTTP without its body: "100 Continue" says that it is in flight.
constexpr char kHalf[] =
    "POST /v1:listGpus HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";

TEST(ProcessTest, TakesTheRestOfABodyAfterSigtermAndExits0) {
  Process process(With(kFreePorts, {"--drain-delay-ms", "0"}));
  RawConnection caller(ReadAddresses(&process).http);
  ASSERT_TRUE(caller.Send(kHalf));
  ASSERT_THAT(caller.ReadAnswer(), testing::StartsWith("HTTP/1.1 100"));
  process.Signal(SIGTERM);
  EXPECT_THAT(process.ReadErrorLine(), HasSubstr(R"("event":"draining")"));
  ASSERT_TRUE(caller.Send("{}"));
  const std::string answer = caller.ReadAnswer();
  EXPECT_THAT(answer, HasSubstr("HTTP/1.1 200 OK"));
  EXPECT_THAT(answer, HasSubstr("h100-80gb-sxm"));
  EXPECT_TRUE(caller.Ends());
  EXPECT_EQ(process.Wait(), 0);
}

// Neither who stays connected nor who never sends the rest keeps it alive.
TEST(ProcessTest, EndsWhenTheDrainsTimeIsUp) {
  Process process(With(kFreePorts, {"--drain-delay-ms", "0", "--drain-timeout-ms", "200"}));
  const Addresses addresses = ReadAddresses(&process);
  const RawConnection stays(addresses.grpc);
  RawConnection half(addresses.http);
  ASSERT_TRUE(half.Send(kHalf));
  EXPECT_THAT(half.ReadAnswer(), testing::StartsWith("HTTP/1.1 100"));
  process.Signal(SIGTERM);
  EXPECT_THAT(process.ReadErrorLine(), HasSubstr(R"("event":"draining")"));
  EXPECT_EQ(process.Wait(), 0);
}

// A pipe holds 64 KiB; each call is a line.
TEST(ProcessTest, AnswersAndEndsWhileNobodyReadsItsLog) {
  Process process(With(kFreePorts, {"--slow-request-ms", "0", "--drain-delay-ms", "0"}));
  auto client = HttpClientFor(ReadAddresses(&process).http);
  client.set_keep_alive(true);
  client.set_tcp_nodelay(true);
  for (int i = 0; i < 900; ++i) {
    ASSERT_TRUE(client.Post("/v1:estimateMemory", kGoodRequest, "application/json")) << i;
  }
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_THAT(process.RestOfErrors(), HasSubstr(R"("event":"slow")"));
}

// protobuf would: on the thread that parses, however slowly stderr is read.
TEST(ProcessTest, WritesNoWordOfTextThatIsNotUtf8) {
  Process process(With(
      kFreePorts, {"--log-level", "off", "--drain-delay-ms", "0", "--drain-timeout-ms", "200"}));
  const auto stub = StubFor(ReadAddresses(&process).grpc);
  const google::protobuf::LogSilencer silencer;
  v1::EstimateMemoryRequest request;
  request.mutable_job()->mutable_model()->set_name("\xff");
  grpc::ClientContext context;
  v1::EstimateMemoryResponse response;
  EXPECT_EQ(stub->EstimateMemory(&context, request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_EQ(process.RestOfErrors(), "");
}

TEST(ProcessTest, ATakenPortIsOneLineAndExit1) {
  const std::unique_ptr<Server> other = StartOrFail(FreePorts());
  for (const std::string& taken : {other->addresses()[0], other->http_addresses()[0]}) {
    for (const bool grpc : {true, false}) {
      Process process({"--listen", grpc ? taken : "127.0.0.1:0", "--http-listen",
                       grpc ? "127.0.0.1:0" : taken});
      EXPECT_EQ(process.Wait(), 1);
      EXPECT_EQ(process.RestOfOutput(), "");
      EXPECT_EQ(process.RestOfErrors(), absl::StrCat("plimsoll-server: cannot listen on ", taken,
                                                     ": Address already in use\n"));
    }
  }
}

TEST(ProcessTest, AFileThatIsNoSocketStaysWhereOneShouldBe) {
  char path[] = "/tmp/plimsoll_file_XXXXXX";
  close(mkstemp(path));
  const std::string address = absl::StrCat("unix:", path);
  for (const bool grpc : {true, false}) {
    Process process(
        {"--listen", grpc ? address : "none", "--http-listen", grpc ? "none" : address});
    EXPECT_EQ(process.Wait(), 1);
    EXPECT_EQ(process.RestOfErrors(), absl::StrCat("plimsoll-server: cannot listen on ", address,
                                                   ": Address already in use\n"));
    EXPECT_EQ(access(path, F_OK), 0);
  }
  unlink(path);
}

TEST(ProcessTest, ABadTableIsOneLineAndExit1) {
  Process calibration({"--listen", "none", "--http-listen", "none"},
                      {"PLIMSOLL_CALIBRATION=none.yaml"});
  EXPECT_EQ(calibration.Wait(), 1);
  EXPECT_EQ(calibration.RestOfErrors(),
            "plimsoll-server: calibration: none.yaml: No such file or directory\n");
  Process speed({"--listen", "none", "--http-listen", "none", "--speed", "none.yaml"});
  EXPECT_EQ(speed.Wait(), 1);
  EXPECT_EQ(speed.RestOfErrors(), "plimsoll-server: speed: none.yaml: No such file or directory\n");
}

TEST(ProcessTest, ChecksTheHealthOfAnother) {
  const std::unique_ptr<Server> server = StartOrFail(FreePorts());
  const std::string address = server->addresses()[0];
  EXPECT_EQ(Process({"--health-check", address}).Wait(), 0);
  server->SetNotReady();
  Process not_serving({"--health-check", address});
  EXPECT_EQ(not_serving.Wait(), 1);
  EXPECT_EQ(not_serving.RestOfErrors(),
            absl::StrCat("plimsoll-server: ", address, ": not serving\n"));
  server->Shutdown(std::chrono::milliseconds(0));
  EXPECT_EQ(Process({"--health-check", address}).Wait(), 1);
}

// A stream of one message each way is a call to a stub.
TEST(ProcessTest, ReflectsUnlessToldNotTo) {
  for (const bool reflects : {true, false}) {
    Process process(With(kFreePorts, {reflects ? "--reflection" : "--no-reflection"}));
    grpc::GenericStub stub(
        grpc::CreateChannel(ReadAddresses(&process).grpc, grpc::InsecureChannelCredentials()));
    const grpc::Slice list_services(std::string("\x3a\x00", 2));
    const grpc::ByteBuffer request(&list_services, 1);
    grpc::ByteBuffer response;
    grpc::ClientContext context;
    std::promise<grpc::Status> done;
    stub.UnaryCall(&context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", {},
                   &request, &response,
                   [&](grpc::Status status) { done.set_value(std::move(status)); });
    EXPECT_EQ(done.get_future().get().error_code(),
              reflects ? grpc::StatusCode::OK : grpc::StatusCode::UNIMPLEMENTED);
  }
}

TEST(ProcessTest, FlagsGoBeforeEnvironmentBeforeConfig) {
  char path[] = "/tmp/plimsoll_config_XXXXXX";
  const int fd = mkstemp(path);
  ASSERT_GE(fd, 0);
  const std::string config =
      "listen = \"none\"\nhttp-listen = \"none\"\nlog-level = \"off\"\ndrain-delay-ms = 0\n";
  ASSERT_EQ(write(fd, config.data(), config.size()), static_cast<ssize_t>(config.size()));
  close(fd);
  const auto line = [&](const std::vector<std::string>& arguments,
                        const std::vector<std::string>& environment) {
    Process process(With(arguments, {"--config", path}), environment);
    const std::string text = process.ReadLine();
    process.Signal(SIGTERM);
    EXPECT_EQ(process.Wait(), 0);
    EXPECT_EQ(process.RestOfErrors(), "") << "log-level is off in the config";
    return text;
  };
  EXPECT_EQ(line({}, {}), "plimsoll-server: grpc none http none");
  EXPECT_THAT(line({}, {"PLIMSOLL_LISTEN=127.0.0.1:0"}),
              testing::MatchesRegex("plimsoll-server: grpc 127.0.0.1:[0-9]+ http none"));
  EXPECT_THAT(line({"--listen", "[::1]:0"}, {"PLIMSOLL_LISTEN=127.0.0.1:0"}),
              testing::MatchesRegex("plimsoll-server: grpc \\[::1\\]:[0-9]+ http none"));
  unlink(path);
}

// Each way of saying it, and the one line that the log gets of a report.
TEST(ProcessTest, LogsTheReportsThatItAccepts) {
  char folder[] = "/tmp/plimsoll_process_XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string config = absl::StrCat(folder, "/config");
  std::ofstream(config) << "accept-reports = true\n";
  const std::string socket = absl::StrCat("unix:", folder, "/grpc");
  const std::vector<std::string> listen = {"--listen", socket, "--http-listen", "none"};
  v1::ReportUsageRequest report;
  ASSERT_THAT(ReadJsonMessage(R"({"job_id": "4711", "prediction": {"verdict": "VERDICT_FITS",
                                   "device": {"expected_bytes": 20, "bound_bytes": 30}},
                                   "actual_peak_bytes": [10], "outcome": "finished"})",
                              &report),
              testing::IsEmpty());
  const auto log_of_one = [&](const std::vector<std::string>& arguments,
                              const std::vector<std::string>& environment) {
    Process process(With(listen, arguments), environment);
    EXPECT_EQ(ReadAddresses(&process).grpc, socket);
    grpc::ClientContext context;
    v1::ReportUsageResponse response;
    StubFor(socket)->ReportUsage(&context, report, &response);
    return process.ReadErrorLine();
  };
  const auto counted = testing::AllOf(
      HasSubstr(R"("level":"info","event":"usage","job_id":"4711","outcome":"finished")"),
      HasSubstr(R"("actual_bytes":10)"), HasSubstr(R"("expected_bytes":20)"),
      HasSubstr(R"("bound_bytes":30)"), HasSubstr(R"("gpu":"unknown")"));
  EXPECT_THAT(log_of_one({"--accept-reports"}, {}), counted);
  EXPECT_THAT(log_of_one({}, {"PLIMSOLL_ACCEPT_REPORTS=true"}), counted);
  EXPECT_THAT(log_of_one({"--config", config}, {}), counted);
  EXPECT_THAT(log_of_one({}, {}), HasSubstr(R"("code":"PermissionDenied")"));
  EXPECT_THAT(log_of_one({"--config", config}, {"PLIMSOLL_ACCEPT_REPORTS=false"}),
              HasSubstr(R"("code":"PermissionDenied")"));
  unlink(config.c_str());
  unlink(absl::StrCat(folder, "/grpc").c_str());
  rmdir(folder);
}

TEST(ProcessTest, RefusesSettingsThatMakeNoSense) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"--listen", "localhost"},
                                             {"--max-in-flight", "0"},
                                             {"--max-searches", "0"},
                                             {"--max-searches", "65"},
                                             {"--max-search-seconds", "0"},
                                             {"--max-kept-answer-mib", "-1"},
                                             {"--log-level", "loud"},
                                             {"--config", "/nonexistent"},
                                             {"--no-such-flag"}}) {
    Process process(arguments);
    EXPECT_EQ(process.Wait(), 2) << arguments[0];
    EXPECT_EQ(process.RestOfOutput(), "");
    EXPECT_THAT(process.RestOfErrors(), HasSubstr(arguments[0].substr(2)));
  }
}

TEST(ProcessTest, SaysItsVersion) {
  Process process({"--version"});
  EXPECT_EQ(process.ReadLine(), "0.1.0");
  EXPECT_EQ(process.Wait(), 0);
}

}  // namespace
}  // namespace plimsoll
