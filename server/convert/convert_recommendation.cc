#include "server/convert/convert_recommendation.h"

#include <string>
#include <utility>

#include "server/convert/convert.h"
#include "server/convert/convert_job.h"
#include "server/wire/ordered_bytes.h"

namespace plimsoll {
namespace {

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
    to->Bytes(v1::Candidate::kJobFieldNumber, SerializeInOrder(WithFieldsOf(from.job, job)));
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
