// What a user asked for, as flags say it.
#ifndef PLIMSOLL_CLIENT_JOB_OPTIONS_H_
#define PLIMSOLL_CLIENT_JOB_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/job/job_file.h"

namespace plimsoll {

// What every command that asks a service takes.
struct Connection {
  std::string server;  // empty: the service in this process
  std::string timeout = "10s";
  std::string calibration;  // a file for the service in this process; empty: its own
  std::string speed;        // likewise
  // Files, PEM: the server's authorities, or `system`; what the caller shows; empty: not given.
  std::string tls_ca = {};
  std::string tls_certificate = {};
  std::string tls_key = {};
  std::string token_file = {};  // what it says over TLS: one line
};

struct Output {
  std::string format;  // `table`, `json`, `yaml` or `jsonl`; empty where not given
  std::string color = "auto";
};

struct EstimateCommand {
  Connection connection;
  Output output;
  std::string job_file;
  std::string jobs_file;
  std::vector<JobSetting> settings;
  std::optional<double> risk;
  std::string detail;         // empty where not given
  std::string timeline_file;  // empty where not given
  bool explain = false;
};

struct DiffCommand {
  Connection connection;
  Output output;
  std::string first;   // a job file
  std::string second;  // likewise; empty: the first with the settings against it without
  std::vector<JobSetting> settings;
  std::optional<double> risk;
  std::string detail;  // empty where not given
};

struct RecommendCommand {
  Connection connection;
  Output output;
  std::string job_file;
  std::string jobs_file;
  std::vector<JobSetting> settings;
  std::string objective;  // empty where not given, as the others
  std::vector<std::string> gpus;
  std::string gpu_counts;
  std::vector<std::string> frozen;
  std::vector<std::string> allowed_changes;
  std::vector<std::string> prices;
  std::optional<int64_t> max_results;
  std::optional<double> risk;
  std::string detail;
  std::string plot_file;
  bool explain = false;
};

struct AdmitCommand {
  // Its timeout is empty where none is given.
  Connection connection = {.server = "", .timeout = "", .calibration = "", .speed = ""};
  Output output;
  std::string job_file;           // or
  std::string scheduler_request;  // a file with a SchedulerRequest
  std::string policy;
  std::string partition;        // of a job file
  std::string name_space;       // likewise
  bool resize_allowed = false;  // likewise
  bool refuse_files = false;
  bool print_words = false;
};

struct SubmitCommand {
  Connection connection;
  std::string job_file;
  std::vector<JobSetting> settings;
  std::vector<std::string> allowed_changes;
  std::optional<double> risk;
  bool yes = false;
  bool as_is = false;
  std::vector<std::string> command;  // what comes after `--`
};

struct ListCommand {
  Connection connection;
  Output output;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_JOB_OPTIONS_H_
