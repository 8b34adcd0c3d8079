#include "tests/bench/jobs.h"

#include <fstream>
#include <iterator>
#include <stdexcept>
#include <utility>
#include <variant>
#include <vector>

#include "server/convert/convert.h"
#include "server/wire/json.h"

namespace plimsoll {

v1::EstimateMemoryRequest ReadRequest(const std::string& name) {
  const std::string path = std::string(PLIMSOLL_BENCH_JOBS) + "/" + name + ".json";
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  v1::EstimateMemoryRequest request;
  const Violations violations = ReadJsonMessage(text, &request);
  if (!violations.empty()) throw std::runtime_error(path + ": " + ToText(violations.front()));
  return request;
}

v1::EstimateMemoryRequest ReadSummaryRequest(const std::string& name) {
  v1::EstimateMemoryRequest request = ReadRequest(name);
  request.set_detail("summary");
  return request;
}

std::vector<v1::EstimateMemoryRequest> ReadSummaryRequests(const std::string& name, int count) {
  std::vector<v1::EstimateMemoryRequest> requests;
  v1::EstimateMemoryRequest request = ReadSummaryRequest(name);
  v1::Training& training = *request.mutable_job()->mutable_training();
  const int64_t step = request.job().parallelism().data_parallel_size();
  for (int i = 0; i < count; ++i) {
    requests.push_back(request);
    training.set_global_batch_size(training.global_batch_size() + step);
  }
  return requests;
}

JobSpec ReadJob(const std::string& name) { return FromProto(ReadRequest(name)); }

}  // namespace plimsoll
