#include "server/convert/convert.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "estimator/job/validate_sections.h"
#include "google/protobuf/unknown_field_set.h"
#include "server/catalog/config_struct.h"

namespace plimsoll {
namespace {

using google::protobuf::ListValue;
using google::protobuf::Struct;
using google::protobuf::Value;

// Sets *to where the request sets the field: unset stays unset.
#define PLIMSOLL_COPY_IF_SET(from, to, field) \
  if ((from).has_##field()) (to).field = (from).field()

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

TransformerSpec FromProto(const v1::Transformer& from) {
  TransformerSpec to;
  PLIMSOLL_COPY_IF_SET(from, to, hidden_size);
  PLIMSOLL_COPY_IF_SET(from, to, layer_count);
  PLIMSOLL_COPY_IF_SET(from, to, head_count);
  PLIMSOLL_COPY_IF_SET(from, to, kv_head_count);
  PLIMSOLL_COPY_IF_SET(from, to, head_size);
  PLIMSOLL_COPY_IF_SET(from, to, ffn_size);
  PLIMSOLL_COPY_IF_SET(from, to, vocab_size);
  PLIMSOLL_COPY_IF_SET(from, to, position_count);
  PLIMSOLL_COPY_IF_SET(from, to, activation);
  PLIMSOLL_COPY_IF_SET(from, to, gated_mlp);
  PLIMSOLL_COPY_IF_SET(from, to, norm);
  PLIMSOLL_COPY_IF_SET(from, to, norm_placement);
  PLIMSOLL_COPY_IF_SET(from, to, qkv_bias);
  PLIMSOLL_COPY_IF_SET(from, to, attention_output_bias);
  PLIMSOLL_COPY_IF_SET(from, to, mlp_bias);
  PLIMSOLL_COPY_IF_SET(from, to, qk_norm);
  PLIMSOLL_COPY_IF_SET(from, to, tied_embeddings);
  PLIMSOLL_COPY_IF_SET(from, to, position_embedding);
  PLIMSOLL_COPY_IF_SET(from, to, hidden_dropout);
  PLIMSOLL_COPY_IF_SET(from, to, attention_dropout);
  PLIMSOLL_COPY_IF_SET(from, to, token_type_count);
  PLIMSOLL_COPY_IF_SET(from, to, masked_lm_head);
  PLIMSOLL_COPY_IF_SET(from, to, sentence_head);
  PLIMSOLL_COPY_IF_SET(from, to, head);
  PLIMSOLL_COPY_IF_SET(from, to, label_count);
  return to;
}

ModelSpec FromProto(const v1::Model& from) {
  ModelSpec to;
  PLIMSOLL_COPY_IF_SET(from, to, accept_unknown_model_type);
  switch (from.source_case()) {
    case v1::Model::kName:
      to.source = from.name();
      break;
    case v1::Model::kHfConfig: {
      std::optional<ConfigValue> config = ToConfigValue(from.hf_config());
      if (config.has_value()) to.source = *std::move(config);
      break;
    }
    case v1::Model::kTransformer:
      to.source = FromProto(from.transformer());
      break;
    case v1::Model::SOURCE_NOT_SET:
      break;
  }
  return to;
}

PrecisionSpec FromProto(const v1::Precision& from) {
  PrecisionSpec to;
  PLIMSOLL_COPY_IF_SET(from, to, preset);
  PLIMSOLL_COPY_IF_SET(from, to, parameter_dtype);
  PLIMSOLL_COPY_IF_SET(from, to, gradient_dtype);
  PLIMSOLL_COPY_IF_SET(from, to, gradient_accumulation_dtype);
  PLIMSOLL_COPY_IF_SET(from, to, reduce_dtype);
  PLIMSOLL_COPY_IF_SET(from, to, master_dtype);
  PLIMSOLL_COPY_IF_SET(from, to, optimizer_state_dtype);
  return to;
}

RecomputeSpec FromProto(const v1::Recompute& from) {
  RecomputeSpec to;
  PLIMSOLL_COPY_IF_SET(from, to, mode);
  to.modules.assign(from.modules().begin(), from.modules().end());
  PLIMSOLL_COPY_IF_SET(from, to, interval);
  PLIMSOLL_COPY_IF_SET(from, to, unit_layer_count);
  return to;
}

TrainingSpec FromProto(const v1::Training& from) {
  TrainingSpec to;
  PLIMSOLL_COPY_IF_SET(from, to, sequence_length);
  PLIMSOLL_COPY_IF_SET(from, to, micro_batch_size);
  PLIMSOLL_COPY_IF_SET(from, to, global_batch_size);
  to.precision = FromProto(from.precision());
  PLIMSOLL_COPY_IF_SET(from.optimizer(), to.optimizer, name);
  PLIMSOLL_COPY_IF_SET(from.optimizer(), to.optimizer, implementation);
  PLIMSOLL_COPY_IF_SET(from, to, gradient_clipping);
  to.recompute = FromProto(from.recompute());
  PLIMSOLL_COPY_IF_SET(from, to, attention);
  PLIMSOLL_COPY_IF_SET(from.loss(), to.loss, implementation);
  PLIMSOLL_COPY_IF_SET(from.loss(), to.loss, chunk_count);
  PLIMSOLL_COPY_IF_SET(from, to, resumed_from_checkpoint);
  return to;
}

ParallelismSpec FromProto(const v1::Parallelism& from) {
  ParallelismSpec to;
  PLIMSOLL_COPY_IF_SET(from, to, data_parallel_size);
  PLIMSOLL_COPY_IF_SET(from, to, zero_stage);
  PLIMSOLL_COPY_IF_SET(from, to, shard_group_size);
  PLIMSOLL_COPY_IF_SET(from, to, tensor_parallel_size);
  PLIMSOLL_COPY_IF_SET(from, to, sequence_parallel);
  PLIMSOLL_COPY_IF_SET(from, to, pipeline_parallel_size);
  PLIMSOLL_COPY_IF_SET(from, to, pipeline_schedule);
  PLIMSOLL_COPY_IF_SET(from, to, virtual_pipeline_size);
  to.pipeline_layout.assign(from.pipeline_layout().begin(), from.pipeline_layout().end());
  PLIMSOLL_COPY_IF_SET(from, to, micro_batch_group_size);
  return to;
}

AllocatorSpec FromProto(const v1::Allocator& from) {
  AllocatorSpec to;
  PLIMSOLL_COPY_IF_SET(from, to, expandable_segments);
  PLIMSOLL_COPY_IF_SET(from, to, max_split_size_bytes);
  to.roundup_power2_division_count.assign(from.roundup_power2_division_count().begin(),
                                          from.roundup_power2_division_count().end());
  PLIMSOLL_COPY_IF_SET(from, to, garbage_collection_threshold);
  PLIMSOLL_COPY_IF_SET(from, to, memory_fraction);
  return to;
}

RuntimeSpec FromProto(const v1::Runtime& from) {
  RuntimeSpec to;
  PLIMSOLL_COPY_IF_SET(from, to, framework);
  to.versions.insert(from.versions().begin(), from.versions().end());
  PLIMSOLL_COPY_IF_SET(from, to, vocab_size_divisor);
  PLIMSOLL_COPY_IF_SET(from, to, gradient_as_bucket_view);
  PLIMSOLL_COPY_IF_SET(from, to, reduce_bucket_element_count);
  PLIMSOLL_COPY_IF_SET(from, to, overlap_communication);
  PLIMSOLL_COPY_IF_SET(from, to, reshard_after_forward);
  PLIMSOLL_COPY_IF_SET(from, to, gradient_accumulation_fusion);
  PLIMSOLL_COPY_IF_SET(from, to, attention_mask);
  PLIMSOLL_COPY_IF_SET(from, to, transformer_implementation);
  PLIMSOLL_COPY_IF_SET(from, to, trainer);
  PLIMSOLL_COPY_IF_SET(from, to, compile);
  PLIMSOLL_COPY_IF_SET(from, to, cublas_workspace_config);
  PLIMSOLL_COPY_IF_SET(from, to, deferred_embedding_gradient_count);
  to.allocator = FromProto(from.allocator());
  return to;
}

ClusterSpec FromProto(const v1::Cluster& from) {
  ClusterSpec to;
  PLIMSOLL_COPY_IF_SET(from, to, gpu);
  PLIMSOLL_COPY_IF_SET(from, to, gpu_memory_bytes);
  PLIMSOLL_COPY_IF_SET(from, to, gpu_count);
  PLIMSOLL_COPY_IF_SET(from, to, gpus_per_node);
  PLIMSOLL_COPY_IF_SET(from, to, reserved_for_others_bytes);
  PLIMSOLL_COPY_IF_SET(from, to, interconnect_bytes_per_second);
  PLIMSOLL_COPY_IF_SET(from, to, network_bytes_per_second);
  return to;
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

template <typename... Messages>
bool AnyHasUnknown(const Messages&... messages) {
  return (!messages.GetReflection()->GetUnknownFields(messages).empty() || ...);
}

}  // namespace

bool MayHaveUnknownFields(const v1::EstimateMemoryRequest& request) {
  const v1::Job& job = request.job();
  return job.model().has_hf_config() ||
         AnyHasUnknown(request, job, job.model(), job.model().transformer(), job.training(),
                       job.training().precision(), job.training().optimizer(),
                       job.training().recompute(), job.training().loss(), job.parallelism(),
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

JobSpec FromProto(const v1::Job& job) {
  JobSpec spec;
  spec.model = FromProto(job.model());
  spec.training = FromProto(job.training());
  spec.parallelism = FromProto(job.parallelism());
  spec.runtime = FromProto(job.runtime());
  spec.cluster = FromProto(job.cluster());
  return spec;
}

JobSpec FromProto(const v1::EstimateMemoryRequest& request) {
  JobSpec spec = FromProto(request.job());
  PLIMSOLL_COPY_IF_SET(request, spec, risk);
  PLIMSOLL_COPY_IF_SET(request, spec, detail);
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
  to->Text(Response::kDetailFieldNumber, estimate.detail == Detail::kReplay ? "replay" : "summary");
  to->Text(Response::kEstimatorVersionFieldNumber, kEstimatorVersion);
  to->Text(Response::kCalibrationIdFieldNumber, estimate.calibration_id);
  for (const TraceEntry& entry : estimate.trace) Encode(Response::kTraceFieldNumber, entry, to);
  for (const LedgerEntry& entry : estimate.ledger) Encode(Response::kLedgerFieldNumber, entry, to);
  if (estimate.curve.has_value()) Encode(Response::kTimelineFieldNumber, *estimate.curve, to);
}

v1::ModelInfo ToProto(const std::string& name, const Transformer& model, const Catalog& catalog) {
  v1::ModelInfo info;
  info.set_name(name);
  info.set_model_type(model.model_type);
  info.set_parameter_count(CountParameters(model));
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
  return info;
}

}  // namespace plimsoll
