#include "server/run/flags.h"

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "server/net/address.h"
#include "server/observe/log.h"

namespace plimsoll {
namespace {

constexpr char kNone[] = "none";
constexpr char kConfig[] = "--config";
constexpr int64_t kDayMs = int64_t{24} * 3600 * 1000;

std::string CheckAddress(const std::string& text) {
  if (text == kNone || ParseAddress(text).has_value()) return "";
  return absl::StrCat(text, "; must be HOST:PORT, [IPV6]:PORT, unix:PATH or none");
}

std::vector<std::string> WithoutNone(const std::vector<std::string>& addresses) {
  std::vector<std::string> result;
  for (const std::string& address : addresses) {
    if (address != kNone) result.push_back(address);
  }
  return result;
}

}  // namespace

ServerFlags::ServerFlags(CLI::App* app) : app_(app) {
  AddAddresses(app);
  AddAccess(app);
  AddLimits(app);
  AddEnd(app);
  AddTables(app);
  app->add_option("--log-level", log_level_, "debug, info, warning, error or off")
      ->envname("PLIMSOLL_LOG_LEVEL")
      ->check(CLI::IsMember({"debug", "info", "warning", "error", "off"}))
      ->capture_default_str();
  app->add_option(kConfig, config_,
                  "A file with these settings (TOML or INI, as listen = \"0.0.0.0:50051\"); flags "
                  "and PLIMSOLL_* variables go before it")
      ->envname("PLIMSOLL_CONFIG")
      ->check(CLI::ExistingFile);
}

void ServerFlags::AddAddresses(CLI::App* app) {
  const CLI::Validator address(CheckAddress, "ADDRESS");
  app->add_option("--listen", listen_,
                  "Where gRPC listens: HOST:PORT, unix:PATH, several with commas, or none. In a "
                  "container: 0.0.0.0:50051")
      ->envname("PLIMSOLL_LISTEN")
      ->delimiter(',')
      ->check(address)
      ->capture_default_str();
  app->add_option("--http-listen", http_listen_,
                  "Where HTTP (JSON, /metrics, /healthz, /readyz) listens, or none")
      ->envname("PLIMSOLL_HTTP_LISTEN")
      ->delimiter(',')
      ->check(address)
      ->capture_default_str();
}

void ServerFlags::AddAccess(CLI::App* app) {
  CLI::Option* const reports =
      app->add_flag("--accept-reports", accept_reports_,
                    "Count what jobs used (ReportUsage), of callers over a unix socket alone")
          ->envname("PLIMSOLL_ACCEPT_REPORTS");
  CLI::Option* const certificate =
      app->add_option("--tls-certificate", tls_.certificate,
                      "TLS on every address that is no unix socket: the certificate and its chain "
                      "(PEM); read anew when it changes, as are the next two")
          ->envname("PLIMSOLL_TLS_CERTIFICATE")
          ->type_name("FILE");
  CLI::Option* const key = app->add_option("--tls-key", tls_.key, "Its private key (PEM)")
                               ->envname("PLIMSOLL_TLS_KEY")
                               ->type_name("FILE");
  certificate->needs(key);
  key->needs(certificate);
  app->add_option("--tls-client-ca", tls_.client_ca,
                  "The authorities of callers' certificates (PEM): without an --access-policy "
                  "whoever has none of theirs is refused")
      ->envname("PLIMSOLL_TLS_CLIENT_CA")
      ->type_name("FILE")
      ->needs(certificate);
  app->add_option("--access-policy", access_policy_,
                  "Who may call what, and how much of it at once (YAML, as "
                  "deploy/examples/access.yaml); read anew when it changes")
      ->envname("PLIMSOLL_ACCESS_POLICY")
      ->type_name("FILE")
      ->excludes(reports);
  app->add_flag("--reflection,!--no-reflection", reflection_,
                "Tell callers over gRPC which methods there are (on)")
      ->envname("PLIMSOLL_REFLECTION");
}

void ServerFlags::AddLimits(CLI::App* app) {
  app->add_option("--max-in-flight", max_in_flight_,
                  "Requests answered at once, half of them admissions and a quarter long replays "
                  "at most; more are refused with RESOURCE_EXHAUSTED")
      ->envname("PLIMSOLL_MAX_IN_FLIGHT")
      ->check(CLI::Range(int64_t{1}, int64_t{1000000}))
      ->capture_default_str();
  app->add_option(
         "--max-connections", max_connections_,
         "Connections over gRPC at once; beyond these the most silent one of the host that "
         "has most is closed. Each takes two descriptors")
      ->envname("PLIMSOLL_MAX_CONNECTIONS")
      ->check(CLI::Range(int64_t{1}, int64_t{100000}))
      ->capture_default_str();
  app->add_option("--max-connection-age-ms", max_connection_age_ms_,
                  "When a connection over gRPC is asked to leave (GOAWAY) and come anew: a drain "
                  "waits for that, as a call that comes later would be cancelled")
      ->envname("PLIMSOLL_MAX_CONNECTION_AGE_MS")
      ->check(CLI::Range(int64_t{100}, kDayMs))
      ->capture_default_str();
  app->add_option("--max-searches", max_searches_,
                  "Searches for a configuration, running and waiting, at once; more are refused "
                  "with RESOURCE_EXHAUSTED. As many run as there are cores, at most 4")
      ->envname("PLIMSOLL_MAX_SEARCHES")
      ->check(CLI::Range(int64_t{1}, int64_t{64}))
      ->capture_default_str();
  app->add_option("--max-search-seconds", max_search_seconds_,
                  "How long a search may take; then the best so far is its answer")
      ->envname("PLIMSOLL_MAX_SEARCH_SECONDS")
      ->check(CLI::Range(int64_t{1}, int64_t{3600}))
      ->capture_default_str();
  app->add_option("--max-kept-answer-mib", max_kept_answer_mib_,
                  "Memory for answers of EstimateMemory over gRPC that are given again to the same "
                  "request; 0 keeps none")
      ->envname("PLIMSOLL_MAX_KEPT_ANSWER_MIB")
      ->check(CLI::Range(int64_t{0}, int64_t{1024}))
      ->capture_default_str();
  app->add_option("--slow-request-ms", slow_request_ms_,
                  "Requests that take as long are logged; 0 logs all")
      ->envname("PLIMSOLL_SLOW_REQUEST_MS")
      ->check(CLI::Range(int64_t{0}, kDayMs))
      ->capture_default_str();
}

void ServerFlags::AddEnd(CLI::App* app) {
  app->add_option("--drain-delay-ms", drain_delay_ms_,
                  "After SIGTERM, how long to answer while saying \"not ready\"; as long as a load "
                  "balancer needs to notice")
      ->envname("PLIMSOLL_DRAIN_DELAY_MS")
      ->check(CLI::Range(int64_t{0}, kDayMs))
      ->capture_default_str();
  app->add_option("--drain-timeout-ms", drain_timeout_ms_,
                  "After that, how long callers may take to leave, and requests in flight to "
                  "finish; a tenth above --max-connection-age-ms, so that all are gone in time")
      ->envname("PLIMSOLL_DRAIN_TIMEOUT_MS")
      ->check(CLI::Range(int64_t{0}, kDayMs))
      ->capture_default_str();
}

void ServerFlags::AddTables(CLI::App* app) {
  app->add_option("--calibration", calibration_,
                  "A table of upper bounds in the place of the built-in one, as "
                  "tests/accuracy/calibrate.py writes it; read anew when it changes")
      ->envname("PLIMSOLL_CALIBRATION")
      ->type_name("FILE");
  app->add_option("--speed", speed_,
                  "A table of the constants behind predicted times in the place of the built-in "
                  "one, as tests/accuracy/fit_speed.py writes it; read anew when it changes")
      ->envname("PLIMSOLL_SPEED")
      ->type_name("FILE");
  app->add_option(
         "--admission-policy", admission_policy_,
         "The rules that Admit follows where a caller brings none (YAML, as "
         "deploy/slurm/policy.yaml); without it the defaults: mode warn. Read anew when it "
         "changes")
      ->envname("PLIMSOLL_ADMISSION_POLICY")
      ->type_name("FILE");
}

// CLI11's own reading of a config file would put it before the environment.
void ServerFlags::ReadConfig() {
  for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_file(config_)) {
    CLI::Option* const option =
        item.parents.empty() ? app_->get_option_no_throw("--" + item.name) : nullptr;
    if (option == nullptr || option->get_envname().empty() || item.name == kConfig + 2) {
      throw CLI::ConfigError::NotConfigurable(item.fullname());
    }
    if (option->count() > 0) continue;
    for (const std::string& input : item.inputs) option->add_result(input);
    option->run_callback();
  }
}

ServerOptions ServerFlags::Read() {
  if (!config_.empty()) ReadConfig();
  ServerOptions options;
  options.listen = WithoutNone(listen_);
  options.http_listen = WithoutNone(http_listen_);
  options.max_in_flight = max_in_flight_;
  options.max_connections = max_connections_;
  options.max_connection_age = std::chrono::milliseconds(max_connection_age_ms_);
  options.accept_reports = accept_reports_;
  options.tls = tls_;
  options.access_policy = access_policy_;
  options.reflection = reflection_;
  options.slow_request = std::chrono::milliseconds(slow_request_ms_);
  options.drain_delay = std::chrono::milliseconds(drain_delay_ms_);
  options.drain_timeout = std::chrono::milliseconds(drain_timeout_ms_);
  options.log_level = *ParseLogLevel(log_level_);
  options.calibration = calibration_;
  options.speed = speed_;
  options.admission_policy = admission_policy_;
  options.max_searches = max_searches_;
  options.max_search_time = std::chrono::seconds(max_search_seconds_);
  options.max_kept_answer_bytes = max_kept_answer_mib_ << 20;
  return options;
}

}  // namespace plimsoll
