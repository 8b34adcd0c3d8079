#include "tests/soak/callers.h"

#include <httplib.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/create_channel.h"
#include "server/net/address.h"
#include "tests/server/http2_frames.h"

namespace plimsoll {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// As deploy/README.md tells clients.
constexpr char kServiceConfig[] = R"({
  "loadBalancingConfig": [{"round_robin": {}}],
  "healthCheckConfig": {"serviceName": "plimsoll.v1.PlannerService"},
  "methodConfig": [{"name": [{"service": "plimsoll.v1.PlannerService"}],
    "retryPolicy": {"maxAttempts": 4, "initialBackoff": "0.02s", "maxBackoff": "0.5s",
      "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}}]})";

constexpr char kLight[] = R"({"detail": "summary", "job": {"model": {"name": "llama-3.1-8b"},
  "training": {"sequence_length": 4096}, "parallelism": {"zero_stage": 3},
  "cluster": {"gpu": "h100-80gb-sxm", "gpu_count": 8}}})";
constexpr char kReplay[] = R"({"detail": "replay", "job": {"model": {"name": "gpt3-175b"},
  "training": {"sequence_length": 2048, "global_batch_size": 512},
  "parallelism": {"tensor_parallel_size": 8, "pipeline_parallel_size": 16},
  "runtime": {"framework": "megatron-core"},
  "cluster": {"gpu": "h100-80gb-sxm", "gpu_count": 256}}})";
constexpr char kSearch[] = R"({"max_results": 3, "job": {"model": {"name": "llama-3.1-8b"},
  "training": {"sequence_length": 16384, "global_batch_size": 64},
  "runtime": {"framework": "fsdp2"}, "cluster": {"gpu": "h100-80gb-sxm", "gpu_count": 8}}})";
constexpr char kAdmission[] = R"({"policy": {"rules": {"mode": "enforce", "resize": "allowed"}},
  "scheduler_request": {"scheduler": "slurm", "tres_per_node": "gres:gpu:h100-80gb-sxm:8",
    "environment_words": "resize=allowed model=llama-3.1-8b sequence_length=16k"}})";
constexpr char kBad[] = R"({"job": {"model": {"name": "llama-9"}, "training":
  {"sequence_length": -1}, "cluster": {"gpu": "abacus"}}})";
constexpr char kBatch[] = R"({"requests": [{"job": {"model": {"name": "gpt2"},
  "training": {"sequence_length": 1024}, "cluster": {"gpu": "a100-80gb-sxm"}}}, {"job": {"model": {"name": "gpt2-xl"},
  "training": {"sequence_length": 1024}, "cluster": {"gpu": "rtx-4090"}}}]})";

std::vector<SoakCall> Calls() {
  return {MakeCall("light", Method::kEstimateMemory, kLight),
          MakeCall("batch", Method::kBatchEstimateMemory, kBatch),
          MakeCall("refused", Method::kEstimateMemory, kBad),
          MakeCall("long replay", Method::kEstimateMemory, kReplay),
          MakeCall("search", Method::kRecommendConfig, kSearch),
          MakeCall("admission", Method::kAdmit, kAdmission)};
}

std::shared_ptr<grpc::Channel> Balanced(const std::string& target) {
  grpc::ChannelArguments arguments;
  arguments.SetServiceConfigJSON(kServiceConfig);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 100);
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
}

httplib::Client HttpClient(const std::string& address) {
  const Address parsed = ParseAddress(address).value();
  httplib::Client client(parsed.host, parsed.port);
  client.set_read_timeout(std::chrono::seconds(30));
  client.set_tcp_nodelay(true);
  return client;
}

// A connected socket, or -1; `host` is whom it comes from, 127.0.0.x.
int Connect(const std::string& address, uint32_t host = INADDR_LOOPBACK) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(ParseAddress(address).value().port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in from{};
  from.sin_family = AF_INET;
  from.sin_addr.s_addr = htonl(host);
  bind(client, reinterpret_cast<const sockaddr*>(&from), sizeof from);
  if (connect(client, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0) return client;
  close(client);
  return -1;
}

// Whether the other end has closed, or sent something.
bool Hears(int client) {
  pollfd watched = {.fd = client, .events = POLLIN, .revents = 0};
  return poll(&watched, 1, 0) > 0;
}

double Since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A request of which a few bytes are others.
std::string Mutated(std::string bytes, std::mt19937_64* random) {
  for (uint64_t left = 1 + (*random)() % 3; left > 0; --left) {
    bytes[(*random)() % bytes.size()] = static_cast<char>((*random)());
  }
  return bytes;
}

}  // namespace

SoakCallers::SoakCallers(SoakTargets targets, Verdicts* verdicts)
    : targets_(std::move(targets)), verdicts_(verdicts) {
  for (const SoakCall& call : Calls()) {
    threads_.emplace_back([this, call] { CallOverGrpc(call); });
    threads_.emplace_back([this, call] { CallOverHttp(call, targets_.http_steady, false); });
  }
  const SoakCall light = Calls()[0];
  threads_.emplace_back([this, light] { CallOverHttp(light, targets_.http_restarted, true); });
  for (uint64_t seed : {1, 2}) threads_.emplace_back([this, seed] { SendMalformed(seed); });
  threads_.emplace_back([this] { Probe(); });
  for (int i = 0; i < 8; ++i) threads_.emplace_back([this] { Drip(); });
  threads_.emplace_back([this] { Flood(); });
  threads_.emplace_back([this] { Idle(targets_.http_steady, "idle, HTTP"); });
  threads_.emplace_back([this] { Idle(targets_.grpc_steady, "idle, gRPC"); });
}

SoakCallers::~SoakCallers() {
  end_ = true;
  for (std::thread& thread : threads_) thread.join();
}

bool SoakCallers::Pause(milliseconds time) const {
  const auto until = Clock::now() + time;
  while (!end_ && Clock::now() < until) {
    std::this_thread::sleep_for(std::min(time, milliseconds(50)));
  }
  return !end_;
}

SoakAnswer SoakCallers::KnownAnswer(const SoakCall& call) const {
  SoakAnswer known;
  do {
    known = CallGrpc(targets_.oracle, call.method, call.bytes);
  } while (IsCutShort(call.method, known.bytes));
  return known;
}

void SoakCallers::CallOverGrpc(const SoakCall& call) {
  const SoakAnswer known = KnownAnswer(call);
  const auto channel = Balanced(targets_.grpc);
  do {
    const auto start = Clock::now();
    const SoakAnswer answer = CallGrpc(channel, call.method, call.bytes);
    const Judgement judgement = JudgeGrpc(call.method, answer, known);
    verdicts_->Add(call.kind + ", gRPC", judgement.verdict, Since(start), judgement.what);
  } while (Pause(milliseconds(2)));
}

void SoakCallers::CallOverHttp(const SoakCall& call, const std::string& address, bool restarted) {
  const SoakAnswer known = KnownAnswer(call);
  httplib::Client client = HttpClient(address);
  client.set_keep_alive(!restarted);
  do {
    const auto start = Clock::now();
    const httplib::Result result =
        client.Post(NameOf(call.method).path, call.json, "application/json");
    std::optional<std::pair<int, std::string>> answer;
    if (result) answer = {result->status, result->body};
    Judgement judgement = JudgeHttp(call.method, answer, known);
    if (restarted && !answer.has_value()) judgement.verdict = SoakVerdict::kRefused;
    verdicts_->Add(absl::StrCat(call.kind, restarted ? ", HTTP restarted" : ", HTTP"),
                   judgement.verdict, Since(start), judgement.what);
  } while (Pause(milliseconds(2)));
}

void SoakCallers::SendMalformed(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto channel = Balanced(targets_.grpc);
  const SoakCall light = Calls()[0];
  do {
    const std::string bytes = Mutated(light.bytes, &random);
    const SoakAnswer known = CallGrpc(targets_.oracle, light.method, bytes);
    const auto start = Clock::now();
    const Judgement judgement =
        JudgeGrpc(light.method, CallGrpc(channel, light.method, bytes), known);
    verdicts_->Add("malformed, gRPC", judgement.verdict, Since(start), judgement.what);
  } while (Pause(milliseconds(5)));
}

// What a balancer and Prometheus ask, on a connection each: however busy the machine is, they
// have an answer within the ten seconds that Prometheus waits.
void SoakCallers::Probe() {
  do {
    for (const char* const page : {"/readyz", "/healthz", "/metrics"}) {
      const auto start = Clock::now();
      httplib::Client client = HttpClient(targets_.http_steady);
      const httplib::Result result = client.Get(page);
      const bool right = result && result->status == 200 && Since(start) < 10;
      verdicts_->Add(absl::StrCat("GET ", page), right ? SoakVerdict::kRight : SoakVerdict::kBug,
                     Since(start),
                     absl::StrCat(result ? result->status : 0, " after ", Since(start), " s"));
    }
  } while (Pause(milliseconds(200)));
}

// Sends a head byte by byte: it is closed, or answered, within its five seconds, but for some.
void SoakCallers::Drip() {
  const std::string head =
      absl::StrCat("POST /v1:estimateMemory HTTP/1.1\r\nX-Slow: ", std::string(1000, 'x'));
  constexpr double kLongest = 20;
  do {
    const int client = Connect(targets_.http_steady);
    const auto start = Clock::now();
    size_t sent = 0;
    while (client >= 0 && !Hears(client) && Since(start) < kLongest && sent < head.size() &&
           Pause(milliseconds(100))) {
      if (send(client, &head[sent++], 1, MSG_NOSIGNAL) < 0) break;
    }
    const bool ended = end_ || (client >= 0 && Since(start) < kLongest);
    if (client >= 0) close(client);
    verdicts_->Add("dripping", ended ? SoakVerdict::kRefused : SoakVerdict::kBug, 0,
                   client < 0 ? "no connection" : "not closed after twenty seconds");
  } while (Pause(milliseconds(100)));
}

// Sends the head of a call over gRPC that does not end: it is closed long before 64 MiB.
void SoakCallers::Flood() {
  const std::string frame = Frame(kContinuation, 0, 1, std::string(16384, 'a'));
  constexpr int kMostFrames = 4096;
  do {
    const auto start = Clock::now();
    const int client = Connect(targets_.grpc_steady, INADDR_LOOPBACK + 1);
    const std::string head = EndlessHead();
    bool open = client >= 0 && send(client, head.data(), head.size(), MSG_NOSIGNAL) > 0;
    int frames = 0;
    for (; open && !end_ && frames < kMostFrames; ++frames) {
      open = send(client, frame.data(), frame.size(), MSG_NOSIGNAL) > 0;
    }
    if (client >= 0) close(client);
    verdicts_->Add("endless head", frames < kMostFrames ? SoakVerdict::kRefused : SoakVerdict::kBug,
                   Since(start), "not closed after 64 MiB");
  } while (Pause(milliseconds(200)));
}

// Connections that say nothing: new ones are taken while they wait, or are closed for others.
void SoakCallers::Idle(const std::string& address, const std::string& kind) {
  constexpr int kConnections = 100;
  do {
    std::vector<int> idle;
    for (int i = 0; i < kConnections; ++i) idle.push_back(Connect(address));
    Pause(std::chrono::seconds(3));
    for (const int client : idle) {
      verdicts_->Add(kind, client < 0 ? SoakVerdict::kBug : SoakVerdict::kRight, 0,
                     "no connection");
      if (client >= 0) close(client);
    }
  } while (Pause(milliseconds(500)));
}

}  // namespace plimsoll
