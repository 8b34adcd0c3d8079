// `plimsoll report`: what a job used, against what was predicted for it.
#ifndef PLIMSOLL_CLIENT_REPORT_REPORT_COMMAND_H_
#define PLIMSOLL_CLIENT_REPORT_REPORT_COMMAND_H_

#include <string>
#include <vector>

#include "client/io/exit_code.h"
#include "client/job/options.h"

namespace CLI {
class App;  // its header takes nine seconds to compile
}

namespace plimsoll {

// What flags say; empty where one is not given.
struct ReportCommand {
  Connection connection;
  Output output;
  std::string job_id;
  std::string prediction;  // a file; empty: of the environment
  std::string outcome = "finished";
  std::string gauge, source;
  std::string prometheus;  // its URL
  std::string pod, query, window, start, end, wait;
  std::string actual;              // a file
  std::vector<std::string> peaks;  // by hand
  std::string rows;                // a file
};

void AddReportFlags(CLI::App* app, ReportCommand* command);

// Sends the report, appends the row.
ExitCode RunReport(const ReportCommand& command);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_REPORT_REPORT_COMMAND_H_
