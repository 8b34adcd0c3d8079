#include "server/admit/job_environment.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/wire/field_value.h"
#include "server/wire/json.h"
#include "server/words/change_words.h"
#include "server/words/yaml_message.h"

namespace plimsoll {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

using Variables = std::map<std::string, std::string>;

// Adds what is set in `message`, whose own name is in `prefix`.
void AddFields(const Message& message, const std::string& prefix, Variables* variables) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* const field : fields) {
    const std::string name = absl::StrCat(prefix, "_", absl::AsciiStrToUpper(field->name()));
    if (!field->is_repeated() && field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      AddFields(message.GetReflection()->GetMessage(message, field), name, variables);
    } else {
      (*variables)[name] = FieldText(message, field, ",");
    }
  }
}

}  // namespace

const v1::RankMemory& LimitingRank(const v1::EstimateMemoryResponse& answer) {
  const int64_t index = answer.limiting_rank();
  if (index < 0 || index >= answer.ranks_size()) return v1::RankMemory::default_instance();
  return answer.ranks(static_cast<int>(index));
}

v1::Job Complete(const v1::Job& job, const v1::EstimateMemoryResponse& answer) {
  v1::Job complete = job;
  for (const v1::Assumption& assumption : answer.assumptions()) {
    absl::string_view field = assumption.field();
    absl::ConsumePrefix(&field, "job.");
    const bool wanted = absl::StartsWith(field, "training.") ||
                        absl::StartsWith(field, "parallelism.") || field == "runtime.framework" ||
                        field == "cluster.gpu_count";
    if (!wanted) continue;
    v1::Job with = complete;
    YamlReader reader(std::nullopt);
    reader.Set(field, assumption.value(), "job", &with);
    // What is assumed in words that are no value, as "as the model's", stays open.
    if (reader.violations().empty()) complete = with;
  }
  v1::Parallelism& parallelism = *complete.mutable_parallelism();
  if (!parallelism.has_tensor_parallel_size()) parallelism.set_tensor_parallel_size(1);
  if (!parallelism.has_context_parallel_size()) parallelism.set_context_parallel_size(1);
  if (!parallelism.has_pipeline_parallel_size()) parallelism.set_pipeline_parallel_size(1);
  if (!parallelism.has_zero_stage()) parallelism.set_zero_stage(0);
  v1::Recompute& recompute = *complete.mutable_training()->mutable_recompute();
  if (!recompute.has_mode()) recompute.set_mode("none");
  return complete;
}

Variables JobEnvironment(const v1::Job& job, const v1::EstimateMemoryResponse& answer) {
  Variables variables;
  AddFields(job.training(), "PLIMSOLL", &variables);
  AddFields(job.parallelism(), "PLIMSOLL", &variables);
  if (job.runtime().has_framework()) variables["PLIMSOLL_FRAMEWORK"] = job.runtime().framework();
  const v1::Gauge& device = LimitingRank(answer).device();
  variables["PLIMSOLL_GPU_COUNT"] = absl::StrCat(GpuCount(job));
  variables["PLIMSOLL_PREDICTED_BYTES"] = absl::StrCat(device.expected_bytes());
  variables["PLIMSOLL_BOUND_BYTES"] = absl::StrCat(device.bound_bytes());
  variables["PLIMSOLL_USABLE_BYTES"] = absl::StrCat(answer.usable_bytes());
  return variables;
}

v1::Prediction MakePrediction(const v1::Job& job, const v1::EstimateMemoryResponse& answer) {
  const v1::RankMemory& rank = LimitingRank(answer);
  v1::Prediction prediction;
  *prediction.mutable_job() = job;
  prediction.set_verdict(answer.verdict());
  *prediction.mutable_allocated() = rank.allocated();
  *prediction.mutable_reserved() = rank.reserved();
  *prediction.mutable_device() = rank.device();
  prediction.set_usable_bytes(answer.usable_bytes());
  prediction.set_detail(answer.detail());
  prediction.set_estimator_version(answer.estimator_version());
  prediction.set_calibration_id(answer.calibration_id());
  return prediction;
}

std::string PredictionText(v1::Prediction prediction) {
  std::string text = ToShortJson(prediction);
  if (text.size() <= kMaxPredictionBytes) return text;
  prediction.clear_job();
  return ToShortJson(prediction);
}

}  // namespace plimsoll
