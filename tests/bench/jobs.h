// The jobs that benchmarks estimate: files of jobs/, read as a caller's would be.
#ifndef PLIMSOLL_TESTS_BENCH_JOBS_H_
#define PLIMSOLL_TESTS_BENCH_JOBS_H_

#include <string>
#include <vector>

#include "estimator/job/job.h"
#include "plimsoll/v1/planner.pb.h"

namespace plimsoll {

// Reads jobs/<name>.json.
//
// Errors: throws std::runtime_error where the file is no good request.
v1::EstimateMemoryRequest ReadRequest(const std::string& name);
// The same, asking for detail `summary`: what the budgets of the server are about.
v1::EstimateMemoryRequest ReadSummaryRequest(const std::string& name);
// So many that are like it and all differ, in the global batch.
std::vector<v1::EstimateMemoryRequest> ReadSummaryRequests(const std::string& name, int count);
JobSpec ReadJob(const std::string& name);

}  // namespace plimsoll

#endif  // PLIMSOLL_TESTS_BENCH_JOBS_H_
