#include "client/measure/measurement.h"

#include "absl/strings/str_cat.h"
#include "rapidjson/document.h"

namespace plimsoll {
namespace {

using Json = rapidjson::Value;

// Fields of an object; the first that is not as it must be is kept.
class Fields {
 public:
  explicit Fields(absl::Status* status) : status_(*status) {}

  const Json* Of(const Json& object, const char* name) {
    if (!object.IsObject() || !object.HasMember(name)) {
      Refuse(name);
      return nullptr;
    }
    return &object[name];
  }

  int64_t Number(const Json& object, const char* name) {
    const Json* const value = Of(object, name);
    if (value != nullptr && value->IsInt64()) return value->GetInt64();
    Refuse(name);
    return 0;
  }

  std::string Text(const Json& object, const char* name) {
    const Json* const value = Of(object, name);
    if (value != nullptr && value->IsString()) return value->GetString();
    Refuse(name);
    return "";
  }

  // Calls read(name, value) for each member of an object.
  template <typename Read>
  void Members(const Json& object, const char* name, const Read& read) {
    const Json* const value = Of(object, name);
    if (value == nullptr || !value->IsObject()) return Refuse(name);
    for (const auto& member : value->GetObject()) read(member.name.GetString(), member.value);
  }

  std::map<std::string, int64_t> Numbers(const Json& object, const char* name) {
    std::map<std::string, int64_t> numbers;
    Members(object, name, [&](const char* key, const Json& value) {
      if (!value.IsInt64()) return Refuse(name);
      numbers[key] = value.GetInt64();
    });
    return numbers;
  }

  // Calls read(item) for each of a list.
  template <typename Read>
  void Each(const Json& object, const char* name, const Read& read) {
    const Json* const value = Of(object, name);
    if (value == nullptr || !value->IsArray()) return Refuse(name);
    for (const Json& item : value->GetArray()) read(item);
  }

  void Refuse(const char* name) {
    if (!status_.ok()) return;
    status_ = absl::InternalError(absl::StrCat("the hook's result: ", name, ": missing or wrong"));
  }

 private:
  absl::Status& status_;
};

Peaks ReadPeaks(const Json& object, Fields& fields) {
  return {.step = 0,
          .allocated_bytes = fields.Number(object, "allocated"),
          .requested_bytes = fields.Number(object, "requested"),
          .reserved_bytes = fields.Number(object, "reserved")};
}

void ReadAlive(const Json& object, Fields& fields, Measurement& to) {
  to.alive_step = fields.Number(object, "step");
  to.alive_bytes = fields.Number(object, "requested_bytes");
  fields.Each(object, "groups", [&](const Json& group) {
    to.alive.push_back({.bytes = fields.Number(group, "bytes"),
                        .count = fields.Number(group, "count"),
                        .line = fields.Text(group, "line"),
                        .within = fields.Text(group, "within")});
  });
}

OutOfMemory ReadOutOfMemory(const Json& object, Fields& fields) {
  return {.step = fields.Number(object, "step"),
          .requested_bytes = fields.Number(object, "requested_bytes"),
          .allocated_bytes = fields.Number(object, "allocated_bytes"),
          .reserved_bytes = fields.Number(object, "reserved_bytes")};
}

PhasePeaks ReadPhases(const Json& object, const char* name, Fields& fields) {
  PhasePeaks peaks;
  fields.Members(object, name, [&](const char* phase, const Json& value) {
    peaks[phase] = ReadPeaks(value, fields);
  });
  return peaks;
}

RunProfile ReadProfile(const Json& object, Fields& fields) {
  RunProfile profile;
  profile.framework = fields.Text(object, "framework");
  fields.Each(object, "communicators", [&](const Json& pair) {
    if (!pair.IsArray() || pair.Size() != 2 || !pair[0].IsInt64() || !pair[1].IsInt64()) {
      return fields.Refuse("communicators");
    }
    profile.communicators.emplace_back(pair[0].GetInt64(), pair[1].GetInt64());
  });
  profile.ranks_per_node = fields.Number(object, "ranks_per_node");
  profile.parameter_counts = fields.Numbers(object, "parameter_counts");
  profile.shard_parameter_counts = fields.Numbers(object, "shard_parameter_counts");
  profile.weight_bytes = fields.Number(object, "weight_bytes");
  profile.optimizer_state_bytes = fields.Number(object, "optimizer_state_bytes");
  profile.activation_bytes = fields.Number(object, "activation_bytes");
  profile.first_step = ReadPhases(object, "first_step", fields);
  profile.steady_step = ReadPhases(object, "steady_step", fields);
  return profile;
}

void ReadRun(const Json& run, Fields& fields, Measurement& to) {
  to.torch = fields.Text(run, "torch");
  to.rank = fields.Number(run, "rank");
  to.rank_count = fields.Number(run, "ranks");
  to.step_count = fields.Number(run, "step_count");
  to.retry_count = fields.Number(run, "retry_count");
  fields.Each(run, "steps", [&](const Json& step) {
    to.steps.push_back(ReadPeaks(step, fields));
    to.steps.back().step = fields.Number(step, "step");
  });
  if (const Json* const whole = fields.Of(run, "whole")) to.whole = ReadPeaks(*whole, fields);
  if (const Json* const alive = fields.Of(run, "alive")) ReadAlive(*alive, fields, to);
  const Json* const failed = fields.Of(run, "out_of_memory");
  if (failed != nullptr && !failed->IsNull()) to.out_of_memory = ReadOutOfMemory(*failed, fields);
  if (run.HasMember("profile")) to.profile = ReadProfile(run["profile"], fields);
}

}  // namespace

absl::StatusOr<Measurement> ReadMeasurement(absl::string_view json) {
  rapidjson::Document document;
  document.Parse<rapidjson::kParseIterativeFlag>(json.data(), json.size());
  if (document.HasParseError() || !document.IsObject()) {
    return absl::InternalError("the hook's result: not a JSON object");
  }
  absl::Status status;
  Fields fields(&status);
  Measurement measurement;
  if (document.HasMember("refused")) {
    measurement.refused = fields.Text(document, "refused");
  } else {
    ReadRun(document, fields, measurement);
  }
  if (!status.ok()) return status;
  return measurement;
}

int64_t DeviceBytes(const Peaks& peaks, const MeasuredGpu& gpu) {
  return peaks.reserved_bytes + gpu.context_bytes;
}

const std::vector<std::string>& UnknownToPhantoms() {
  static const auto* const kUnknown = new std::vector<std::string>{
      "NCCL's own buffers", "blocks that wait for a GPU which lags behind its CPU",
      "sizes that depend on values: nothing is computed, a mask selects everything",
      "kernels that tuning would choose, as all take the same time",
      "attention by cuDNN, which is switched off"};
  return *kUnknown;
}

}  // namespace plimsoll
