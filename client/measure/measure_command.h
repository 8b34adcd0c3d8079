// `plimsoll measure`: runs a command on a GPU that is not there, and says what it held.
#ifndef PLIMSOLL_CLIENT_MEASURE_MEASURE_COMMAND_H_
#define PLIMSOLL_CLIENT_MEASURE_MEASURE_COMMAND_H_

#include <cstdint>
#include <string>
#include <vector>

#include "client/io/exit_code.h"
#include "client/job/options.h"
#include "client/measure/phantom_environment.h"

namespace CLI {
class App;  // its header takes nine seconds to compile
}

namespace plimsoll {

struct MeasureCommand {
  Output output;
  std::string gpu;
  MeasuredRank rank;
  int64_t step_count = 0;            // after which the command is to end; 0: by itself
  std::string job_file;              // where the run goes as a job; empty: nowhere
  std::vector<std::string> command;  // what comes after `--`
};

void AddMeasureFlags(CLI::App* app, MeasureCommand* command);

ExitCode RunMeasure(const MeasureCommand& command);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_MEASURE_MEASURE_COMMAND_H_
