// What tuning by preferences runs: a row for each method.
#ifndef PLIMSOLL_ESTIMATOR_CATALOG_PREFERENCES_H_
#define PLIMSOLL_ESTIMATOR_CATALOG_PREFERENCES_H_

#include <cstdint>
#include <optional>

namespace plimsoll {

enum class PreferenceMethod : uint8_t { kDpo, kKto, kReward, kGrpo };

// Sources: trl trainer/dpo_trainer.py, kto_trainer.py, reward_trainer.py, grpo_trainer.py,
// _compute_loss and the data collators; of who runs twice kto_trainer.py, _compute_kl_logps, and
// grpo_trainer.py, _generate_and_score_completions: beside a server (use_vllm,
// vllm_importance_sampling_correction, its default) always.
struct PreferenceRow {
  PreferenceMethod method = PreferenceMethod::kDpo;
  // Sequences of a sample: a chosen and a rejected answer in one forward, or one answer.
  int8_t sequences = 2;
  bool compares = true;  // with a reference
  bool unasked = true;   // where nobody says with which
  bool scores = false;   // answers, by a head that classifies sequences
  // The policy runs forward twice, once without gradients: of answers to other prompts, or of its
  // own as they were when they were sampled.
  bool runs_twice = false;
  bool compares_twice = false;  // and so does the reference, with both
  // Answers come from the policy: a reference runs before it, with them, and dropout stays as the
  // model has it.
  bool samples = false;
};

const PreferenceRow& RowOf(PreferenceMethod method);

// Whether there is a method, and its row says so.
inline bool Says(const std::optional<PreferenceMethod>& method, bool PreferenceRow::*what) {
  return method.has_value() && RowOf(*method).*what;
}

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_CATALOG_PREFERENCES_H_
