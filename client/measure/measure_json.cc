// The answer as JSON.
#include "client/measure/measure_answer.h"
#include "plimsoll/v1/planner.pb.h"
#include "server/wire/json_out.h"

namespace plimsoll {
namespace {

void AddPeaks(const Peaks& peaks, const MeasuredGpu& gpu, JsonOut& json) {
  if (peaks.step > 0) json.Integer("step", peaks.step);
  json.Integer("allocatedBytes", peaks.allocated_bytes);
  json.Integer("requestedBytes", peaks.requested_bytes);
  json.Integer("reservedBytes", peaks.reserved_bytes);
  json.Integer("deviceBytes", DeviceBytes(peaks, gpu));
}

void AddSteps(const Measurement& measurement, const MeasuredGpu& gpu, JsonOut& json) {
  json.Integer("stepCount", measurement.step_count);
  if (!measurement.steps.empty()) {
    json.Object("firstStep", [&] { AddPeaks(measurement.steps.front(), gpu, json); });
    json.Object("lastStep", [&] { AddPeaks(measurement.steps.back(), gpu, json); });
  }
  json.List("steps", [&] {
    for (const Peaks& peaks : measurement.steps) json.Object([&] { AddPeaks(peaks, gpu, json); });
  });
  json.Object("wholeRun", [&] { AddPeaks(measurement.whole, gpu, json); });
}

void AddOutOfMemory(const OutOfMemory& failed, JsonOut& json) {
  json.Object("outOfMemory", [&] {
    json.Integer("step", failed.step);
    json.Integer("requestedBytes", failed.requested_bytes);
    json.Integer("allocatedBytes", failed.allocated_bytes);
    json.Integer("reservedBytes", failed.reserved_bytes);
  });
}

void AddGroup(const AliveGroup& group, JsonOut& json) {
  json.Integer("bytes", group.bytes);
  json.Integer("count", group.count);
  json.Text("line", group.line);
  json.Text("within", group.within);
}

void AddAlive(const Measurement& measurement, JsonOut& json) {
  json.Integer("aliveStep", measurement.alive_step);
  json.Integer("aliveBytes", measurement.alive_bytes);
  json.List("alive", [&] {
    for (const AliveGroup& group : measurement.alive) json.Object([&] { AddGroup(group, json); });
  });
}

void AddPhase(const std::string& phase, const Peaks& peaks, const MeasuredGpu& gpu, JsonOut& json) {
  const char* const name = phase == "gradient_reduction" ? "gradientReduction" : phase.c_str();
  json.Object(name, [&] { AddPeaks(peaks, gpu, json); });
}

void AddPhases(const char* name, const PhasePeaks& phases, const MeasuredGpu& gpu, JsonOut& json) {
  json.Object(name, [&] {
    for (const auto& [phase, peaks] : phases) AddPhase(phase, peaks, gpu, json);
  });
}

void AddCounts(const char* name, const std::map<std::string, int64_t>& counts, JsonOut& json) {
  json.Object(name, [&] {
    for (const auto& [dtype, count] : counts) json.Integer(dtype.c_str(), count);
  });
}

void AddProfile(const RunProfile& profile, const MeasuredGpu& gpu, JsonOut& json) {
  json.Text("framework", profile.framework);
  AddCounts("parameterCounts", profile.parameter_counts, json);
  AddCounts("shardParameterCounts", profile.shard_parameter_counts, json);
  json.Integer("weightBytes", profile.weight_bytes);
  json.Integer("optimizerStateBytes", profile.optimizer_state_bytes);
  json.Integer("activationBytes", profile.activation_bytes);
  AddPhases("firstStepPhases", profile.first_step, gpu, json);
  AddPhases("steadyStepPhases", profile.steady_step, gpu, json);
}

// What `plimsoll estimate` says of the run as a job.
void AddEstimate(const v1::EstimateMemoryResponse& estimate, JsonOut& json) {
  const v1::RankMemory& rank = estimate.ranks(static_cast<int>(estimate.limiting_rank()));
  json.Object("estimate", [&] {
    json.Text("verdict", v1::Verdict_Name(estimate.verdict()));
    json.Integer("expectedBytes", rank.device().expected_bytes());
    json.Integer("boundBytes", rank.device().bound_bytes());
  });
}

void AddAnswer(const MeasureAnswer& answer, JsonOut& json) {
  const Measurement& measurement = answer.measurement;
  const MeasuredGpu& gpu = answer.gpu;
  json.Text("verdict", v1::Verdict_Name(VerdictOf(answer)));
  json.Text("basis", "phantom");
  json.Text("gpu", gpu.id);
  json.Integer("usableBytes", gpu.usable_bytes);
  json.Integer("contextBytes", gpu.context_bytes);
  json.Text("torch", measurement.torch);
  json.Integer("rank", measurement.rank);
  json.Integer("rankCount", measurement.rank_count);
  AddSteps(measurement, gpu, json);
  json.Integer("retryCount", measurement.retry_count);
  if (measurement.out_of_memory.has_value()) AddOutOfMemory(*measurement.out_of_memory, json);
  AddAlive(measurement, json);
  if (measurement.profile.has_value()) AddProfile(*measurement.profile, gpu, json);
  if (answer.estimate.has_value()) AddEstimate(*answer.estimate, json);
  json.List("notKnown", [&] {
    for (const std::string& what : UnknownToPhantoms()) json.Text(what);
  });
}

}  // namespace

std::string ToJson(const MeasureAnswer& answer) {
  JsonOut json(/*pretty=*/true);
  json.Object([&] { AddAnswer(answer, json); });
  return json.Take() + "\n";
}

}  // namespace plimsoll
