// The server's settings: flags, then environment, then a config file.
#ifndef PLIMSOLL_SERVER_RUN_FLAGS_H_
#define PLIMSOLL_SERVER_RUN_FLAGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "server/run/server.h"

namespace CLI {
class App;  // its header takes nine seconds to compile
}

namespace plimsoll {

// Adds the server's flags to a command, and reads them after it has parsed.
class ServerFlags {
 public:
  // `app` outlives the flags.
  explicit ServerFlags(CLI::App* app);
  ServerFlags(const ServerFlags&) = delete;
  ServerFlags& operator=(const ServerFlags&) = delete;

  // Returns the settings. What neither flags nor environment set is taken from
  // the config file, if one was named.
  //
  // Errors: throws CLI::ParseError, as parsing does.
  ServerOptions Read();

 private:
  void AddAddresses(CLI::App* app);
  void AddAccess(CLI::App* app);
  void AddLimits(CLI::App* app);
  void AddEnd(CLI::App* app);
  void AddTables(CLI::App* app);
  void ReadConfig();

  CLI::App* const app_;
  std::string config_;
  std::vector<std::string> listen_ = {"127.0.0.1:50051"};
  std::vector<std::string> http_listen_ = {"127.0.0.1:9464"};
  int64_t max_in_flight_ = 256;
  int64_t max_connections_ = 1024;
  int64_t max_connection_age_ms_ = 14000;
  int64_t slow_request_ms_ = 100;
  bool accept_reports_ = false;
  int64_t drain_delay_ms_ = 1000;
  int64_t drain_timeout_ms_ = 20000;
  std::string log_level_ = "info";
  std::string calibration_;
  std::string speed_;
  std::string admission_policy_;
  TlsFiles tls_;
  std::string access_policy_;
  bool reflection_ = true;
  int64_t max_searches_ = DefaultMaxSearches();
  int64_t max_search_seconds_ = 10;
  int64_t max_kept_answer_mib_ = 8;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_RUN_FLAGS_H_
