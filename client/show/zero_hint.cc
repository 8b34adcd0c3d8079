#include "client/show/zero_hint.h"

#include "absl/strings/str_cat.h"
#include "client/io/text.h"

namespace plimsoll {
namespace {

const v1::Gauge& DeviceOf(const v1::EstimateMemoryResponse& response) {
  return response.ranks(static_cast<int>(response.limiting_rank())).device();
}

// " of fsdp2", where the job leaves the framework open.
std::string FrameworkWords(const v1::EstimateMemoryResponse& response) {
  for (const v1::Assumption& assumption : response.assumptions()) {
    if (assumption.field() == "job.runtime.framework") {
      return absl::StrCat(" (", assumption.value(), ")");
    }
  }
  return "";
}

const char* Ending(v1::Verdict verdict) {
  switch (verdict) {
    case v1::VERDICT_FITS:
      return "it fits";
    case v1::VERDICT_AT_RISK:
      return "at risk";
    default:
      return "does not fit either; plimsoll recommend searches what does";
  }
}

}  // namespace

std::string ZeroHint(const PlannerClient& client, const v1::EstimateMemoryRequest& request,
                     const v1::EstimateMemoryResponse& response) {
  if (response.verdict() != v1::VERDICT_DOES_NOT_FIT || response.ranks().empty()) return "";
  const v1::Job& job = request.job();
  int64_t gpus = 0;
  for (const v1::RankMemory& rank : response.ranks()) gpus += rank.gpu_count();
  const bool whole = job.runtime().framework() == "ddp" || gpus == 1;
  if (whole || job.parallelism().zero_stage() > 0) return "";  // nothing that could be sharded
  v1::EstimateMemoryRequest sharded;
  *sharded.mutable_job() = request.job();
  sharded.mutable_job()->mutable_parallelism()->set_zero_stage(3);
  if (request.has_risk()) sharded.set_risk(request.risk());
  if (request.has_detail()) sharded.set_detail(request.detail());
  const absl::StatusOr<v1::EstimateMemoryResponse> answer = client.EstimateMemory(sharded);
  if (!answer.ok() || answer->ranks().empty()) return "";
  const v1::Gauge& device = DeviceOf(*answer);
  if (device.expected_bytes() >= DeviceOf(response).expected_bytes()) return "";
  return absl::StrCat("With --zero-stage 3", FrameworkWords(*answer), ": ",
                      FormatBytes(device.expected_bytes()), " of ",
                      FormatBytes(answer->usable_bytes()), " on each, bound ",
                      FormatBytes(device.bound_bytes()), "; ", Ending(answer->verdict()), "\n");
}

}  // namespace plimsoll
