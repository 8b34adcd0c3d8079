#include "estimator/program/schedule.h"

#include <algorithm>

namespace plimsoll {
namespace {

// Forward turns in their order: a group of micro-batches of the first virtual
// stage, the same of the second, and so on, then the next group. Backward's order
// has the virtual stages reversed.
std::vector<Turn> Table(const PairOrder& order, int32_t chunks, bool backward) {
  const int64_t count = order.played_micro_batches;
  std::vector<Turn> table;
  table.reserve(static_cast<size_t>(count * chunks));
  for (int64_t begin = 0; begin < count; begin += order.group) {
    for (int32_t chunk = 0; chunk < chunks; ++chunk) {
      const int32_t turned = backward ? chunks - 1 - chunk : chunk;
      const auto end = static_cast<int32_t>(std::min(begin + order.group, count));
      for (auto i = static_cast<int32_t>(begin); i < end; ++i)
        table.push_back({i, turned, backward});
    }
  }
  return table;
}

int64_t WarmUp(const Job& job, int64_t stage) {
  const int64_t after = job.pipeline_parallel_size - stage - 1;
  switch (job.pipeline_schedule) {
    case PipelineSchedule::kGpipe:
      break;
    case PipelineSchedule::k1F1B:
      return after;
    case PipelineSchedule::kInterleaved1F1B:
      return Add(2 * after, Multiply(job.virtual_pipeline_size - 1, job.micro_batch_group_size));
  }
  return job.micro_batch_count;
}

int64_t PlayedMicroBatches(const Job& job, int64_t stage) {
  const int64_t stages = job.pipeline_parallel_size;
  switch (job.pipeline_schedule) {
    case PipelineSchedule::kGpipe:
      return job.micro_batch_count;
    case PipelineSchedule::k1F1B:
      return std::min(job.micro_batch_count, stages - stage + 2);
    case PipelineSchedule::kInterleaved1F1B: {  // with the last group, which may be short
      const int64_t group = job.micro_batch_group_size;
      return std::min(job.micro_batch_count, 3 * group + job.micro_batch_count % group);
    }
  }
  return job.micro_batch_count;
}

}  // namespace

PairOrder OrderOf(const Job& job, int64_t stage) {
  PairOrder order;
  order.pairs = Multiply(job.virtual_pipeline_size, job.micro_batch_count);
  order.warm_up = std::min(WarmUp(job, stage), order.pairs);
  order.group = job.virtual_pipeline_size == 1 ? job.micro_batch_count : job.micro_batch_group_size;
  order.played_micro_batches = PlayedMicroBatches(job, stage);
  return order;
}

std::vector<Turn> ScheduleTurns(const PairOrder& order, size_t chunks) {
  const std::vector<Turn> forward = Table(order, static_cast<int32_t>(chunks), false);
  const std::vector<Turn> backward = Table(order, static_cast<int32_t>(chunks), true);
  const size_t warm_up = std::min(static_cast<size_t>(order.warm_up), forward.size());
  std::vector<Turn> turns(forward.begin(), forward.begin() + static_cast<std::ptrdiff_t>(warm_up));
  turns.reserve(2 * forward.size());
  for (size_t i = warm_up; i < forward.size(); ++i) {
    turns.push_back(forward[i]);
    turns.push_back(backward[i - warm_up]);
  }
  turns.insert(turns.end(), backward.end() - static_cast<std::ptrdiff_t>(warm_up), backward.end());
  return turns;
}

}  // namespace plimsoll
