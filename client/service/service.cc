#include "client/service/service.h"

#include <string>
#include <utility>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "grpcpp/security/credentials.h"
#include "server/run/server.h"
#include "server/words/document.h"

namespace plimsoll {
namespace {

// Refuses what would be of no use.
absl::Status CheckIgnored(const Connection& connection) {
  const bool has_server = !connection.server.empty();
  const struct {
    const char* flag;
    const std::string& value;
    bool with_server;
  } kFlags[] = {
      {"--calibration", connection.calibration, false},
      {"--speed", connection.speed, false},
      {"--tls-ca", connection.tls_ca, true},
      {"--tls-certificate", connection.tls_certificate, true},
      {"--tls-key", connection.tls_key, true},
      {"--token-file", connection.token_file, true},
  };
  for (const auto& [flag, value, with_server] : kFlags) {
    if (value.empty() || with_server == has_server) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        flag, ": ", value,
        has_server ? "; must not be given with --server, which has its own"
                   : "; must be given with --server: without, the service is in this process"));
  }
  return absl::OkStatus();
}

// Returns nothing of a file that is not named.
absl::Status ReadInto(const std::string& file, std::string* text) {
  if (file.empty()) return absl::OkStatus();
  absl::StatusOr<std::string> read = ReadDocument(file);
  if (!read.ok()) return read.status();
  *text = *std::move(read);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CredentialsOf(
    const Connection& connection) {
  if (connection.tls_ca.empty()) return grpc::InsecureChannelCredentials();
  constexpr char kSystem[] = "system";
  grpc::SslCredentialsOptions options;
  std::string token;
  const std::pair<std::string, std::string*> files[] = {
      {connection.tls_ca == kSystem ? "" : connection.tls_ca, &options.pem_root_certs},
      {connection.tls_certificate, &options.pem_cert_chain},
      {connection.tls_key, &options.pem_private_key},
      {connection.token_file, &token}};
  for (const auto& [file, text] : files) {
    const absl::Status read = ReadInto(file, text);
    if (!read.ok()) return read;
  }
  const auto channel = grpc::SslCredentials(options);
  if (connection.token_file.empty()) return channel;
  return grpc::CompositeChannelCredentials(
      channel, grpc::AccessTokenCredentials(std::string(absl::StripAsciiWhitespace(token))));
}

}  // namespace

absl::StatusOr<absl::Duration> CheckConnection(const Connection& connection) {
  absl::Duration timeout;
  if (!absl::ParseDuration(connection.timeout, &timeout) || timeout <= absl::ZeroDuration() ||
      timeout > absl::Hours(24)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--timeout: ", connection.timeout, "; must be a duration up to 24h, as 10s or 500ms"));
  }
  const absl::Status ignored = CheckIgnored(connection);
  if (!ignored.ok()) return ignored;
  return timeout;
}

absl::StatusOr<Service> OpenService(const Connection& connection) {
  const absl::StatusOr<absl::Duration> checked = CheckConnection(connection);
  if (!checked.ok()) return checked.status();
  const absl::Duration timeout = *checked;
  if (!connection.server.empty()) {
    const auto credentials = CredentialsOf(connection);
    if (!credentials.ok()) return credentials.status();
    return Service{.embedded = nullptr,
                   .client = ConnectTo(connection.server, timeout, *credentials)};
  }
  ServerOptions options;
  options.log_level = LogLevel::kOff;  // refusals are answers here
  options.calibration = connection.calibration;
  options.speed = connection.speed;
  options.max_search_time = absl::ToChronoMilliseconds(timeout);  // nobody else waits
  auto started = Server::Start(options);
  if (auto* error = std::get_if<std::string>(&started)) return absl::InternalError(*error);
  auto server = std::move(std::get<std::unique_ptr<Server>>(started));
  PlannerClient client(server->InProcessChannel(), "the embedded service", timeout);
  return Service{.embedded = std::move(server), .client = std::move(client)};
}

}  // namespace plimsoll
