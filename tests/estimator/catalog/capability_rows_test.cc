// The rows of capabilities, resolved a second way: from the last row up, the first that speaks of
// an ability and holds decides. And what each row is for: none is dead, each refusal is reached by
// a job that asks, and versions that a refusal names have what it says.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "estimator/catalog/capabilities.h"
#include "estimator/job/vocabularies.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

// Whom a question is about.
struct Who {
  Framework framework = Framework::kDdp;
  int version = kAnyVersion;
  Trainer trainer = Trainer::kNone;
  int trainer_version = kAnyVersion;

  Capabilities Have() const { return CapabilitiesOf(framework, version, trainer, trainer_version); }
};

bool HoldsAt(const CapabilityRow& row, int version) {
  if (version == kAnyVersion) return row.until == kNoVersion;
  return row.since <= version && version < row.until;
}

bool Speaks(const CapabilityRow& row, Framework framework, Ability ability) {
  const int bit = 1 << static_cast<int>(framework);
  return (row.frameworks & bit) != 0 && row.what.Has(ability);
}

// The last row that speaks of it, or null.
const CapabilityRow* LastOfFramework(const Who& who, Ability ability) {
  const absl::Span<const CapabilityRow> rows = CapabilityRows();
  for (auto row = rows.rbegin(); row != rows.rend(); ++row) {
    const bool speaks = row->trainer == Trainer::kNone && Speaks(*row, who.framework, ability);
    if (speaks && HoldsAt(*row, who.version)) return &*row;
  }
  return nullptr;
}

// TRL's trainers are hf-trainer's, of its newest release, but for what is that one's own.
const CapabilityRow* LastOfTrainer(const Who& who, Ability ability) {
  const absl::Span<const CapabilityRow> rows = CapabilityRows();
  for (auto row = rows.rbegin(); row != rows.rend(); ++row) {
    if (who.trainer == Trainer::kNone || !Speaks(*row, who.framework, ability)) continue;
    const bool below =
        who.trainer == Trainer::kTrl && row->trainer == Trainer::kHfTrainer && !row->its_own;
    if (row->trainer == who.trainer && HoldsAt(*row, who.trainer_version)) return &*row;
    if (below && HoldsAt(*row, kAnyVersion)) return &*row;
  }
  return nullptr;
}

const CapabilityRow* Decisive(const Who& who, Ability ability) {
  const CapabilityRow* const framework = LastOfFramework(who, ability);
  const CapabilityRow* const trainer = LastOfTrainer(who, ability);
  if (trainer != nullptr && trainer->support == Support::kHas) return trainer;  // its own
  if (trainer == nullptr || framework == nullptr) return framework;
  return trainer->support < framework->support ? trainer : framework;
}

// Versions at which something changes, and their neighbours; the newest; one older than all.
std::set<int> VersionsOf(Framework framework, Trainer trainer) {
  std::set<int> versions = {kAnyVersion, 0};
  const int bit = 1 << static_cast<int>(framework);
  for (const CapabilityRow& row : CapabilityRows()) {
    if (row.trainer != trainer || (row.frameworks & bit) == 0) continue;
    for (const int version : {row.since, row.until}) {
      if (version <= 0 || version == kNoVersion) continue;
      versions.insert({version - 1, version, version + 1});
    }
  }
  return versions;
}

// All versions of a framework under all of a trainer.
void AddVersions(Framework framework, Trainer trainer, std::vector<Who>& everyone) {
  for (const int version : VersionsOf(framework, Trainer::kNone)) {
    for (const int trainer_version : VersionsOf(framework, trainer)) {
      everyone.push_back({framework, version, trainer, trainer_version});
    }
  }
}

// All of whom something may be asked.
std::vector<Who> Everyone() {
  std::vector<Who> everyone;
  for (const Word<Framework>& framework : kFrameworks) {
    AddVersions(framework.value, Trainer::kNone, everyone);
    for (const Word<Trainer>& trainer : kTrainers) {
      AddVersions(framework.value, trainer.value, everyone);
    }
  }
  return everyone;
}

std::string Text(const Who& who, Ability ability) {
  const AbilityName& name = kAbilityNames[static_cast<size_t>(ability)];
  return absl::StrCat("framework ", static_cast<int>(who.framework), " ", who.version, ", trainer ",
                      static_cast<int>(who.trainer), " ", who.trainer_version, ": ", name.field,
                      " ", name.value);
}

TEST(CapabilityRowsTest, TheLastRowThatHoldsDecides) {
  for (const Who& who : Everyone()) {
    const Capabilities have = who.Have();
    for (const AbilityName& name : kAbilityNames) {
      const CapabilityRow* const row = Decisive(who, name.ability);
      ASSERT_EQ(have.RowOf(name.ability), row) << Text(who, name.ability);
      ASSERT_EQ(have.Of(name.ability), row == nullptr ? Support::kLacks : row->support);
    }
  }
}

// Rows that never decide anything could be left out; of those that have several frameworks, each of
// these needs it for something.
TEST(CapabilityRowsTest, EachRowDecidesSomethingForEachOfItsFrameworks) {
  std::set<std::pair<const CapabilityRow*, Framework>> decide;
  for (const Who& who : Everyone()) {
    const Capabilities have = who.Have();
    for (const AbilityName& name : kAbilityNames) {
      if (const CapabilityRow* const row = have.RowOf(name.ability)) {
        decide.insert({row, who.framework});
      }
    }
  }
  for (const CapabilityRow& row : CapabilityRows()) {
    bool any = false;
    for (const Word<Framework>& framework : kFrameworks) {
      any = any || decide.count({&row, framework.value}) > 0;
    }
    EXPECT_TRUE(any) << row.source;
    if (row.trainer != Trainer::kNone) continue;
    for (const Word<Framework>& framework : kFrameworks) {
      const bool has = (row.frameworks >> static_cast<unsigned>(framework.value) & 1) != 0;
      const bool decides = decide.count({&row, framework.value}) > 0;
      EXPECT_EQ(decides, has) << framework.name << ": " << row.source;
    }
  }
}

// The profile that a refusal speaks by; null where the trainer does not run on the framework.
const Profile* ProfileOf(const Who& who) {
  const Profile* const framework = FindProfile(who.framework, kAnyVersion);
  if (who.trainer == Trainer::kNone) return framework;
  return FindTrainerProfile(*framework, who.trainer, kAnyVersion);
}

// "has it from 0.12 on" is true of 0.12, and of nothing before it.
TEST(CapabilityRowsTest, VersionsThatRefusalsNameHaveIt) {
  std::set<std::string> told;
  for (const Who& who : Everyone()) {
    const Profile* const profile = ProfileOf(who);
    if (profile == nullptr) continue;
    const Capabilities have = who.Have();
    for (const AbilityName& name : kAbilityNames) {
      if (have.Has(name.ability)) continue;
      const Denial denial = DenialOf(have, name.ability, *profile);
      EXPECT_FALSE(absl::EndsWith(denial.rule, ": ")) << denial.rule;
      EXPECT_EQ(denial.code == ViolationCode::kNotModelled,
                have.Of(name.ability) == Support::kNotModelled);
      const size_t from = denial.rule.find(" has it from ");
      if (from == std::string::npos) continue;
      int major = 0;
      int minor = 0;
      ASSERT_EQ(std::sscanf(denial.rule.c_str() + from, " has it from %d.%d on", &major, &minor),
                2);
      Who later = who;
      (denial.of_trainer ? later.trainer_version : later.version) = major * 1000 + minor;
      EXPECT_NE(later.Have().Of(name.ability), Support::kLacks)
          << Text(who, name.ability) << "; " << denial.rule;
      EXPECT_EQ(have.Of(name.ability), Support::kLacks) << denial.rule;
      told.insert(absl::StrCat(denial.rule, name.value));
    }
  }
  EXPECT_GT(told.size(), 20u);
}

// The words of a refusal, of each kind.
TEST(CapabilityRowsTest, RefusalsSayWhoAndWhy) {
  struct Row {
    Who who;
    Ability ability;
    const char* rule;
    bool of_trainer;
  };
  const Row rows[] = {
      {{.framework = Framework::kNanotron},
       Ability::kInterleaved1F1B,
       "nanotron does not have it: each rank runs one stage",
       false},
      {{.framework = Framework::kMegatronLm},
       Ability::kLora,
       "is not modelled with megatron-lm: NeMo's and Megatron Bridge's adapters are their own",
       false},
      {{.framework = Framework::kDdp}, Ability::kZero3, "ddp does not have it", false},
      {{.framework = Framework::kMegatronCore, .version = 5},
       Ability::kDeferredEmbeddingGradient,
       "megatron-core has it from 0.6 on",
       false},
      {{.framework = Framework::kMegatronCore, .version = 11},
       Ability::kNormAgain,
       "megatron-core has it from 0.12 on",
       false},
      {{.framework = Framework::kFsdp2, .trainer = Trainer::kTorchtune, .trainer_version = 6},
       Ability::kChunkedLoss,
       "torchtune has it from 0.7 on",
       true},
      {{.framework = Framework::kFsdp2,
        .trainer = Trainer::kTorchtitan,
        .trainer_version = 2025009},
       Ability::kChunkedLoss,
       "torchtitan has it from 2026.4 on",
       true},
      {{.framework = Framework::kFsdp1, .trainer = Trainer::kLitgpt},
       Ability::kNf4,
       "litgpt does not have it: it quantizes on one GPU alone",
       true},
      {{.framework = Framework::kDeepSpeed, .trainer = Trainer::kTrl},
       Ability::kPipelineParallel,
       "trl does not have it: accelerate's pipeline is for inference",
       true},
      {{.framework = Framework::kDeepSpeed},
       Ability::kPipelineParallel,
       "is not modelled with deepspeed: its pipeline over Megatron's layers is megatron-deepspeed",
       false},
  };
  for (const Row& row : rows) {
    const Denial denial = DenialOf(row.who.Have(), row.ability, *ProfileOf(row.who));
    EXPECT_THAT(denial.rule, ::testing::StartsWith(row.rule));
    EXPECT_EQ(denial.of_trainer, row.of_trainer) << row.rule;
  }
}

TEST(CapabilityRowsTest, VersionsAreWrittenAsReleasesAndMonths) {
  const std::pair<int, const char*> rows[] = {{0, "0.0"},    {12, "0.12"},  {1015, "1.15"},
                                              {2006, "2.6"}, {5000, "5.0"}, {2026004, "2026.4"}};
  for (const auto& [version, text] : rows) EXPECT_EQ(VersionText(version), text);
}

AdapterSpec VirtualTokens(const char* method) {
  AdapterSpec adapter;
  adapter.method = method;
  adapter.virtual_token_count = 8;
  return adapter;
}

// How a job asks for what is no word of a vocabulary.
struct Ask {
  Ability ability;
  void (*edit)(JobSpec&);
};
constexpr Ask kAsks[] = {
    {Ability::kTensorParallel, [](JobSpec& j) { j.parallelism.tensor_parallel_size = 2; }},
    {Ability::kPipelineParallel, [](JobSpec& j) { j.parallelism.pipeline_parallel_size = 2; }},
    {Ability::kSequenceParallel,
     [](JobSpec& j) {
       j.parallelism.tensor_parallel_size = 2;
       j.parallelism.sequence_parallel = true;
     }},
    {Ability::kUlysses,
     [](JobSpec& j) {
       j.parallelism.context_parallel_size = 2;
       j.parallelism.context_parallel_method = "ulysses";
     }},
    {Ability::kRing,
     [](JobSpec& j) {
       j.parallelism.context_parallel_size = 2;
       j.parallelism.context_parallel_method = "ring";
     }},
    {Ability::kAllGather,
     [](JobSpec& j) {
       j.parallelism.context_parallel_size = 2;
       j.parallelism.context_parallel_method = "all-gather";
     }},
    {Ability::kRecomputeSelective, [](JobSpec& j) { j.training.recompute.mode = "selective"; }},
    {Ability::kRecomputePerOp, [](JobSpec& j) { j.training.recompute.mode = "per-op"; }},
    {Ability::kRecomputeEveryNth,
     [](JobSpec& j) {
       j.training.recompute.mode = "every-nth";
       j.training.recompute.interval = 2;
     }},
    {Ability::kLatentAttention,
     [](JobSpec& j) {
       Shape(j).key_value_rank = 16;
       Shape(j).kv_head_count.reset();
       Shape(j).qk_norm = "per-rank";
       Shape(j).query_rank = 16;
       Shape(j).rotary_head_size = 8;
       Shape(j).value_head_size = 16;
     }},
    {Ability::kLinearAttention, [](JobSpec& j) { Shape(j).linear_value_head_count = 4; }},
    {Ability::kExperts,
     [](JobSpec& j) {
       Shape(j).expert_count = 4;
       Shape(j).active_expert_count = 2;
       Shape(j).expert_ffn_size = 32;
     }},
    {Ability::kOtherHead, [](JobSpec& j) { Shape(j).head = "token-classification"; }},
    {Ability::kLora, [](JobSpec& j) { j.training.adapter.method = "lora"; }},
    {Ability::kDora, [](JobSpec& j) { j.training.adapter.method = "dora"; }},
    {Ability::kIa3, [](JobSpec& j) { j.training.adapter.method = "ia3"; }},
    {Ability::kPromptTuning,
     [](JobSpec& j) { j.training.adapter = VirtualTokens("prompt-tuning"); }},
    {Ability::kPTuning, [](JobSpec& j) { j.training.adapter = VirtualTokens("p-tuning"); }},
    {Ability::kPrefixTuning,
     [](JobSpec& j) { j.training.adapter = VirtualTokens("prefix-tuning"); }},
    {Ability::kDpo, [](JobSpec& j) { j.training.preference.method = "dpo"; }},
    {Ability::kReward, [](JobSpec& j) { j.training.preference.method = "reward"; }},
    {Ability::kGrpo, [](JobSpec& j) { j.training.preference.method = "grpo"; }},
    {Ability::kDistillation, [](JobSpec& j) { j.training.distillation.teacher = "llama-3.1-8b"; }},
    {Ability::kFrozenParts, [](JobSpec& j) { j.training.trained.modules = {"mlp"}; }},
    {Ability::kOptimizerInBackward, [](JobSpec& j) { j.training.optimizer.in_backward = true; }},
    {Ability::kGradientAsBucketView, [](JobSpec& j) { j.runtime.gradient_as_bucket_view = true; }},
    {Ability::kReduceBucket, [](JobSpec& j) { j.runtime.reduce_bucket_element_count = 1000000; }},
    {Ability::kOverlapCommunication, [](JobSpec& j) { j.runtime.overlap_communication = true; }},
    {Ability::kReshardAfterForward, [](JobSpec& j) { j.runtime.reshard_after_forward = true; }},
    {Ability::kOffloadParameters, [](JobSpec& j) { j.runtime.offload_parameters = true; }},
    {Ability::kOffloadOptimizer, [](JobSpec& j) { j.runtime.offload_optimizer = true; }},
    {Ability::kOffloadActivations, [](JobSpec& j) { j.runtime.offload_activations = true; }},
    {Ability::kMtp, [](JobSpec& j) { j.training.mtp_layer_count = 1; }},
    {Ability::kCompile, [](JobSpec& j) { j.runtime.compile = true; }},
    {Ability::kGradientAccumulationFusion,
     [](JobSpec& j) { j.runtime.gradient_accumulation_fusion = true; }},
    {Ability::kAttentionMask, [](JobSpec& j) { j.runtime.attention_mask = true; }},
    {Ability::kTransformerImplementation,
     [](JobSpec& j) { j.runtime.transformer_implementation = "local"; }},
    {Ability::kDeferredEmbeddingGradient,
     [](JobSpec& j) { j.runtime.deferred_embedding_gradient_count = 2; }},
    {Ability::kGroupedGemm, [](JobSpec& j) { j.runtime.grouped_gemm = true; }},
    {Ability::kDeterministic, [](JobSpec& j) { j.runtime.deterministic = true; }},
    {Ability::kLigerKernel, [](JobSpec& j) { j.runtime.liger_kernel = true; }},
};

std::vector<Violation> ViolationsOf(const JobSpec& job) {
  const auto valid = Validate(job, SmallCatalog());
  const auto* const violations = std::get_if<Violations>(&valid);
  return violations == nullptr ? Violations() : *violations;
}

// Whether some violation's rule is the refusal of an ability.
bool IsRefused(const JobSpec& job, const Denial& denial) {
  const std::vector<Violation> violations = ViolationsOf(job);
  return std::any_of(violations.begin(), violations.end(), [&](const Violation& violation) {
    const std::string other = denial.of_trainer ? "runtime.trainer" : "runtime.framework";
    return violation.rule == denial.rule && violation.code == denial.code &&
           violation.others == std::vector<std::string>{other};
  });
}

// A job on a framework, under a trainer where there is one.
JobSpec JobOf(const Word<Framework>& framework, const Word<Trainer>* trainer) {
  JobSpec job = With(SmallJob(), framework.name);
  if (trainer != nullptr) job.runtime.trainer = std::string(trainer->name);
  return job;
}

// Calls `with` for each framework alone, and with each trainer that runs on it.
void ForEachLoop(const std::function<void(const Who&, const JobSpec&)>& with) {
  for (const Word<Framework>& framework : kFrameworks) {
    with({.framework = framework.value}, JobOf(framework, nullptr));
    for (const Word<Trainer>& trainer : kTrainers) {
      const Who who = {.framework = framework.value, .trainer = trainer.value};
      if (ProfileOf(who) != nullptr) with(who, JobOf(framework, &trainer));
    }
  }
}

// Whoever lacks it refuses it in its own words; whoever has it does not.
void ExpectAsked(const Who& who, const JobSpec& asking, Ability ability) {
  const Capabilities have = who.Have();
  const bool has = have.Has(ability);
  if (!has) {
    EXPECT_TRUE(IsRefused(asking, DenialOf(have, ability, *ProfileOf(who))))
        << Text(who, ability) << "\n"
        << DenialOf(have, ability, *ProfileOf(who)).rule << "\n"
        << ToText(ViolationsOf(asking));
    return;
  }
  for (const Violation& violation : ViolationsOf(asking)) {
    EXPECT_FALSE(absl::StrContains(violation.rule, "does not have it") &&
                 violation.field ==
                     absl::StrCat("job.", kAbilityNames[static_cast<size_t>(ability)].field))
        << Text(who, ability) << "\n"
        << ToText(violation);
  }
}

TEST(CapabilityRowsTest, WhatIsAskedForIsRefusedWhereItIsLacking) {
  ForEachLoop([](const Who& who, const JobSpec& job) {
    for (const Ask& ask : kAsks) {
      JobSpec asking = job;
      ask.edit(asking);
      ExpectAsked(who, asking, ask.ability);
    }
  });
}

// Words of vocabularies, each of which is an ability of its own.
void AskWith(absl::string_view field, absl::string_view word, JobSpec& job) {
  const std::string value(word);
  if (field == "training.optimizer.name") job.training.optimizer.name = value;
  if (field == "training.precision.preset") job.training.precision.preset = value;
  if (field == "training.loss.implementation") job.training.loss.implementation = value;
  if (field == "training.recompute.modules") {
    job.training.recompute.mode = "selective";
    job.training.recompute.modules = {value};
  }
}

TEST(CapabilityRowsTest, WordsAreRefusedWhereTheyAreLacking) {
  ForEachLoop([](const Who& who, const JobSpec& job) {
    for (const AbilityName& name : kAbilityNames) {
      const absl::string_view field = name.field;
      if (field != "training.optimizer.name" && field != "training.precision.preset" &&
          field != "training.loss.implementation" && field != "training.recompute.modules") {
        continue;
      }
      const bool module = field == "training.recompute.modules";
      if (module && !who.Have().Has(Ability::kRecomputeSelective)) continue;  // the mode is refused
      JobSpec asking = job;
      AskWith(field, name.value, asking);
      ExpectAsked(who, asking, name.ability);
    }
  });
}

}  // namespace
}  // namespace plimsoll
