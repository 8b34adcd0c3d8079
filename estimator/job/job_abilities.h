// Which ability each value of a job's vocabularies asks for.
#ifndef PLIMSOLL_ESTIMATOR_JOB_JOB_ABILITIES_H_
#define PLIMSOLL_ESTIMATOR_JOB_JOB_ABILITIES_H_

#include <cstdint>

#include "estimator/catalog/capabilities.h"
#include "estimator/job/job.h"

namespace plimsoll {

// The ability of a value whose vocabulary's first has `first`.
template <typename Value>
constexpr Ability AbilityAfter(Ability first, Value value) {
  return static_cast<Ability>(static_cast<int>(first) + static_cast<int>(value));
}

constexpr Ability AbilityOfZero(int64_t stage) { return AbilityAfter(Ability::kZero0, stage); }
constexpr Ability AbilityOf(PipelineSchedule schedule) {
  return AbilityAfter(Ability::kGpipe, schedule);
}
constexpr Ability AbilityOf(ContextParallelMethod method) {
  return AbilityAfter(Ability::kUlysses, method);
}
constexpr Ability AbilityOf(RecomputeMode mode) {
  return AbilityAfter(Ability::kRecomputeNone, mode);
}
constexpr Ability AbilityOf(RecomputeModule module) {
  return AbilityAfter(Ability::kCoreAttentionAgain, module);
}
constexpr Ability AbilityOf(AdapterMethod method) { return AbilityAfter(Ability::kLora, method); }
constexpr Ability AbilityOf(QuantizationFormat format) {
  return AbilityAfter(Ability::kNf4, format);
}
constexpr Ability AbilityOf(PreferenceMethod method) { return AbilityAfter(Ability::kDpo, method); }
constexpr Ability AbilityOf(LossImplementation loss) {
  return AbilityAfter(Ability::kPlainLoss, loss);
}
constexpr Ability AbilityOf(OptimizerName optimizer) {
  return AbilityAfter(Ability::kSgd, optimizer);
}
constexpr Ability AbilityOf(PresetName preset) { return AbilityAfter(Ability::kFp32, preset); }

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_JOB_JOB_ABILITIES_H_
