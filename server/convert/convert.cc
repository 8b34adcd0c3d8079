#include "server/convert/convert.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "estimator/catalog/context_bytes.h"
#include "estimator/job/validate_sections.h"
#include "google/protobuf/unknown_field_set.h"
#include "server/catalog/config_struct.h"
#include "server/convert/convert_job.h"

namespace plimsoll {
namespace {

using google::protobuf::ListValue;
using google::protobuf::Struct;
using google::protobuf::Value;

// Bounded by protobuf's own limit on nesting, which every parsed message kept.
int Depth(const Struct& object);

int Depth(const Value& value) {
  if (value.has_struct_value()) return Depth(value.struct_value());
  if (!value.has_list_value()) return 0;
  int deepest = 0;
  for (const Value& item : value.list_value().values()) deepest = std::max(deepest, Depth(item));
  return deepest + 1;
}

int Depth(const Struct& object) {
  int deepest = 0;
  for (const auto& [key, value] : object.fields()) deepest = std::max(deepest, Depth(value));
  return deepest + 1;
}

void Encode(int field, const Moment& from, WireWriter* to) {
  using Moment = v1::Moment;
  to->Message(field,
              {{Moment::kPhaseFieldNumber, EnumNumber(from.phase)},
               {Moment::kFirstStepFieldNumber, from.first_step},
               {Moment::kPeakAllocatedBytesFieldNumber, from.peak_allocated_bytes},
               {Moment::kCurrentAllocatedBytesFieldNumber, from.current_allocated_bytes},
               {Moment::kPeakReservedBytesFieldNumber, from.peak_reserved_bytes},
               {Moment::kCurrentReservedBytesFieldNumber, from.current_reserved_bytes},
               {Moment::kUncappedPeakReservedBytesFieldNumber, from.uncapped_peak_reserved_bytes}});
}

void Encode(int field, Role role, int64_t bytes, WireWriter* to) {
  to->Message(field, {{v1::RoleBytes::kRoleFieldNumber, EnumNumber(role)},
                      {v1::RoleBytes::kBytesFieldNumber, bytes}});
}

void Encode(int field, const RankMemory& from, WireWriter* to) {
  using Rank = v1::RankMemory;
  constexpr size_t kLengthBytes = 2;
  const auto fill = [&] {
    to->Number(Rank::kPipelineStageFieldNumber, from.pipeline_stage);
    to->Number(Rank::kGpuCountFieldNumber, from.gpu_count);
    to->Number(Rank::kLayerCountFieldNumber, from.layer_count);
    to->Number(Rank::kInFlightCountFieldNumber, from.in_flight_count);
    to->Number(Rank::kParameterCountFieldNumber, from.parameter_count);
    Encode(Rank::kAllocatedFieldNumber, from.allocated, to);
    Encode(Rank::kReservedFieldNumber, from.reserved, to);
    Encode(Rank::kDeviceFieldNumber, from.device, to);
    to->Number(Rank::kPeakPhaseFieldNumber, EnumNumber(from.peak_phase));
    for (size_t i = 0; i < kRoleCount; ++i) {
      Encode(Rank::kBreakdownFieldNumber, static_cast<Role>(i), from.breakdown[i], to);
    }
    for (const Moment& moment : from.moments) Encode(Rank::kMomentsFieldNumber, moment, to);
    to->Number(Rank::kHostBytesFieldNumber, from.host_bytes);
  };
  to->Message(field, fill, kLengthBytes);
}

void Encode(int field, const Assumption& from, WireWriter* to) {
  const absl::AlphaNum number(from.number);
  to->Message(field, [&] {
    to->Bytes(v1::Assumption::kFieldFieldNumber, "job.", from.field);
    to->Text(v1::Assumption::kValueFieldNumber, from.text.empty() ? number.Piece() : from.text);
    to->Text(v1::Assumption::kReasonFieldNumber, from.reason);
  });
}

void Encode(int field, const TraceEntry& from, WireWriter* to) {
  to->Message(field, [&] {
    to->Text(v1::TraceEntry::kPassFieldNumber, from.pass);
    to->Number(v1::TraceEntry::kStateBytesFieldNumber, from.state_bytes);
    to->Number(v1::TraceEntry::kActivationBytesFieldNumber, from.activation_bytes);
  });
}

void Encode(int field, const LedgerEntry& from, WireWriter* to) {
  using Entry = v1::LedgerEntry;
  to->Message(field, [&] {
    to->Text(Entry::kBlockFieldNumber, from.block);
    to->Text(Entry::kTensorFieldNumber, from.tensor);
    to->Number(Entry::kRoleFieldNumber, EnumNumber(from.role));
    to->Text(Entry::kDtypeFieldNumber, Name(from.dtype));
    to->Text(Entry::kShapeFieldNumber, from.shape);
    to->Text(Entry::kExtentsFieldNumber, from.extents);
    to->Number(Entry::kBytesFieldNumber, from.bytes);
    to->Number(Entry::kCountFieldNumber, from.count);
    for (const absl::string_view pass : from.shrunk_by) {
      to->Bytes(Entry::kShrunkByFieldNumber, pass);
    }
    to->Text(Entry::kLifetimeFieldNumber, from.lifetime);
  });
}

// The roles that hold anything at some point, in order.
std::vector<Role> RolesOf(const MemoryCurve& curve) {
  std::vector<Role> roles;
  for (size_t role = 0; role < kRoleCount; ++role) {
    const bool occurs =
        std::any_of(curve.points.begin(), curve.points.end(),
                    [role](const CurvePoint& point) { return point.roles[role] != 0; });
    if (occurs) roles.push_back(static_cast<Role>(role));
  }
  return roles;
}

void Encode(int field, const CurvePoint& from, const std::vector<Role>& roles, WireWriter* to) {
  using Point = v1::TimelinePoint;
  std::array<int64_t, kRoleCount> bytes;
  size_t count = 0;
  for (const Role role : roles) bytes[count++] = from.roles[static_cast<size_t>(role)];
  to->Message(field, [&] {
    to->Number(Point::kEventFieldNumber, from.event);
    to->Number(Point::kPhaseFieldNumber, EnumNumber(from.phase));
    to->Number(Point::kAllocatedBytesFieldNumber, from.allocated_bytes);
    to->Number(Point::kReservedBytesFieldNumber, from.reserved_bytes);
    to->Numbers(Point::kRoleBytesFieldNumber, bytes.begin(), bytes.begin() + count);
  });
}

void Encode(int field, const CurvePhase& from, WireWriter* to) {
  to->Message(field, [&] {
    to->Number(v1::TimelinePhase::kPhaseFieldNumber, EnumNumber(from.phase));
    to->Number(v1::TimelinePhase::kBeginEventFieldNumber, from.begin_event);
    to->Number(v1::TimelinePhase::kEndEventFieldNumber, from.end_event);
  });
}

void Encode(int field, const PeakStorage& from, WireWriter* to) {
  using Storage = v1::PeakStorage;
  to->Message(field, [&] {
    to->Text(Storage::kNameFieldNumber, from.name);
    to->Number(Storage::kRoleFieldNumber, EnumNumber(from.role));
    to->Number(Storage::kBytesFieldNumber, from.bytes);
    to->Number(Storage::kCountFieldNumber, from.count);
    to->Text(Storage::kMadeFieldNumber, from.made);
    to->Text(Storage::kAliveFieldNumber, from.alive);
    to->Text(Storage::kLayersFieldNumber, from.layers);
    to->Text(Storage::kMicroBatchesFieldNumber, from.micro_batches);
  });
}

void Encode(int field, const MemoryCurve& from, WireWriter* to) {
  using Timeline = v1::Timeline;
  const std::vector<Role> roles = RolesOf(from);
  std::vector<int> role_numbers;
  role_numbers.reserve(roles.size());
  for (const Role role : roles) role_numbers.push_back(EnumNumber(role));
  to->Message(field, [&] {
    to->Numbers(Timeline::kRolesFieldNumber, role_numbers.begin(), role_numbers.end());
    for (const CurvePoint& point : from.points) {
      Encode(Timeline::kPointsFieldNumber, point, roles, to);
    }
    for (const CurvePhase& phase : from.phases) Encode(Timeline::kPhasesFieldNumber, phase, to);
    to->Number(Timeline::kCapacityBytesFieldNumber, from.capacity_bytes);
    to->Number(Timeline::kPeakPointFieldNumber, from.peak_point);
    for (const PeakStorage& storage : from.largest) {
      Encode(Timeline::kLargestFieldNumber, storage, to);
    }
    to->Number(Timeline::kCompletedFieldNumber, from.completed);
    to->Number(Timeline::kMicroBatchCountFieldNumber, from.micro_batch_count);
    to->Number(Timeline::kDrawnMicroBatchCountFieldNumber, from.drawn_micro_batch_count);
  });
}

absl::string_view Name(GpuArchitecture architecture) {
  switch (architecture) {
    case GpuArchitecture::kVolta:
      return "volta";
    case GpuArchitecture::kTuring:
      return "turing";
    case GpuArchitecture::kAmpere:
      return "ampere";
    case GpuArchitecture::kAda:
      return "ada";
    case GpuArchitecture::kHopper:
      return "hopper";
    case GpuArchitecture::kBlackwell:
      return "blackwell";
    case GpuArchitecture::kCdna2:
      return "cdna2";
    case GpuArchitecture::kCdna3:
      return "cdna3";
  }
  return "";
}

absl::string_view DetailName(const MemoryEstimate& estimate) {
  if (estimate.profiled) return "profiled";
  return estimate.detail == Detail::kReplay ? "replay" : "summary";
}

template <typename... Messages>
bool AnyHasUnknown(const Messages&... messages) {
  return (!messages.GetReflection()->GetUnknownFields(messages).empty() || ...);
}

bool RunHasUnknown(const v1::Profiled& run) {
  const auto in_step = [](const v1::ProfiledStep& step) {
    return AnyHasUnknown(step, step.forward(), step.backward(), step.gradient_reduction(),
                         step.optimizer());
  };
  return AnyHasUnknown(run) || in_step(run.first_step()) || in_step(run.steady_step());
}

}  // namespace

bool MayHaveUnknownFields(const v1::EstimateMemoryRequest& request) {
  const v1::Job& job = request.job();
  return job.model().has_hf_config() || RunHasUnknown(job.model().profiled()) ||
         AnyHasUnknown(request, job, job.model(), job.model().transformer(), job.training(),
                       job.training().precision(), job.training().optimizer(),
                       job.training().recompute(), job.training().loss(), job.training().adapter(),
                       job.training().quantization(), job.training().preference(),
                       job.training().trained(), job.training().distillation(), job.parallelism(),
                       job.runtime(), job.runtime().allocator(), job.cluster());
}

Violations CheckHfConfig(const v1::Model& model) {
  constexpr char kField[] = "job.model.hf_config";
  if (!model.has_hf_config()) return {};
  Violations violations;
  const size_t bytes = model.hf_config().ByteSizeLong();
  if (bytes > kMaxHfConfigBytes) {
    violations.push_back({kField, absl::StrCat(bytes, " bytes"),
                          absl::StrCat("must be at most ", kMaxHfConfigBytes, " bytes"),
                          ViolationCode::kTooLarge});
  }
  const int depth = Depth(model.hf_config());
  if (depth > kMaxConfigDepth) {
    violations.push_back({kField, absl::StrCat(depth, " levels"),
                          absl::StrCat("must nest at most ", kMaxConfigDepth, " levels"),
                          ViolationCode::kTooLarge});
  }
  return violations;
}

JobSpec FromProto(const v1::EstimateMemoryRequest& request) {
  JobSpec spec = FromProto(request.job());
  if (request.has_risk()) spec.risk = request.risk();
  if (request.has_detail()) spec.detail = request.detail();
  return spec;
}

EstimateOptions OptionsFromProto(const v1::EstimateMemoryRequest& request) {
  return {.trace = request.include_trace(),
          .ledger = request.include_ledger(),
          .timeline = request.include_timeline()};
}

void Encode(int field, const Gauge& from, WireWriter* to) {
  to->Message(field, {{v1::Gauge::kExpectedBytesFieldNumber, from.expected_bytes},
                      {v1::Gauge::kBoundBytesFieldNumber, from.bound_bytes}});
}

void Encode(int field, const Warning& from, WireWriter* to) {
  to->Message(field, [&] {
    to->Text(v1::Warning::kCodeFieldNumber, from.code);
    to->Text(v1::Warning::kFieldFieldNumber, from.field);
    to->Text(v1::Warning::kTextFieldNumber, from.text);
  });
}

void Encode(const MemoryEstimate& estimate, WireWriter* to) {
  using Response = v1::EstimateMemoryResponse;
  to->Number(Response::kVerdictFieldNumber, EnumNumber(estimate.verdict));
  to->Number(Response::kLimitingRankFieldNumber, estimate.limiting_rank);
  to->Number(Response::kUsableBytesFieldNumber, estimate.usable_bytes);
  Encode(Response::kHeadroomFieldNumber, estimate.headroom, to);
  for (const RankMemory& rank : estimate.ranks) Encode(Response::kRanksFieldNumber, rank, to);
  to->Number(Response::kParameterCountFieldNumber, estimate.parameter_count);
  for (const Assumption& assumption : estimate.assumptions) {
    Encode(Response::kAssumptionsFieldNumber, assumption, to);
  }
  for (const Warning& warning : estimate.warnings) {
    Encode(Response::kWarningsFieldNumber, warning, to);
  }
  to->Text(Response::kDetailFieldNumber, DetailName(estimate));
  to->Text(Response::kEstimatorVersionFieldNumber, kEstimatorVersion);
  to->Text(Response::kCalibrationIdFieldNumber, estimate.calibration_id);
  for (const TraceEntry& entry : estimate.trace) Encode(Response::kTraceFieldNumber, entry, to);
  for (const LedgerEntry& entry : estimate.ledger) Encode(Response::kLedgerFieldNumber, entry, to);
  if (estimate.curve.has_value()) Encode(Response::kTimelineFieldNumber, *estimate.curve, to);
  to->Number(Response::kActiveParameterCountFieldNumber, estimate.active_parameter_count);
  to->Text(Response::kCalibratedFieldNumber, estimate.calibrated);
}

v1::ModelInfo ToProto(const std::string& name, const Transformer& model, const Catalog& catalog) {
  v1::ModelInfo info;
  info.set_name(name);
  info.set_model_type(model.model_type);
  info.set_parameter_count(CountParameters(model));
  info.set_active_parameter_count(CountActiveParameters(model));
  info.set_layer_count(model.layer_count);
  info.set_hidden_size(model.hidden_size);
  info.set_vocab_size(model.vocab_size);
  for (const auto& [lower, hf_id] : catalog.hf_ids) {
    if (hf_id.model == name) info.add_hf_ids(hf_id.id);
  }
  return info;
}

v1::GpuInfo ToProto(const Gpu& gpu, const Catalog& catalog) {
  v1::GpuInfo info;
  info.set_gpu(gpu.id);
  for (const std::string& alias : gpu.aliases) {
    info.add_aliases(alias);
    const AmbiguousGpu* const ambiguous = FindAmbiguousGpu(alias, catalog);
    if (ambiguous == nullptr) continue;
    v1::AmbiguousAlias& to = *info.add_ambiguous_aliases();
    to.set_alias(alias);
    to.mutable_gpus()->Assign(ambiguous->ids.begin(), ambiguous->ids.end());
  }
  info.set_architecture(absl::StrCat(Name(gpu.architecture)));
  info.set_driver_memory_bytes(gpu.driver_memory_bytes);
  info.set_runtime_memory_bytes(gpu.runtime_memory_bytes);
  info.set_memory_bandwidth_bytes_per_second(gpu.memory_bandwidth_bytes_per_second);
  info.mutable_teraflops()->insert(gpu.teraflops.begin(), gpu.teraflops.end());
  info.set_interconnect(gpu.interconnect);
  info.set_interconnect_bytes_per_second(gpu.interconnect_bytes_per_second);
  info.set_network_bytes_per_second(gpu.network_bytes_per_second);
  info.set_source(gpu.source);
  info.set_context_bytes(ContextBytes(gpu.architecture));
  info.set_multiprocessor_count(gpu.multiprocessor_count);
  return info;
}

}  // namespace plimsoll
