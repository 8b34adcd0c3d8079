// Refuses what nothing was held against that stands beside a section of training: adapters, pairs.
#ifndef PLIMSOLL_ESTIMATOR_JOB_BESIDE_H_
#define PLIMSOLL_ESTIMATOR_JOB_BESIDE_H_

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "estimator/job/check.h"
#include "estimator/job/job.h"

namespace plimsoll {

// Its rule is "is not modelled with <what>"; `method` is the field that asks for that.
class Beside {
 public:
  Beside(absl::string_view what, absl::string_view method, Check& check)
      : what_(what), method_(method), check_(check) {}

  void Refuse(bool is, absl::string_view field, absl::string_view value) const;
  void Refuse(bool is, absl::string_view field, int64_t value) const {
    Refuse(is, field, absl::StrCat(value));
  }
  // Matrices, sequences and layers that ranks split between them.
  void RefuseSplits(const Job& job) const;
  // Adapters and preference tuning.
  void RefuseTuning(const TrainingSpec& spec, const Job& job) const;
  // Recomputation but of every layer, whole and one at a time.
  void RefusePartsAgain(const RecomputeSpec& spec, const Job& job) const;
  // Layers that are not Llama's, but for norms of queries' and keys' heads, and their MLPs.
  void RefuseOtherLayers(const Transformer& model) const;
  // Models whose embeddings are not as wide as their layers.
  void RefuseOtherWidths(const Transformer& model) const;
  // These, and those that predict no tokens.
  void RefuseOtherModels(const Transformer& model) const;

 private:
  absl::string_view what_;
  absl::string_view method_;
  Check& check_;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_JOB_BESIDE_H_
