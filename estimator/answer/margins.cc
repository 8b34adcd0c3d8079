#include "estimator/answer/margins.h"

#include <algorithm>
#include <cmath>

#include "estimator/base/units.h"
#include "estimator/job/job.h"

namespace plimsoll {
namespace {

// The one-sided normal quantile of 1 - risk. Source: Abramowitz and Stegun
// 1964, 26.2.23; its error is below 4.5e-4.
double Quantile(double risk) {
  const double t = std::sqrt(-2.0 * std::log(risk));
  const double above = 2.515517 + t * (0.802853 + t * 0.010328);
  const double below = 1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308));
  return t - above / below;
}

// Whether a phantom's rows tell of the job. They are of layers run as they are written, on ranks
// that share out their data, weights, gradients and states; of what a phantom held nothing but a
// GPU tells.
bool RanAsOnPhantoms(const Job& job) {
  return !job.profiled.has_value() && job.tensor_parallel_size == 1 &&
         job.context_parallel_size == 1 && job.pipeline_parallel_size == 1 &&
         job.expert_parallel_size == 1 && !job.compile && !job.resumed_from_checkpoint &&
         !job.offload_parameters && !job.offload_optimizer &&
         (job.zero_stage == 0 || job.shard_group_size == job.data_parallel_size);
}

// How many fields of the job a row names, or -1 where it names another.
int Specificity(const CalibrationRow& row, const Job& job, bool measured) {
  if (row.phantom && !(measured && RanAsOnPhantoms(job))) return -1;
  int named = 0;
  const auto agrees = [&named](const auto& field, auto value) {
    if (field.has_value()) ++named;
    return !field.has_value() || *field == value;
  };
  if (row.framework.has_value() && !measured) return -1;
  if (!agrees(row.framework, job.profile->framework)) return -1;
  if (!agrees(row.trainer, job.profile->trainer)) return -1;
  if (!agrees(row.tensor_parallel, job.tensor_parallel_size > 1)) return -1;
  if (!agrees(row.expandable_segments, job.allocator.expandable_segments)) return -1;
  return named;
}

// Where a risk lies: so far on the way from one risk of the table to another, and by which factor
// beyond.
struct Position {
  size_t from = 0;
  size_t to = 0;
  double way = 0;
  double factor = 1;
};

Position Locate(const std::vector<double>& risks, double risk) {
  if (risk >= risks.front()) return {};
  for (size_t i = 1; i < risks.size(); ++i) {
    if (risk < risks[i]) continue;
    return {i - 1, i, std::log(risk / risks[i - 1]) / std::log(risks[i] / risks[i - 1]), 1};
  }
  const size_t last = risks.size() - 1;
  return {last, last, 0, Quantile(risk) / Quantile(risks.back())};
}

double ShareAt(const std::vector<double>& shares, const Position& place) {
  return (shares[place.from] + place.way * (shares[place.to] - shares[place.from])) * place.factor;
}

}  // namespace

Margins MarginsOf(const Calibration& calibration, const Job& job, Detail detail) {
  Margins margins;
  const std::vector<std::string>& gpus = calibration.gpus;
  margins.gpu_measured =
      job.gpu != nullptr && std::find(gpus.begin(), gpus.end(), job.gpu->id) != gpus.end();
  margins.framework_measured = std::any_of(
      calibration.rows.begin(), calibration.rows.end(),
      [&job](const auto& row) { return !row.phantom && row.framework == job.profile->framework; });
  margins.experts_measured =
      !job.profile->dispatches_experts || job.model == nullptr || !job.model->experts.Any();
  const bool measured = margins.Measured();
  const CalibrationRow* rows[] = {nullptr, nullptr, nullptr, nullptr};
  int best[] = {-1, -1, -1, -1};
  for (const CalibrationRow& row : calibration.rows) {
    if (row.detail != detail && row.gauge != CalibratedGauge::kCapacity) continue;
    const auto gauge = static_cast<size_t>(row.gauge);
    const int named = Specificity(row, job, measured);
    if (named <= best[gauge]) continue;
    best[gauge] = named;
    rows[gauge] = &row;
  }
  const auto by_phantom = [&rows](CalibratedGauge gauge) {
    const CalibrationRow* const row = rows[static_cast<size_t>(gauge)];
    return row != nullptr && row->phantom;
  };
  margins.by_phantom =
      by_phantom(CalibratedGauge::kAllocated) || by_phantom(CalibratedGauge::kReserved);
  if (calibration.risks.empty()) return margins;
  const Position place = Locate(calibration.risks, job.risk);
  const auto share = [&](CalibratedGauge gauge) {
    const CalibrationRow* const row = rows[static_cast<size_t>(gauge)];
    return row == nullptr ? 0 : ShareAt(row->shares, place);
  };
  margins.allocated = share(CalibratedGauge::kAllocated);
  margins.reserved = share(CalibratedGauge::kReserved);
  margins.device = share(CalibratedGauge::kDevice);
  margins.capacity = share(CalibratedGauge::kCapacity);
  return margins;
}

int64_t Above(int64_t bytes, double share) {
  const double margin = static_cast<double>(bytes) * share;
  constexpr double kMost = 4e18;
  return Add(bytes, margin >= kMost ? kSaturated : static_cast<int64_t>(margin));
}

}  // namespace plimsoll
