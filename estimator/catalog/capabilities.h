// What each framework, and each trainer on top of one, can do, from which version
// on: rows, with their source. Validate refuses by them, a search draws its values
// from them, and estimator/README.md prints them. How a framework does what it can
// is its profile's (estimator/catalog/profile.h).
#ifndef PLIMSOLL_ESTIMATOR_CATALOG_CAPABILITIES_H_
#define PLIMSOLL_ESTIMATOR_CATALOG_CAPABILITIES_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "estimator/base/violation.h"
#include "estimator/catalog/profile.h"

namespace plimsoll {

// What a job may ask for that not everyone has. Those of one vocabulary are in its
// order (estimator/job/job_abilities.h).
enum class Ability : uint8_t {
  kDataParallel,  // more than one rank
  kTensorParallel,
  kSequenceParallel,
  kUlysses,
  kRing,
  kAllGather,
  kPipelineParallel,
  kShardGroups,  // smaller than all data-parallel ranks

  kZero0,
  kZero1,
  kZero2,
  kZero3,

  kGpipe,
  k1F1B,
  kInterleaved1F1B,
  kMicroBatchGroups,  // of another size than the pipeline

  kRecomputeNone,
  kRecomputeSelective,
  kRecomputePerOp,
  kRecomputeFull,
  kRecomputeEveryNth,
  kRecomputeUnits,  // of more than one layer

  kCoreAttentionAgain,
  kMlpAgain,
  kNormAgain,
  kActivationAgain,
  kUpProjectionAgain,
  kExpertsAgain,
  kSharedExpertsAgain,
  kFp8OutputsAgain,  // norms' and activations', beside products in fp8

  kOtherHead,  // than one that predicts tokens
  kLatentAttention,
  kRankNormsAlone,  // norms of ranks where queries have none
  kLinearAttention,
  kStateSpace,
  kExperts,
  kExpertParallel,
  kTokenDispatcher,

  kLora,
  kQlora,
  kDora,
  kIa3,
  kPromptTuning,
  kPTuning,
  kPrefixTuning,
  kNf4,
  kFp4,
  kInt8,
  kDpo,
  kKto,
  kReward,
  kGrpo,
  kDistillation,
  kFrozenParts,
  kPlainLoss,
  kChunkedLoss,
  kChunkedCrossEntropy,
  kFusedLoss,
  kFusedCrossEntropy,
  kTeCrossEntropy,
  kTiledLogProbs,

  kSgd,
  kSgdMomentum,
  kRmsprop,
  kAdagrad,
  kAdam,
  kAdamW,
  kLamb,
  kLion,
  kAdafactor,
  kMuon,
  kAdamW8bit,
  kLion8bit,
  kAdEMAMix,
  kAdEMAMix8bit,
  kScheduleFreeAdamW,
  kOnebitAdam,
  kZeroOneAdam,
  kOnebitLamb,
  kGaloreAdamW,
  kApolloAdamW,
  kOptimizerInBackward,
  kDealtMatrices,

  kFp32,
  kFp16Mixed,
  kBf16Mixed,
  kBf16Autocast,
  kFp16Autocast,
  kBf16Pure,
  kFp16Pure,
  kBf16Optimizer,
  kFp8Mixed,
  kFp4Mixed,
  kFp8Lm,

  kGradientAccumulationDType,
  kReduceDType,
  kGradientAsBucketView,
  kReduceBucket,
  kOverlapCommunication,
  kReshardAfterForward,
  kOffloadParameters,
  kOffloadOptimizer,
  kOffloadActivations,
  kMtp,
  kCompile,
  kGradientAccumulationFusion,
  kAttentionMask,
  kTransformerImplementation,
  kDeferredEmbeddingGradient,
  kRouterDType,
  kGroupedGemm,
  kDeterministic,
  kLigerKernel,
};
inline constexpr size_t kAbilityCount = static_cast<size_t>(Ability::kLigerKernel) + 1;

// How a job asks for an ability: a field below "job.", and the value of it; where
// that is a number or any at all, in words.
struct AbilityName {
  Ability ability;
  absl::string_view field;
  absl::string_view value;
};
extern const std::array<AbilityName, kAbilityCount> kAbilityNames;

class AbilitySet {
 public:
  constexpr AbilitySet() = default;
  constexpr AbilitySet(std::initializer_list<Ability> abilities) {
    for (const Ability ability : abilities) words_[WordOf(ability)] |= BitOf(ability);
  }
  constexpr bool Has(Ability ability) const {
    return (words_[WordOf(ability)] & BitOf(ability)) != 0;
  }
  constexpr AbilitySet operator|(const AbilitySet& other) const {
    AbilitySet both = *this;
    for (size_t i = 0; i < both.words_.size(); ++i) both.words_[i] |= other.words_[i];
    return both;
  }
  template <typename Take>
  constexpr void ForEach(Take take) const {
    for (size_t i = 0; i < words_.size(); ++i) {
      for (uint64_t left = words_[i]; left != 0; left &= left - 1) {
        take(static_cast<Ability>(i * kWordBits + static_cast<size_t>(std::countr_zero(left))));
      }
    }
  }

 private:
  static constexpr size_t kWordBits = 64;
  static constexpr size_t WordOf(Ability ability) {
    return static_cast<size_t>(ability) / kWordBits;
  }
  static constexpr uint64_t BitOf(Ability ability) {
    return uint64_t{1} << (static_cast<size_t>(ability) % kWordBits);
  }

  std::array<uint64_t, (kAbilityCount + kWordBits - 1) / kWordBits> words_{};
};

// kLacks        it cannot: NOT_SUPPORTED
// kNotModelled  it can, and no model says what that costs: NOT_MODELLED
enum class Support : uint8_t { kLacks, kNotModelled, kHas };

inline constexpr int kAnyVersion = -1;
inline constexpr int kNoVersion = 1 << 30;

// What some frameworks, or a trainer on them, can or cannot do. A framework lacks
// what no row says; a trainer has what the framework below it has, less what its
// rows say, and what they say that it has itself. Of rows about the same the last that its version
// belongs to holds.
struct CapabilityRow {
  uint16_t frameworks;  // a bit for each
  Trainer trainer;      // kNone: of the frameworks, whatever loop is on top
  Support support;
  AbilitySet what;
  int since;              // first version, of the framework's package or the trainer, as profiles
  int until;              // have it; first that it is no longer true of
  absl::string_view why;  // ends a refusal's sentence; may be empty where support is kHas
  absl::string_view source;
  bool its_own = false;  // of the trainer, not of those that are made of it
};
absl::Span<const CapabilityRow> CapabilityRows();

// What a job may ask for: its framework's and its trainer's, of its versions.
class Capabilities {
 public:
  Support Of(Ability ability) const;
  bool Has(Ability ability) const { return Of(ability) == Support::kHas; }
  // What either has.
  Capabilities operator|(const Capabilities& other) const;

  // The row that decides; null where none does: then it is lacking.
  const CapabilityRow* RowOf(Ability ability) const;

 private:
  friend Capabilities CapabilitiesOf(Framework framework, int framework_version, Trainer trainer,
                                     int trainer_version);
  friend Capabilities AllCapabilities();
  std::array<uint8_t, kAbilityCount> rows_{};  // 0: none; i: row i - 1
};

// Versions are major * 1000 + minor or, of a trainer, year * 1000 + month; -1 is the
// newest.
Capabilities CapabilitiesOf(Framework framework, int framework_version, Trainer trainer,
                            int trainer_version);

// Of a framework that is not known: nothing else wrong with a job stays hidden.
Capabilities AllCapabilities();

// The rule that asking for `ability` breaks, and its code.
//
// Requires: `capabilities` are those of `profile`, and do not have it
// Example:  "hf-trainer does not have it: it recomputes every layer whole, or none"
struct Denial {
  ViolationCode code;
  std::string rule;
  bool of_trainer = false;  // it is not the framework's
};
Denial DenialOf(const Capabilities& capabilities, Ability ability, const Profile& profile);

// "0.12" of 12, "2026.4" of 2026004.
std::string VersionText(int version);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_CATALOG_CAPABILITIES_H_
