// Who can do what: the rows against the vocabularies that they speak of, against what
// Validate refuses, and against the page that prints them.
//
//   UPDATE_GOLDENS=1 capabilities_test    rewrites the page's table
#include "estimator/catalog/capabilities.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "estimator/job/job_abilities.h"
#include "estimator/job/vocabularies.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"
#include "tests/testing/refusals.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Capabilities Of(Framework framework, int version = kAnyVersion) {
  return CapabilitiesOf(framework, version, Trainer::kNone, kAnyVersion);
}
Capabilities Of(Framework framework, Trainer trainer, int version = kAnyVersion) {
  return CapabilitiesOf(framework, kAnyVersion, trainer, version);
}

const AbilityName& NameOf(Ability ability) { return kAbilityNames[static_cast<size_t>(ability)]; }

TEST(CapabilitiesTest, NamesAreInTheOrderOfAbilities) {
  for (size_t i = 0; i < kAbilityCount; ++i) {
    EXPECT_EQ(static_cast<size_t>(kAbilityNames[i].ability), i) << kAbilityNames[i].value;
  }
}

template <typename Value, size_t kCount, typename AbilityOfValue>
void ExpectNamed(absl::string_view field, const Word<Value> (&words)[kCount],
                 const AbilityOfValue& ability_of) {
  std::vector<absl::string_view> named;
  for (const AbilityName& name : kAbilityNames) {
    if (name.field == field) named.push_back(name.value);
  }
  EXPECT_EQ(named.size(), kCount) << field;
  for (const Word<Value>& word : words) {
    const AbilityName& name = NameOf(ability_of(word.value));
    EXPECT_EQ(name.field, field) << word.name;
    EXPECT_EQ(name.value, word.name);
  }
}

// A word that is added to a vocabulary asks for an ability of its own.
TEST(CapabilitiesTest, EachWordIsAnAbility) {
  const auto of = [](auto value) { return AbilityOf(value); };
  ExpectNamed("parallelism.pipeline_schedule", kPipelineSchedules, of);
  ExpectNamed("parallelism.context_parallel_method", kContextParallelMethods, of);
  ExpectNamed("training.recompute.mode", kRecomputeModes, of);
  ExpectNamed("training.recompute.modules", kRecomputeModules, of);
  ExpectNamed("training.loss.implementation", kLossImplementations, of);
  ExpectNamed("training.optimizer.name", kOptimizers, of);
  ExpectNamed("training.precision.preset", kPresets,
              [](const Preset& preset) { return AbilityOf(preset.name); });
}

TEST(CapabilitiesTest, EachRowSaysWhereItIsFrom) {
  for (const CapabilityRow& row : CapabilityRows()) {
    EXPECT_FALSE(row.source.empty());
    EXPECT_NE(row.frameworks, 0);
    EXPECT_LT(row.since, row.until) << row.source;
    const bool dated = row.since > 0 || row.until != kNoVersion;
    EXPECT_TRUE(row.support == Support::kHas || dated || !row.why.empty()) << row.source;
  }
}

// What transformers' Trainer lacks TRL's lack too, but for what is TRL's own.
TEST(CapabilitiesTest, TrlIsMadeOfHfTrainer) {
  const Capabilities trl = Of(Framework::kFsdp2, Trainer::kTrl);
  for (const Ability ability :
       {Ability::kPipelineParallel, Ability::kRecomputeSelective, Ability::kChunkedLoss}) {
    EXPECT_FALSE(trl.Has(ability)) << static_cast<int>(ability);
  }
  for (const Ability ability : {Ability::kTiledLogProbs, Ability::kDpo, Ability::kReward}) {
    EXPECT_TRUE(trl.Has(ability)) << static_cast<int>(ability);
    EXPECT_FALSE(Of(Framework::kFsdp2, Trainer::kHfTrainer).Has(ability));
  }
}

// FSDP2 has an optimizer of bitsandbytes alone no more than its kernels take DTensors.
TEST(CapabilitiesTest, Fsdp2HasNoOptimizerThatIsOfBitsandbytesAlone) {
  for (const Word<OptimizerName>& word : kOptimizers) {
    const OptimizerRow& row = RowOf(word.value);
    const bool fused_alone =
        !row.Has(OptimizerImplementation::kForLoop) && !row.Has(OptimizerImplementation::kForeach);
    const bool alone = row.fused_is_bitsandbytes && fused_alone;
    const bool has = Of(Framework::kFsdp2).Has(AbilityOf(word.value));
    EXPECT_FALSE(alone && has) << word.name;
    const bool elsewhere = row.compresses || row.picks == Picks::kTargets;
    EXPECT_TRUE(alone || has || elsewhere || word.value == OptimizerName::kAdafactor) << word.name;
  }
}

// A refusal that a trainer's row makes must be about what runs below it; what it has itself, about
// what does not.
TEST(CapabilitiesTest, TrainersRestrictFrameworksThatTheyRunOn) {
  for (const CapabilityRow& row : CapabilityRows()) {
    if (row.trainer == Trainer::kNone) continue;
    bool restricts = false;
    for (const Word<Framework>& framework : kFrameworks) {
      const unsigned bit = static_cast<unsigned>(framework.value);
      if ((row.frameworks >> bit & 1) == 0) continue;
      for (const AbilityName& name : kAbilityNames) {
        const bool has = Of(framework.value).Has(name.ability);
        const bool own = row.support == Support::kHas;
        restricts = restricts || (has != own && row.what.Has(name.ability));
      }
    }
    EXPECT_TRUE(restricts) << row.source;
  }
}

// No word of the API is for nobody.
TEST(CapabilitiesTest, EachAbilityIsSomebodys) {
  std::vector<absl::string_view> nobodys;
  for (const AbilityName& name : kAbilityNames) {
    if (!AllCapabilities().Has(name.ability)) nobodys.push_back(name.value);
  }
  EXPECT_THAT(nobodys, IsEmpty());
}

TEST(CapabilitiesTest, VersionsBeginAndEndIt) {
  EXPECT_FALSE(Of(Framework::kMegatronCore, 11).Has(Ability::kMlpAgain));
  EXPECT_TRUE(Of(Framework::kMegatronCore, 12).Has(Ability::kMlpAgain));
  EXPECT_TRUE(Of(Framework::kMegatronCore).Has(Ability::kMlpAgain));
  const auto titan = [](int version) {
    return Of(Framework::kFsdp2, Trainer::kTorchtitan, version);
  };
  EXPECT_TRUE(titan(2025008).Has(Ability::kRecomputeEveryNth));
  EXPECT_TRUE(titan(2).Has(Ability::kRecomputeEveryNth)) << "release 0.2";
  EXPECT_FALSE(titan(2026004).Has(Ability::kRecomputeEveryNth));
  EXPECT_FALSE(titan(kAnyVersion).Has(Ability::kRecomputeEveryNth));
  EXPECT_EQ(Of(Framework::kFsdp2, Trainer::kHfTrainer, 4049).Of(Ability::kTensorParallel),
            Support::kLacks);
  EXPECT_EQ(Of(Framework::kFsdp2, Trainer::kHfTrainer).Of(Ability::kTensorParallel),
            Support::kNotModelled);
}

// A trainer never has what the framework below it lacks, but for what a row says that it has
// itself.
TEST(CapabilitiesTest, ATrainerAddsNothingButItsOwn) {
  for (const Word<Framework>& framework : kFrameworks) {
    for (const Word<Trainer>& trainer : kTrainers) {
      for (const AbilityName& name : kAbilityNames) {
        const Capabilities of_trainer = Of(framework.value, trainer.value);
        const CapabilityRow* const row = of_trainer.RowOf(name.ability);
        const bool own = row != nullptr && row->trainer != Trainer::kNone;
        if (own && row->support == Support::kHas) continue;
        EXPECT_LE(Of(framework.value, trainer.value).Of(name.ability),
                  Of(framework.value).Of(name.ability))
            << framework.name << " " << trainer.name << " " << name.value;
      }
    }
  }
}

TEST(CapabilitiesTest, TorchtitanSendsTokensByItself) {
  const auto support = [](int month) {
    return CapabilitiesOf(Framework::kFsdp2, kAnyVersion, Trainer::kTorchtitan, month)
        .Of(Ability::kExpertParallel);
  };
  EXPECT_EQ(Of(Framework::kFsdp2).Of(Ability::kExpertParallel), Support::kNotModelled);
  EXPECT_EQ(support(2026006), Support::kNotModelled);
  EXPECT_EQ(support(2026007), Support::kHas);
  EXPECT_EQ(Of(Framework::kFsdp1, Trainer::kTorchtitan).Of(Ability::kExperts), Support::kLacks);
}

TEST(CapabilitiesTest, EitherHasWhatOneHas) {
  const Capabilities both = Of(Framework::kDdp) | Of(Framework::kFsdp2);
  for (const AbilityName& name : kAbilityNames) {
    EXPECT_EQ(both.Of(name.ability), std::max(Of(Framework::kDdp).Of(name.ability),
                                              Of(Framework::kFsdp2).Of(name.ability)))
        << name.value;
  }
}

JobSpec Under(const char* framework, const char* trainer, const char* version = nullptr) {
  JobSpec job = With(SmallJob(), framework);
  job.parallelism.data_parallel_size = 4;
  job.cluster.gpu_count.reset();
  job.runtime.trainer = trainer;
  if (version != nullptr) job.runtime.versions[trainer] = version;
  return job;
}

void Mode(JobSpec& job, const char* mode) {
  job.training.recompute = RecomputeSpec();
  job.training.recompute.mode = mode;
  if (job.training.recompute.mode == "every-nth") job.training.recompute.interval = 2;
}

// What `recommend` offered though nothing runs it.
TEST(CapabilitiesTest, HuggingFacesTrainerIsRefusedWhatItLacks) {
  constexpr char kLayers[] =
      "hf-trainer does not have it: its gradient checkpointing runs each layer again, whole";
  ExpectRefusals(
      Under("fsdp2", "hf-trainer"),
      {{"pipeline",
        [](JobSpec& job) { job.parallelism.pipeline_parallel_size = 2; },
        {"job.parallelism.pipeline_parallel_size: 2; hf-trainer does not have it: accelerate's "
         "pipeline is for inference"}},
       {"tensor",
        [](JobSpec& job) { job.parallelism.tensor_parallel_size = 2; },
        {"job.parallelism.tensor_parallel_size: 2; is not modelled with hf-trainer: a model's "
         "tp_plan splits it in its own way"}},
       {"per-op",
        [](JobSpec& job) { Mode(job, "per-op"); },
        {absl::StrCat("job.training.recompute.mode: per-op; ", kLayers)}},
       {"every n-th",
        [](JobSpec& job) { Mode(job, "every-nth"); },
        {absl::StrCat("job.training.recompute.mode: every-nth; ", kLayers)}},
       {"selective",
        [](JobSpec& job) { Mode(job, "selective"); },
        {absl::StrCat("job.training.recompute.mode: selective; ", kLayers)}},
       {"full", [](JobSpec& job) { Mode(job, "full"); }, {}},
       {"Liger's loss", [](JobSpec& job) { job.training.loss.implementation = "fused"; }, {}},
       {"an old one",
        [](JobSpec& job) {
          job.training.loss.implementation = "fused";
          job.runtime.versions["hf-trainer"] = "4.44";
        },
        {"job.training.loss.implementation: fused; hf-trainer has it from 4.45 on"}}});
}

TEST(CapabilitiesTest, DeepSpeedIsRefusedRecomputationByOperation) {
  JobSpec job = With(SmallJob(), "deepspeed");
  Mode(job, "per-op");
  EXPECT_THAT(Refusals(job),
              ElementsAre("job.training.recompute.mode: per-op; deepspeed does not have it: its "
                          "checkpoint function takes no policy"));
}

TEST(CapabilitiesTest, OtherTrainersAreRefusedWhatTheyLack) {
  struct Case {
    const char* framework;
    const char* trainer;
    const char* mode;
    bool refused;
  };
  for (const Case& one :
       {Case{"fsdp2", "torchtitan", "per-op", false},
        Case{"fsdp2", "torchtitan", "selective", true},
        Case{"fsdp2", "torchtune", "every-nth", false}, Case{"fsdp2", "torchtune", "per-op", true},
        Case{"fsdp1", "litgpt", "full", false}, Case{"fsdp1", "litgpt", "every-nth", true}}) {
    JobSpec job = Under(one.framework, one.trainer);
    Mode(job, one.mode);
    EXPECT_EQ(!Refusals(job).empty(), one.refused) << one.trainer << " " << one.mode;
  }
}

ViolationCode CodeOf(const JobSpec& job) {
  const auto validated = Validate(job, SmallCatalog());
  const auto* const violations = std::get_if<Violations>(&validated);
  return violations == nullptr ? ViolationCode::kInvalidValue : violations->front().code;
}

// What nobody can do is told apart from what nobody has modelled.
TEST(CapabilitiesTest, CodesTellLackingFromNotModelled) {
  JobSpec job = Under("fsdp2", "hf-trainer");
  job.parallelism.tensor_parallel_size = 2;
  EXPECT_EQ(CodeOf(job), ViolationCode::kNotModelled);
  job.parallelism.tensor_parallel_size.reset();
  job.parallelism.pipeline_parallel_size = 2;
  EXPECT_EQ(CodeOf(job), ViolationCode::kNotSupported);
  JobSpec core = With(SmallJob(), "megatron-core");
  core.training.optimizer.name = "muon";
  core.parallelism.zero_stage = 1;
  EXPECT_EQ(CodeOf(core), ViolationCode::kNotModelled);
  core.training.optimizer.name = "lamb";
  EXPECT_EQ(CodeOf(core), ViolationCode::kNotSupported);
}

// Transformer Engine has no norm of its own to run again.
TEST(CapabilitiesTest, NormsAreRecomputedOutsideTransformerEngine) {
  JobSpec job = With(SmallJob(), "megatron-core");
  Mode(job, "selective");
  job.training.recompute.modules = {"norm"};
  EXPECT_THAT(Refusals(job),
              ElementsAre("job.training.recompute.modules: norm; needs transformer_implementation "
                          "local, experts or latent attention: Transformer Engine's norm is one "
                          "operation with the product behind it"));
  job.runtime.transformer_implementation = "local";
  EXPECT_THAT(Refusals(job), IsEmpty());
}

// The page's table.

std::vector<std::string> FrameworksOf(uint16_t bits) {
  std::vector<std::string> names;
  for (const Word<Framework>& framework : kFrameworks) {
    if ((bits >> static_cast<unsigned>(framework.value) & 1) != 0) {
      names.emplace_back(framework.name);
    }
  }
  return names;
}

std::string WhoOf(const CapabilityRow& row) {
  std::vector<std::string> names = FrameworksOf(row.frameworks);
  if (row.trainer == Trainer::kNone) {
    return names.size() == std::size(kFrameworks) ? "all" : absl::StrJoin(names, ", ");
  }
  std::string trainer;
  std::set<std::string> runs_on;
  for (const TrainerEra& era : TrainerEras()) {
    if (era.trainer != row.trainer) continue;
    trainer = std::string(era.name);
    for (const std::string& name : FrameworksOf(era.frameworks)) runs_on.insert(name);
  }
  const auto runs = [&](const std::string& name) { return runs_on.count(name) == 0; };
  names.erase(std::remove_if(names.begin(), names.end(), runs), names.end());
  return names.size() == runs_on.size() ? trainer
                                        : absl::StrCat(trainer, " on ", absl::StrJoin(names, ", "));
}

bool IsVocabulary(absl::string_view field) {
  return std::count_if(kAbilityNames.begin(), kAbilityNames.end(),
                       [&](const AbilityName& name) { return name.field == field; }) > 1;
}

std::string WhatOf(const CapabilityRow& row) {
  std::vector<std::string> fields;
  absl::string_view last;
  for (const AbilityName& name : kAbilityNames) {
    if (!row.what.Has(name.ability)) continue;
    if (name.field == last) {
      absl::StrAppend(&fields.back(), ", ", name.value);
      continue;
    }
    last = name.field;
    const absl::string_view below = last.substr(last.find('.') + 1);
    fields.push_back(IsVocabulary(last) ? absl::StrCat("`", below, "` ", name.value)
                                        : absl::StrCat("`", below, "`"));
  }
  return absl::StrJoin(fields, "; ");
}

std::string VersionsOf(const CapabilityRow& row) {
  std::string text = row.since > 0 ? absl::StrCat("from ", VersionText(row.since)) : "";
  if (row.since > 0 && row.until != kNoVersion) absl::StrAppend(&text, ", ");
  if (row.until != kNoVersion) absl::StrAppend(&text, "before ", VersionText(row.until));
  return text.empty() ? "all" : text;
}

std::string TableOfRows() {
  constexpr const char* kSupports[] = {"lacks", "not modelled", "has"};
  std::string table =
      "| who | | what | versions | because | source |\n| --- | --- | --- | --- | --- | --- |\n";
  for (const CapabilityRow& row : CapabilityRows()) {
    absl::StrAppend(&table, "| ", WhoOf(row), " | ", kSupports[static_cast<size_t>(row.support)],
                    " | ", WhatOf(row), " | ", VersionsOf(row), " | ", row.why, " | ", row.source,
                    " |\n");
  }
  return table;
}

TEST(CapabilitiesTest, ThePagePrintsTheRows) {
  constexpr char kBegin[] = "<!-- capabilities:begin -->\n";
  constexpr char kEnd[] = "<!-- capabilities:end -->";
  std::stringstream text;
  text << std::ifstream(PLIMSOLL_CAPABILITIES_PAGE, std::ios::binary).rdbuf();
  std::string page = text.str();
  const size_t begin = page.find(kBegin);
  const size_t end = page.find(kEnd);
  ASSERT_TRUE(begin != std::string::npos && end != std::string::npos);
  const size_t from = begin + sizeof(kBegin) - 1;
  const std::string table = TableOfRows();
  if (std::getenv("UPDATE_GOLDENS") != nullptr) {
    page.replace(from, end - from, table);
    std::ofstream(PLIMSOLL_CAPABILITIES_PAGE, std::ios::binary) << page;
    return;
  }
  EXPECT_EQ(page.substr(from, end - from), table) << "UPDATE_GOLDENS=1 rewrites it";
}

}  // namespace
}  // namespace plimsoll
