#include "server/convert/convert_recommendation.h"

#include <string>
#include <utility>

#include "server/convert/convert.h"
#include "server/wire/ordered_bytes.h"

namespace plimsoll {
namespace {

// Sets the field of *to where *from has a value: unset stays unset.
#define PLIMSOLL_SET_IF_ANY(from, to, field) \
  if ((from).field.has_value()) (to)->set_##field(*(from).field)

// The same, and clears it where *from has none.
#define PLIMSOLL_SET_OR_CLEAR(from, to, field) \
  (to)->clear_##field();                       \
  PLIMSOLL_SET_IF_ANY(from, to, field)

v1::Recompute ToProto(const RecomputeSpec& from) {
  v1::Recompute to;
  PLIMSOLL_SET_IF_ANY(from, &to, mode);
  to.mutable_modules()->Assign(from.modules.begin(), from.modules.end());
  PLIMSOLL_SET_IF_ANY(from, &to, interval);
  PLIMSOLL_SET_IF_ANY(from, &to, unit_layer_count);
  return to;
}

v1::Loss ToProto(const LossSpec& from) {
  v1::Loss to;
  PLIMSOLL_SET_IF_ANY(from, &to, implementation);
  PLIMSOLL_SET_IF_ANY(from, &to, chunk_count);
  return to;
}

v1::Parallelism ToProto(const ParallelismSpec& from) {
  v1::Parallelism to;
  PLIMSOLL_SET_IF_ANY(from, &to, data_parallel_size);
  PLIMSOLL_SET_IF_ANY(from, &to, zero_stage);
  PLIMSOLL_SET_IF_ANY(from, &to, shard_group_size);
  PLIMSOLL_SET_IF_ANY(from, &to, tensor_parallel_size);
  PLIMSOLL_SET_IF_ANY(from, &to, sequence_parallel);
  PLIMSOLL_SET_IF_ANY(from, &to, pipeline_parallel_size);
  PLIMSOLL_SET_IF_ANY(from, &to, pipeline_schedule);
  PLIMSOLL_SET_IF_ANY(from, &to, virtual_pipeline_size);
  to.mutable_pipeline_layout()->Assign(from.pipeline_layout.begin(), from.pipeline_layout.end());
  PLIMSOLL_SET_IF_ANY(from, &to, micro_batch_group_size);
  return to;
}

v1::Cluster ToProto(const ClusterSpec& from) {
  v1::Cluster to;
  PLIMSOLL_SET_IF_ANY(from, &to, gpu);
  PLIMSOLL_SET_IF_ANY(from, &to, gpu_memory_bytes);
  PLIMSOLL_SET_IF_ANY(from, &to, gpu_count);
  PLIMSOLL_SET_IF_ANY(from, &to, gpus_per_node);
  PLIMSOLL_SET_IF_ANY(from, &to, reserved_for_others_bytes);
  PLIMSOLL_SET_IF_ANY(from, &to, interconnect_bytes_per_second);
  PLIMSOLL_SET_IF_ANY(from, &to, network_bytes_per_second);
  return to;
}

bool IsSet(const google::protobuf::Message& section) { return section.ByteSizeLong() > 0; }

void SetKnobs(const TrainingSpec& from, v1::Training* to) {
  to->clear_sequence_length();
  to->clear_micro_batch_size();
  to->clear_global_batch_size();
  PLIMSOLL_SET_IF_ANY(from, to, sequence_length);
  PLIMSOLL_SET_IF_ANY(from, to, micro_batch_size);
  PLIMSOLL_SET_IF_ANY(from, to, global_batch_size);
  v1::Recompute recompute = ToProto(from.recompute);
  if (to->has_recompute() || IsSet(recompute)) to->mutable_recompute()->Swap(&recompute);
  v1::Loss loss = ToProto(from.loss);
  if (to->has_loss() || IsSet(loss)) to->mutable_loss()->Swap(&loss);
}

// What moving to another framework changes.
void SetKnobs(const RuntimeSpec& from, v1::Runtime* to) {
  PLIMSOLL_SET_OR_CLEAR(from, to, framework);
  PLIMSOLL_SET_OR_CLEAR(from, to, trainer);
  to->clear_versions();
  to->mutable_versions()->insert(from.versions.begin(), from.versions.end());
  PLIMSOLL_SET_OR_CLEAR(from, to, gradient_as_bucket_view);
  PLIMSOLL_SET_OR_CLEAR(from, to, reduce_bucket_element_count);
  PLIMSOLL_SET_OR_CLEAR(from, to, overlap_communication);
  PLIMSOLL_SET_OR_CLEAR(from, to, reshard_after_forward);
  PLIMSOLL_SET_OR_CLEAR(from, to, gradient_accumulation_fusion);
  PLIMSOLL_SET_OR_CLEAR(from, to, attention_mask);
  PLIMSOLL_SET_OR_CLEAR(from, to, compile);
  PLIMSOLL_SET_OR_CLEAR(from, to, transformer_implementation);
  PLIMSOLL_SET_OR_CLEAR(from, to, deferred_embedding_gradient_count);
}

void Encode(int field, const Change& from, WireWriter* to) {
  to->Message(field, [&] {
    to->Text(v1::Change::kFieldFieldNumber, from.field);
    to->Text(v1::Change::kFromFieldNumber, from.from);
    to->Text(v1::Change::kToFieldNumber, from.to);
  });
}

void Encode(int field, StepTerm term, double seconds, WireWriter* to) {
  to->Message(field, [&] {
    to->Number(v1::StepTermSeconds::kTermFieldNumber, EnumNumber(term));
    to->Double(v1::StepTermSeconds::kSecondsFieldNumber, seconds);
  });
}

void Encode(int field, const Settled& from, WireWriter* to) {
  to->Message(field, [&] {
    to->Text(v1::Assumption::kFieldFieldNumber, from.field);
    to->Text(v1::Assumption::kValueFieldNumber, from.value);
    to->Text(v1::Assumption::kReasonFieldNumber, from.reason);
  });
}

// `cost`: of 10^9 tokens.
void Encode(int field, const StepTime& from, double cost, WireWriter* to) {
  using Time = v1::StepTime;
  to->Message(field, [&] {
    to->Double(Time::kSecondsFieldNumber, from.seconds);
    to->Double(Time::kLowSecondsFieldNumber, from.low_seconds);
    to->Double(Time::kHighSecondsFieldNumber, from.high_seconds);
    for (size_t i = 0; i < kStepTermCount; ++i) {
      Encode(Time::kTermsFieldNumber, static_cast<StepTerm>(i), from.terms[i], to);
    }
    to->Double(Time::kTokensPerSecondFieldNumber, from.tokens_per_second);
    to->Double(Time::kModelFlopsUtilizationFieldNumber, from.model_flops_utilization);
    to->Double(Time::kGpuHoursPerBillionTokensFieldNumber, from.gpu_hours_per_billion_tokens);
    to->Double(Time::kCostPerBillionTokensFieldNumber, cost);
    to->Text(Time::kBasisFieldNumber, from.measured ? "measured" : "spec-only");
  });
}

// `job` is the request's.
void Encode(int field, const Candidate& from, const v1::Job& job, WireWriter* to) {
  to->Message(field, [&] {
    to->Bytes(v1::Candidate::kJobFieldNumber, SerializeInOrder(WithKnobsOf(from.job, job)));
    for (const Change& change : from.changes) {
      Encode(v1::Candidate::kChangesFieldNumber, change, to);
    }
    to->Number(v1::Candidate::kVerdictFieldNumber, EnumNumber(from.verdict));
    Encode(v1::Candidate::kDeviceFieldNumber, from.device, to);
    to->Number(v1::Candidate::kUsableBytesFieldNumber, from.usable_bytes);
    to->Text(v1::Candidate::kDetailFieldNumber,
             from.detail == Detail::kReplay ? "replay" : "summary");
    Encode(v1::Candidate::kStepTimeFieldNumber, from.step_time, from.cost_per_billion_tokens, to);
    to->Text(v1::Candidate::kReasonFieldNumber, from.reason);
  });
}

void Encode(int field, const Obstacle& from, const v1::Job& job, WireWriter* to) {
  to->Message(field, [&] {
    Encode(v1::Obstacle::kNearestFieldNumber, from.nearest, job, to);
    to->Number(v1::Obstacle::kMissingBytesFieldNumber, from.missing_bytes);
    to->Number(v1::Obstacle::kLargestRoleFieldNumber, EnumNumber(from.largest_role));
    to->Number(v1::Obstacle::kLargestRoleBytesFieldNumber, from.largest_role_bytes);
    for (const Candidate& remedy : from.remedies) {
      Encode(v1::Obstacle::kRemediesFieldNumber, remedy, job, to);
    }
  });
}

}  // namespace

RecommendSpec FromProto(const v1::RecommendConfigRequest& request) {
  RecommendSpec spec;
  spec.job = FromProto(request.job());
  if (request.has_risk()) spec.job.risk = request.risk();
  if (request.has_detail()) spec.job.detail = request.detail();
  spec.frozen.assign(request.frozen().begin(), request.frozen().end());
  spec.allowed_changes.assign(request.allowed_changes().begin(), request.allowed_changes().end());
  spec.gpus.assign(request.gpus().begin(), request.gpus().end());
  spec.gpu_counts.assign(request.gpu_counts().begin(), request.gpu_counts().end());
  if (request.has_objective()) spec.objective = request.objective();
  if (request.has_max_results()) spec.max_results = request.max_results();
  spec.gpu_hour_prices.insert(request.gpu_hour_prices().begin(), request.gpu_hour_prices().end());
  return spec;
}

v1::Job WithKnobsOf(const JobSpec& spec, v1::Job job) {
  v1::Training training = job.training();
  SetKnobs(spec.training, &training);
  if (job.has_training() || IsSet(training)) job.mutable_training()->Swap(&training);
  v1::Parallelism parallelism = ToProto(spec.parallelism);
  if (job.has_parallelism() || IsSet(parallelism)) job.mutable_parallelism()->Swap(&parallelism);
  v1::Runtime runtime = job.runtime();
  SetKnobs(spec.runtime, &runtime);
  if (job.has_runtime() || IsSet(runtime)) job.mutable_runtime()->Swap(&runtime);
  v1::Cluster cluster = ToProto(spec.cluster);
  if (job.has_cluster() || IsSet(cluster)) job.mutable_cluster()->Swap(&cluster);
  return job;
}

void Encode(const Recommendation& recommendation, const v1::RecommendConfigRequest& request,
            WireWriter* to) {
  using Response = v1::RecommendConfigResponse;
  const v1::Job& job = request.job();
  Encode(Response::kRequestedFieldNumber, recommendation.requested, job, to);
  for (const Candidate& candidate : recommendation.candidates) {
    Encode(Response::kCandidatesFieldNumber, candidate, job, to);
  }
  for (const Candidate& candidate : recommendation.front) {
    Encode(Response::kFrontFieldNumber, candidate, job, to);
  }
  to->Number(Response::kLegalCountFieldNumber, recommendation.legal_count);
  to->Number(Response::kEstimatedCountFieldNumber, recommendation.estimated_count);
  to->Number(Response::kFitCountFieldNumber, recommendation.fit_count);
  to->Number(Response::kTruncatedFieldNumber, recommendation.truncated);
  if (recommendation.obstacle.has_value()) {
    Encode(Response::kObstacleFieldNumber, *recommendation.obstacle, job, to);
  }
  for (const Warning& warning : recommendation.warnings) {
    Encode(Response::kWarningsFieldNumber, warning, to);
  }
  to->Text(Response::kEstimatorVersionFieldNumber, kEstimatorVersion);
  to->Text(Response::kCalibrationIdFieldNumber, recommendation.calibration_id);
  to->Text(Response::kSpeedIdFieldNumber, recommendation.speed_id);
  for (const Settled& settled : recommendation.assumptions) {
    Encode(Response::kAssumptionsFieldNumber, settled, to);
  }
}

}  // namespace plimsoll
