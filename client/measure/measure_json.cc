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
    for (const Peaks& peaks : measurement.steps) {
      json.Object([&] { AddPeaks(peaks, gpu, json); });
    }
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

void AddAlive(const Measurement& measurement, JsonOut& json) {
  json.Integer("aliveStep", measurement.alive_step);
  json.Integer("aliveBytes", measurement.alive_bytes);
  json.List("alive", [&] {
    for (const AliveGroup& group : measurement.alive) {
      json.Object([&] {
        json.Integer("bytes", group.bytes);
        json.Integer("count", group.count);
        json.Text("line", group.line);
        json.Text("within", group.within);
      });
    }
  });
}

void AddAnswer(const Measurement& measurement, const MeasuredGpu& gpu, JsonOut& json) {
  const v1::Verdict verdict =
      measurement.out_of_memory.has_value() ? v1::VERDICT_DOES_NOT_FIT : v1::VERDICT_FITS;
  json.Text("verdict", v1::Verdict_Name(verdict));
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
  json.List("notKnown", [&] {
    for (const std::string& what : UnknownToPhantoms()) json.Text(what);
  });
}

}  // namespace

std::string ToJson(const Measurement& measurement, const MeasuredGpu& gpu) {
  JsonOut json(/*pretty=*/true);
  json.Object([&] { AddAnswer(measurement, gpu, json); });
  return json.Take() + "\n";
}

}  // namespace plimsoll
