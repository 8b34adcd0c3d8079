#include "server/server.h"

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/server_builder.h"
#include "server/address.h"
#include "server/admit/policy.h"
#include "server/catalog/calibration_table.h"
#include "server/catalog/catalog.h"
#include "server/catalog/speed_table.h"

namespace plimsoll {
namespace {

// Connections are renewed now and then, so that new replicas get their share;
// dead peers are found out. Source: grpc, doc/keepalive.md.
void AddConnectionLimits(grpc::ServerBuilder* builder) {
  constexpr int kMinute = 60 * 1000;
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, 10 * kMinute);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, kMinute / 2);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, 15 * kMinute);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kMinute);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kMinute / 3);
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
}

// What a request may make the server hold. Compressed requests are refused: gRPC 1.51 looks
// at the size of what it has unpacked, when that is in memory. The quota slows reading, and
// is passed all the same (deploy/README.md). Source: grpc, grpc_types.h.
void AddMemoryLimits(grpc::ServerBuilder* builder) {
  constexpr size_t kMaxGrpcBytes = 128 << 20;
  constexpr int kMaxMetadataBytes = 8 << 10;
  constexpr int kMaxFrameBytes = 16 << 10;
  builder->SetMaxReceiveMessageSize(kMaxRequestBytes);
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder->AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kMaxFrameBytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 256);
  builder->SetResourceQuota(grpc::ResourceQuota("plimsoll").Resize(kMaxGrpcBytes));
}

std::string CannotListen(const std::string& address, const std::string& why) {
  return absl::StrCat("cannot listen on ", address, ": ", why);
}

// Parses the address and makes sure that it can be listened on.
std::string Prepare(const std::string& text, Address* address) {
  const std::optional<Address> parsed = ParseAddress(text);
  if (!parsed.has_value()) {
    return CannotListen(text, "must be HOST:PORT, [IPV6]:PORT or unix:PATH");
  }
  *address = *parsed;
  const std::string why = ProbeListen(*address);
  return why.empty() ? "" : CannotListen(text, why);
}

// Makes *catalog a copy of the embedded one, where a site has tables of its own.
std::string LoadOwnTables(const ServerOptions& options, std::unique_ptr<Catalog>* catalog) {
  if (options.calibration.empty() && options.speed.empty()) return "";
  *catalog = std::make_unique<Catalog>(LoadCatalog());
  if (!options.calibration.empty()) {
    absl::StatusOr<Calibration> calibration = LoadCalibration(options.calibration);
    if (!calibration.ok()) return absl::StrCat("calibration: ", calibration.status().message());
    (*catalog)->calibration = *std::move(calibration);
  }
  if (!options.speed.empty()) {
    absl::StatusOr<SpeedTable> speed = LoadSpeed(options.speed);
    if (!speed.ok()) return absl::StrCat("speed: ", speed.status().message());
    (*catalog)->speed = *std::move(speed);
  }
  return "";
}

}  // namespace

Server::Server(const ServerOptions& options, std::unique_ptr<const Catalog> catalog,
               v1::AdmissionPolicy policy)
    : log_(options.log_level),
      gate_({.max_in_flight = options.max_in_flight, .slow = options.slow_request}, &metrics_,
            &log_),
      catalog_(std::move(catalog)),
      planner_(catalog_ != nullptr ? *catalog_ : LoadCatalog(), std::move(policy), &metrics_,
               &log_),
      searches_({.thread_count = options.search_threads,
                 .max_searches = options.max_searches,
                 .max_time = options.max_search_time},
                &metrics_),
      admissions_({.thread_count = options.search_threads,
                   .max_searches = options.max_in_flight,
                   .max_time = options.max_search_time,
                   .what = "admissions",
                   .of_searches = false,
                   .nice = 0},
                  &metrics_),
      replays_({.thread_count = options.search_threads,
                .max_searches = options.max_in_flight,
                .max_time = options.max_search_time,
                .what = "replays",
                .of_searches = false},
               &metrics_),
      service_(planner_, &gate_, pools(), options.accept_reports) {}

Server::~Server() { Shutdown(std::chrono::milliseconds(0)); }

std::variant<std::unique_ptr<Server>, std::string> Server::Start(const ServerOptions& options) {
  std::unique_ptr<Catalog> catalog;
  std::string error = LoadOwnTables(options, &catalog);
  if (!error.empty()) return error;
  absl::StatusOr<v1::AdmissionPolicy> policy = ReadPolicy(options.admission_policy);
  if (!policy.ok()) return absl::StrCat("admission policy: ", policy.status().message());
  std::unique_ptr<Server> server(new Server(options, std::move(catalog), *std::move(policy)));
  error = server->StartGrpc(options.listen);
  if (error.empty()) error = server->StartHttp(options);
  if (!error.empty()) return error;
  server->ready_ = true;
  return server;
}

std::string Server::StartGrpc(const std::vector<std::string>& listen) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  AddConnectionLimits(&builder);
  AddMemoryLimits(&builder);
  std::vector<Address> addresses(listen.size());
  std::vector<int> ports(listen.size());
  for (size_t i = 0; i < listen.size(); ++i) {
    std::string error = Prepare(listen[i], &addresses[i]);
    if (!error.empty()) return error;
    builder.AddListeningPort(listen[i], grpc::InsecureServerCredentials(), &ports[i]);
  }
  builder.RegisterService(&service_);
  grpc_ = builder.BuildAndStart();
  for (size_t i = 0; i < listen.size(); ++i) {
    if (grpc_ == nullptr || ports[i] == 0) return CannotListen(listen[i], "gRPC refused it");
    if (!addresses[i].is_unix()) addresses[i].port = ports[i];
    addresses_.push_back(ToText(addresses[i]));
  }
  if (grpc_ == nullptr) return "cannot start gRPC";
  grpc_->GetHealthCheckService()->SetServingStatus(kServiceName, true);
  return "";
}

std::string Server::StartHttp(const ServerOptions& options) {
  const HttpBackend backend = {.planner = planner_,
                               .gate = gate_,
                               .pools = pools(),
                               .metrics = metrics_,
                               .ready = [this] { return ready_.load(); },
                               .max_body_bytes = kMaxRequestBytes,
                               .accept_reports = options.accept_reports,
                               .max_searches = static_cast<size_t>(options.max_searches)};
  for (const std::string& text : options.http_listen) {
    Address address;
    std::string error = Prepare(text, &address);
    if (!error.empty()) return error;
    std::unique_ptr<HttpServer> server = HttpServer::Start(address, backend);
    if (server == nullptr) return CannotListen(text, "HTTP refused it");
    http_addresses_.push_back(ToText(server->address()));
    http_.push_back(std::move(server));
  }
  return "";
}

std::shared_ptr<grpc::Channel> Server::InProcessChannel() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);  // our own answers, of any size
  return grpc_->InProcessChannel(arguments);
}

void Server::SetNotReady() {
  ready_ = false;
  grpc_->GetHealthCheckService()->SetServingStatus(false);
}

void Server::Shutdown(std::chrono::milliseconds timeout) {
  ready_ = false;
  const auto deadline = HttpServer::Clock::now() + timeout;
  for (const std::unique_ptr<HttpServer>& server : http_) server->Refuse();
  std::thread grpc([this, end = std::chrono::system_clock::now() + timeout] {
    if (grpc_ != nullptr) grpc_->Shutdown(end);
  });
  searches_.Close();
  admissions_.Close();  // replays end by themselves, and soon
  for (const std::unique_ptr<HttpServer>& server : http_) server->Stop(deadline);
  grpc.join();
}

}  // namespace plimsoll
