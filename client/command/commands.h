// What each command does, from its options to the code that it exits with.
#ifndef PLIMSOLL_CLIENT_COMMAND_COMMANDS_H_
#define PLIMSOLL_CLIENT_COMMAND_COMMANDS_H_

#include "client/io/exit_code.h"
#include "client/job/options.h"

namespace plimsoll {

// Estimates one job, or one per line of `jobs_file`.
ExitCode RunEstimate(const EstimateCommand& command);

// Estimates two jobs and shows what differs.
ExitCode RunDiff(const DiffCommand& command);

// Searches what makes one job fit, or one per line of `jobs_file`.
ExitCode RunRecommend(const RecommendCommand& command);

// Decides on one submission.
ExitCode RunAdmit(const AdmitCommand& command);

// Estimates a job, and becomes the scheduler's command where it may be submitted.
ExitCode RunSubmit(const SubmitCommand& command);

// Lists the catalog.
ExitCode RunModels(const ListCommand& command);
ExitCode RunGpus(const ListCommand& command);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_COMMAND_COMMANDS_H_
