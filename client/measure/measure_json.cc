// The answer as JSON.
#include "absl/strings/str_cat.h"
#include "client/format/json_text.h"
#include "client/measure/measure_answer.h"
#include "plimsoll/v1/planner.pb.h"

namespace plimsoll {
namespace {

// An object or a list that is closed at the end of its scope.
class Scope {
 public:
  Scope(char open, char close, JsonText& json) : close_(close), json_(json) { json_.Open(open); }
  ~Scope() { json_.Close(close_); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  const char close_;
  JsonText& json_;
};

void Key(const char* name, JsonText& json) { json.Key(absl::StrCat(QuotedJson(name), ":")); }

void Add(const char* name, int64_t value, JsonText& json) {
  Key(name, json);
  json.QuotedNumber(value);
}

void Add(const char* name, const std::string& text, JsonText& json) {
  Key(name, json);
  json.Text(text);
}

void AddPeaks(const Peaks& peaks, const MeasuredGpu& gpu, JsonText& json) {
  const Scope object('{', '}', json);
  if (peaks.step > 0) Add("step", peaks.step, json);
  Add("allocatedBytes", peaks.allocated_bytes, json);
  Add("requestedBytes", peaks.requested_bytes, json);
  Add("reservedBytes", peaks.reserved_bytes, json);
  Add("deviceBytes", DeviceBytes(peaks, gpu), json);
}

void AddSteps(const Measurement& measurement, const MeasuredGpu& gpu, JsonText& json) {
  Add("stepCount", measurement.step_count, json);
  if (!measurement.steps.empty()) {
    Key("firstStep", json);
    AddPeaks(measurement.steps.front(), gpu, json);
    Key("lastStep", json);
    AddPeaks(measurement.steps.back(), gpu, json);
  }
  Key("steps", json);
  {
    const Scope list('[', ']', json);
    for (const Peaks& peaks : measurement.steps) {
      json.Next();
      AddPeaks(peaks, gpu, json);
    }
  }
  Key("wholeRun", json);
  AddPeaks(measurement.whole, gpu, json);
}

void AddOutOfMemory(const OutOfMemory& failed, JsonText& json) {
  Key("outOfMemory", json);
  const Scope object('{', '}', json);
  Add("step", failed.step, json);
  Add("requestedBytes", failed.requested_bytes, json);
  Add("allocatedBytes", failed.allocated_bytes, json);
  Add("reservedBytes", failed.reserved_bytes, json);
}

void AddAlive(const Measurement& measurement, JsonText& json) {
  Add("aliveStep", measurement.alive_step, json);
  Add("aliveBytes", measurement.alive_bytes, json);
  Key("alive", json);
  const Scope list('[', ']', json);
  for (const AliveGroup& group : measurement.alive) {
    json.Next();
    const Scope object('{', '}', json);
    Add("bytes", group.bytes, json);
    Add("count", group.count, json);
    Add("line", group.line, json);
    Add("within", group.within, json);
  }
}

void AddAnswer(const Measurement& measurement, const MeasuredGpu& gpu, JsonText& json) {
  const Scope object('{', '}', json);
  const v1::Verdict verdict =
      measurement.out_of_memory.has_value() ? v1::VERDICT_DOES_NOT_FIT : v1::VERDICT_FITS;
  Add("verdict", v1::Verdict_Name(verdict), json);
  Add("basis", std::string("phantom"), json);
  Add("gpu", gpu.id, json);
  Add("usableBytes", gpu.usable_bytes, json);
  Add("contextBytes", gpu.context_bytes, json);
  Add("torch", measurement.torch, json);
  Add("rank", measurement.rank, json);
  Add("rankCount", measurement.rank_count, json);
  AddSteps(measurement, gpu, json);
  Add("retryCount", measurement.retry_count, json);
  if (measurement.out_of_memory.has_value()) AddOutOfMemory(*measurement.out_of_memory, json);
  AddAlive(measurement, json);
  Key("notKnown", json);
  const Scope list('[', ']', json);
  for (const std::string& what : UnknownToPhantoms()) {
    json.Next();
    json.Text(what);
  }
}

}  // namespace

std::string ToJson(const Measurement& measurement, const MeasuredGpu& gpu) {
  std::string text;
  {
    JsonText json(/*pretty=*/true, &text);
    AddAnswer(measurement, gpu, json);
  }
  return text + "\n";
}

}  // namespace plimsoll
