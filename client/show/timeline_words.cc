#include "client/show/timeline_words.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/io/text.h"
#include "client/show/role_style.h"

namespace plimsoll {
namespace {

std::string ModelName(const v1::EstimateMemoryResponse& response, const v1::Model& model) {
  if (model.has_name()) return model.name();
  std::string size = absl::StrCat(FormatCount(response.parameter_count()), " parameters");
  const auto& config = model.hf_config().fields();
  const auto type = config.find("model_type");
  if (type == config.end() || type->second.string_value().empty()) return size;
  return absl::StrCat(type->second.string_value(), ", ", size);
}

std::string WhichGpu(const v1::EstimateMemoryResponse& response) {
  const v1::RankMemory& rank = response.ranks(static_cast<int>(response.limiting_rank()));
  if (response.ranks_size() == 1) return "each GPU";
  return absl::StrCat("a GPU of pipeline stage ", rank.pipeline_stage(), " of ",
                      response.ranks_size(), ", the fullest");
}

}  // namespace

std::string JobTitle(const v1::EstimateMemoryResponse& response, const v1::Job& job) {
  int64_t gpus = 0;
  for (const v1::RankMemory& rank : response.ranks()) gpus += rank.gpu_count();
  const std::string gpu =
      job.cluster().has_gpu()
          ? job.cluster().gpu()
          : absl::StrCat("GPU with ", FormatBytes(response.usable_bytes()), " to use");
  return absl::StrCat(ModelName(response, job.model()), " on ", gpus, " × ", gpu);
}

std::vector<std::string> TimelineNotes(const v1::EstimateMemoryResponse& response) {
  const v1::RankMemory& rank = response.ranks(static_cast<int>(response.limiting_rank()));
  const v1::Timeline& timeline = response.timeline();
  const v1::TimelinePoint& peak = PeakPoint(timeline);
  const int64_t outside = rank.device().expected_bytes() - rank.reserved().expected_bytes();
  std::vector<std::string> notes = {
      absl::StrCat("Expected ", FormatBytes(rank.device().expected_bytes()), " of ",
                   FormatBytes(response.usable_bytes()), ", upper bound ",
                   FormatBytes(rank.device().bound_bytes()), ": what the allocator reserves and ",
                   FormatBytes(outside), " of CUDA context and NCCL beside it."),
      absl::StrCat("One steady training step of ", WhichGpu(response), ": tensors peak at ",
                   FormatBytes(peak.allocated_bytes()), " in ", PhaseName(peak.phase()), ".")};
  if (timeline.drawn_micro_batch_count() < timeline.micro_batch_count()) {
    notes.push_back(absl::StrCat("Of the step's ", timeline.micro_batch_count(), " micro-batches ",
                                 timeline.drawn_micro_batch_count(),
                                 " are drawn: the others repeat them."));
  }
  if (!timeline.completed()) {
    notes.push_back("The step fails on this GPU: it is drawn as if the GPU had no end.");
  }
  int64_t first = 0;
  for (const v1::Moment& moment : rank.moments()) {
    if (moment.first_step()) first = std::max(first, moment.peak_allocated_bytes());
  }
  if (first > peak.allocated_bytes()) {
    notes.push_back(absl::StrCat("The first step, which is not drawn, peaks higher: at ",
                                 FormatBytes(first), "."));
  }
  return notes;
}

std::string StorageOwners(const v1::PeakStorage& storage) {
  std::string text;
  const auto add = [&text](const char* one, const std::string& which) {
    if (which.empty()) return;
    const bool many = which.find_first_of("-,") != std::string::npos;
    const std::string plural = absl::EndsWith(one, "batch") ? "es " : "s ";
    absl::StrAppend(&text, text.empty() ? "" : ", ", one, many ? plural : " ", which);
  };
  add("layer", storage.layers());
  add("micro-batch", storage.micro_batches());
  return text;
}

const v1::TimelinePoint& PeakPoint(const v1::Timeline& timeline) {
  return timeline.points(static_cast<int>(timeline.peak_point()));
}

}  // namespace plimsoll
