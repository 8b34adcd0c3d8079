// `--jobs FILE`: a request per line, whatever the command asks for.
#ifndef PLIMSOLL_CLIENT_COMMAND_STREAM_COMMAND_H_
#define PLIMSOLL_CLIENT_COMMAND_STREAM_COMMAND_H_

#include <string>

#include "client/io/exit_code.h"
#include "client/job/options.h"
#include "client/service/job_stream.h"

namespace plimsoll {

// What was said beside `--jobs`.
struct StreamCommand {
  const Connection& connection;
  const Output& output;
  const std::string& jobs_file;
  const std::string& job_file;
  bool one_job = false;  // flags that mean nothing there: a request per line says it all
};

// Answers each line of the file on standard output.
ExitCode RunStream(const StreamCommand& command, StreamFunction* stream);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_COMMAND_STREAM_COMMAND_H_
