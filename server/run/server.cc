#include "server/run/server.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/impl/server_builder_option.h"
#include "grpcpp/impl/server_builder_plugin.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/server_builder.h"
#include "server/admit/policy.h"
#include "server/catalog/calibration_table.h"
#include "server/catalog/catalog.h"
#include "server/catalog/speed_table.h"
#include "server/face/health.h"
#include "server/face/http_listener.h"
#include "server/net/address.h"

namespace plimsoll {
namespace {

// Connections come of age and are renewed, so that new replicas get their share, and so that
// all have left when a drain ends, each when its caller has heard of it. Dead peers are found
// out. Sources: grpc, doc/keepalive.md and its proposal A9.
void AddConnectionLimits(std::chrono::milliseconds age, grpc::ServerBuilder* builder) {
  constexpr int kMinute = 60 * 1000;
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, static_cast<int>(age.count()));
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, kMinute / 2);
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kMinute / 6);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kMinute);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kMinute / 3);
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
  builder->AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // windows stay as they are
  builder->SetResourceQuota(grpc::ResourceQuota("plimsoll").Resize(kMaxGrpcBytes));
}

// The library of reflection adds itself to every server where it is linked. Source: grpc 1.51,
// src/cpp/ext/proto_server_reflection_plugin.cc, static_proto_reflection_plugin_initializer.
class WithoutReflection final : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments* /*arguments*/) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    std::erase_if(*plugins,
                  [](const auto& plugin) { return plugin->name() == "proto_server_reflection"; });
  }
};

std::string CannotListen(const std::string& address, const std::string& why) {
  return absl::StrCat("cannot listen on ", address, ": ", why);
}

constexpr char kNoAddress[] = "must be HOST:PORT, [IPV6]:PORT or unix:PATH";

// What else is open at most: for each address HTTP's connections, of which as many can be
// answered as wait, and files.
constexpr int64_t kOtherDescriptors = 2 * kMaxIdleConnections;

// Makes room for the connections' descriptors. Returns why there is none.
std::string ReserveDescriptors(int64_t connections, size_t http_addresses) {
  const auto needed = static_cast<rlim_t>(
      kDescriptorsOfConnection * connections +
      kOtherDescriptors * static_cast<int64_t>(std::max<size_t>(http_addresses, 1)));
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return "";
  if (limit.rlim_max < needed) {
    return absl::StrCat("max connections: ", connections, " need ", needed,
                        " descriptors; the system allows ", limit.rlim_max, " (ulimit -Hn)");
  }
  limit.rlim_cur = needed;
  if (setrlimit(RLIMIT_NOFILE, &limit) == 0) return "";
  return absl::StrCat("max connections: cannot reserve ", needed,
                      " descriptors: ", std::strerror(errno));
}

// Puts a site's own tables into the catalog.
std::string LoadOwnTables(const ServerOptions& options, Catalog* catalog) {
  if (!options.calibration.empty()) {
    absl::StatusOr<Calibration> calibration = LoadCalibration(options.calibration);
    if (!calibration.ok()) return absl::StrCat("calibration: ", calibration.status().message());
    catalog->calibration = *std::move(calibration);
  }
  if (!options.speed.empty()) {
    absl::StatusOr<SpeedTable> speed = LoadSpeed(options.speed);
    if (!speed.ok()) return absl::StrCat("speed: ", speed.status().message());
    catalog->speed = *std::move(speed);
  }
  return "";
}

}  // namespace

Server::Server(const ServerOptions& options, Loaded loaded)
    : access_(std::move(loaded.access)),
      tls_(std::move(loaded.tls)),
      log_(options.log_level),
      gate_({.max_in_flight = options.max_in_flight, .slow = options.slow_request}, access_.get(),
            &metrics_, &log_),
      callers_(&metrics_.callers()),
      connections_({.max_count = static_cast<size_t>(options.max_connections)}, &callers_,
                   &metrics_, &log_),
      planner_(std::move(loaded.catalog), std::move(loaded.policy), &metrics_, &log_,
               static_cast<size_t>(options.max_kept_answer_bytes)),
      // Together they leave room for calls that take no time.
      searches_({.thread_count = options.search_threads,
                 .max_searches = options.max_searches,
                 .max_time = options.max_search_time,
                 .patient = false},
                &metrics_),
      admissions_({.thread_count = options.search_threads,
                   .max_searches = std::max<int64_t>(options.max_in_flight / 2, 1),
                   .max_time = options.max_search_time,
                   .what = "admissions",
                   .of_searches = false,
                   .nice = 0},
                  &metrics_),
      replays_({.thread_count = options.search_threads,
                .max_searches = std::max<int64_t>(options.max_in_flight / 4, 1),
                .max_time = options.max_search_time,
                .what = "replays",
                .of_searches = false,
                .patient = false},
               &metrics_),
      service_(planner_, &gate_, &connections_, pools()) {}

Server::~Server() { Shutdown(std::chrono::milliseconds(0)); }

std::string Server::Load(const ServerOptions& options, Loaded* loaded) {
  loaded->catalog = LoadCatalog();
  if (std::string error = LoadOwnTables(options, &loaded->catalog); !error.empty()) return error;
  absl::StatusOr<v1::AdmissionPolicy> policy = ReadPolicy(options.admission_policy);
  if (!policy.ok()) return absl::StrCat("admission policy: ", policy.status().message());
  loaded->policy = *std::move(policy);
  absl::StatusOr<std::unique_ptr<Access>> access =
      Access::Load({.policy = options.access_policy,
                    .accept_reports = options.accept_reports,
                    .asks_certificates = !options.tls.client_ca.empty()});
  if (!access.ok()) return absl::StrCat("access policy: ", access.status().message());
  loaded->access = *std::move(access);
  if (!options.tls.any()) return "";
  absl::StatusOr<std::unique_ptr<ServerTls>> tls = ServerTls::Load(options.tls);
  if (!tls.ok()) return absl::StrCat("tls: ", tls.status().message());
  loaded->tls = *std::move(tls);
  return "";
}

std::variant<std::unique_ptr<Server>, std::string> Server::Start(const ServerOptions& options) {
  Loaded loaded;
  std::string error = Load(options, &loaded);
  if (error.empty() && !options.listen.empty()) {
    error = ReserveDescriptors(options.max_connections, options.http_listen.size());
  }
  if (!error.empty()) return error;
  std::unique_ptr<Server> server(new Server(options, std::move(loaded)));
  error = server->StartGrpc(options);
  if (error.empty()) error = server->StartHttp(options);
  if (!error.empty()) return error;
  server->reloader_ =
      std::make_unique<Reloader>(server->WatchedFiles(options), &server->metrics_, &server->log_);
  server->ready_ = true;
  return server;
}

std::vector<Reloader::Watched> Server::WatchedFiles(const ServerOptions& options) {
  std::vector<Reloader::Watched> watched;
  const auto set_expiry = [this] {
    metrics_.SetCertificateExpiry(absl::ToUnixSeconds(tls_->expiry()));
  };
  if (tls_ != nullptr) {
    set_expiry();
    const TlsFiles& files = tls_->files();
    watched.push_back({.what = Setting::kTls,
                       .files =
                           [&files] {
                             return std::vector{files.certificate, files.key, files.client_ca};
                           },
                       .reload =
                           [this, set_expiry] {
                             absl::Status status = tls_->Reload();
                             set_expiry();
                             return status;
                           }});
  }
  if (!options.access_policy.empty()) {
    watched.push_back({.what = Setting::kAccessPolicy,
                       .files = [this] { return access_->files(); },
                       .reload = [this] { return access_->Reload(); }});
  }
  // Of settings that are one file each.
  const auto watch = [this, &watched](Setting what, const std::string& file, auto* read, auto set) {
    if (file.empty()) return;
    watched.push_back({.what = what,
                       .files = [file] { return std::vector{file}; },
                       .reload = [this, file, read, set]() -> absl::Status {
                         auto value = read(file);
                         if (!value.ok()) return value.status();
                         (planner_.*set)(*std::move(value));
                         return absl::OkStatus();
                       }});
  };
  watch(Setting::kAdmissionPolicy, options.admission_policy, ReadPolicy, &Planner::SetPolicy);
  watch(Setting::kCalibration, options.calibration, LoadCalibration, &Planner::SetCalibration);
  watch(Setting::kSpeed, options.speed, LoadSpeed, &Planner::SetSpeed);
  return watched;
}

std::string Server::StartGrpc(const ServerOptions& options) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  if (!options.reflection) builder.SetOption(std::make_unique<WithoutReflection>());
  AddConnectionLimits(options.max_connection_age, &builder);
  AddMemoryLimits(&builder);
  for (const std::string& text : options.listen) {
    std::optional<Address> address = ParseAddress(text);
    const std::string why = address.has_value() ? connections_.Listen(&*address) : kNoAddress;
    if (!why.empty()) return CannotListen(text, why);
    addresses_.push_back(ToText(*address));
  }
  const auto add_acceptor = [&builder](const std::shared_ptr<grpc::ServerCredentials>& of) {
    using Type = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
    return builder.experimental().AddExternalConnectionAcceptor(Type::FROM_FD, of);
  };
  const auto in_the_clear = grpc::InsecureServerCredentials();
  GrpcConnections::Acceptors acceptors = {
      .unix_socket = add_acceptor(in_the_clear),
      .tcp = add_acceptor(tls_ != nullptr ? tls_->GrpcCredentials() : in_the_clear)};
  builder.RegisterService(&service_);
  grpc_ = builder.BuildAndStart();
  if (grpc_ == nullptr) return "cannot start gRPC";
  grpc_->GetHealthCheckService()->SetServingStatus(kServiceName, true);
  connections_.Start(std::move(acceptors));
  return "";
}

std::string Server::StartHttp(const ServerOptions& options) {
  if (!options.http_listen.empty()) probe_ = InProcessChannel();
  const HttpBackend backend = {.planner = planner_,
                               .gate = gate_,
                               .pools = pools(),
                               .metrics = metrics_,
                               .ready = [this] { return IsReady(); },
                               .max_body_bytes = kMaxRequestBytes,
                               .tls = tls_.get(),
                               .max_searches = static_cast<size_t>(options.max_searches),
                               .callers = callers_};
  for (const std::string& text : options.http_listen) {
    const std::optional<Address> address = ParseAddress(text);
    const std::string why = address.has_value() ? ProbeListen(*address) : kNoAddress;
    if (!why.empty()) return CannotListen(text, why);
    std::unique_ptr<HttpServer> server = HttpServer::Start(*address, backend);
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

bool Server::IsReady() {
  constexpr std::chrono::milliseconds kTimeout{500};
  return ready_ && connections_.accepting() && AskHealth(probe_, kTimeout).empty();
}

void Server::SetNotReady() {
  ready_ = false;
  grpc_->GetHealthCheckService()->SetServingStatus(false);
}

void Server::Drain(std::chrono::milliseconds timeout) {
  using std::chrono::milliseconds;
  const auto deadline = GrpcConnections::Clock::now() + timeout;
  for (const std::unique_ptr<HttpServer>& server : http_) server->Refuse();
  connections_.Refuse();
  connections_.WaitUntilEmpty(deadline);
  const auto left = deadline - GrpcConnections::Clock::now();
  Shutdown(std::max(std::chrono::duration_cast<milliseconds>(left), milliseconds(0)));
}

void Server::Shutdown(std::chrono::milliseconds timeout) {
  ready_ = false;
  reloader_.reset();
  connections_.Refuse();
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
