// What would help where nothing fits: each remedy is tried on a job that lacks just that.
#include "estimator/search/remedies.h"

#include "estimator/search/next_framework.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

bool Never(double) { return false; }

std::vector<Candidate> RemediesOf(const RecommendSpec& spec) {
  const auto found = RecommendConfig(spec, SmallCatalog(), Never);
  const auto* const answer = std::get_if<Recommendation>(&found);
  if (answer == nullptr || !answer->obstacle.has_value()) return {};
  return answer->obstacle->remedies;
}

// The field that each gives up, in their order.
std::vector<std::string> GivenUp(const std::vector<Candidate>& remedies) {
  std::vector<std::string> fields;
  for (const Candidate& remedy : remedies) fields.emplace_back(remedy.changes.front().field);
  return fields;
}

const Candidate* FindRemedy(const std::vector<Candidate>& remedies, absl::string_view field) {
  for (const Candidate& remedy : remedies) {
    if (remedy.changes.front().field == field) return &remedy;
  }
  return nullptr;
}

std::vector<std::string> Fields(const Candidate& remedy) {
  std::vector<std::string> fields;
  for (const Change& change : remedy.changes) fields.emplace_back(change.field);
  return fields;
}

// A remedy is no guess: its job is legal, fits, and says why.
void ExpectProven(const std::vector<Candidate>& remedies) {
  for (const Candidate& remedy : remedies) {
    ASSERT_THAT(Refusals(remedy.job), IsEmpty());
    EXPECT_EQ(Estimate(remedy.job).verdict, Verdict::kFits);
    EXPECT_FALSE(remedy.reason.empty());
  }
}

RecommendSpec Held(JobSpec job) {
  RecommendSpec spec;
  spec.job = std::move(job);
  spec.job.detail = "replay";
  spec.frozen = {"cluster"};
  return spec;
}

// 96 GiB of logits on a GPU of 24.
RecommendSpec ManyLogits(const char* framework) {
  JobSpec job = With(SmallJob(), framework);
  Shape(job).vocab_size = 262144;
  Shape(job).layer_count = 1;
  job.training.sequence_length = 32768;
  job.training.micro_batch_size = 1;
  job.cluster.gpu = "rtx-4090";
  return Held(std::move(job));
}

TEST(RemediesTest, AFusedLossWhereLogitsAreTooMany) {
  const std::vector<Candidate> remedies = RemediesOf(ManyLogits("ddp"));
  ExpectProven(remedies);
  const Candidate* const loss = FindRemedy(remedies, "training.loss.implementation");
  ASSERT_NE(loss, nullptr);
  EXPECT_EQ(loss->changes[0].from, "plain");
  EXPECT_EQ(loss->changes[0].to, "fused");
  EXPECT_EQ(loss->job.training.loss.implementation, "fused");
}

TEST(RemediesTest, NoLossThatIsFrozenOrThatTheTrainerLacks) {
  RecommendSpec frozen = ManyLogits("ddp");
  frozen.frozen.emplace_back("training.loss.implementation");
  EXPECT_THAT(GivenUp(RemediesOf(frozen)), Not(Contains("training.loss.implementation")));
  RecommendSpec litgpt = ManyLogits("ddp");
  litgpt.job.runtime.trainer = "litgpt";
  EXPECT_THAT(GivenUp(RemediesOf(litgpt)), Not(Contains("training.loss.implementation")));
}

// Gradients of 6 billion parameters, whole in fp32, beside an eighth of the states.
RecommendSpec WholeGradients(const char* trainer) {
  JobSpec job = With(TightJob(), "fsdp2");
  Shape(job).layer_count = 64;
  job.runtime.trainer = trainer;
  job.training.micro_batch_size = 1;
  job.training.global_batch_size = 32;
  job.training.precision.reduce_dtype = "fp32";
  RecommendSpec spec = Held(std::move(job));
  spec.frozen.emplace_back("training.micro_batch_size");
  return spec;
}

TEST(RemediesTest, ASmallerBatchWhereGradientsStayWhole) {
  const std::vector<Candidate> remedies = RemediesOf(WholeGradients("hf-trainer"));
  ExpectProven(remedies);
  const Candidate* const batch = FindRemedy(remedies, "training.global_batch_size");
  ASSERT_NE(batch, nullptr);
  EXPECT_EQ(batch->changes[0].from, "32");
  EXPECT_EQ(batch->changes[0].to, "8") << "one micro-batch on each of eight ranks";
}

RecommendSpec Allowing(std::vector<std::string> fields, const char* framework = "ddp") {
  RecommendSpec spec = Held(With(TightJob(), framework));
  spec.frozen.emplace_back("runtime.framework");
  spec.allowed_changes = std::move(fields);
  return spec;
}

// Another training is offered where its field, or the section of that, is allowed by name.
TEST(RemediesTest, AdaptersWhereTheyAreAllowed) {
  for (const char* field : {"training.adapter", "training.adapter.method"}) {
    const std::vector<Candidate> remedies = RemediesOf(Allowing({"*", field}));
    ExpectProven(remedies);
    const Candidate* const adapter = FindRemedy(remedies, "training.adapter.method");
    ASSERT_NE(adapter, nullptr) << field;
    EXPECT_EQ(adapter->changes[0].from, "none");
    EXPECT_EQ(adapter->changes[0].to, "lora");
    EXPECT_THAT(Fields(*adapter), Contains("training.adapter.target_modules"));
    EXPECT_THAT(adapter->job.training.adapter.target_modules, ElementsAre("all-linear"));
  }
}

TEST(RemediesTest, AdaptersInAPrecisionThatIsModelledWithThem) {
  RecommendSpec spec = Allowing({"*", "training.adapter"});
  spec.job.training.precision.preset = "bf16-mixed";
  const std::vector<Candidate> remedies = RemediesOf(spec);
  ExpectProven(remedies);
  const Candidate* const adapter = FindRemedy(remedies, "training.adapter.method");
  ASSERT_NE(adapter, nullptr);
  EXPECT_THAT(Fields(*adapter), Contains("training.precision.preset"));
  EXPECT_EQ(adapter->job.training.precision.preset, "bf16-autocast");
}

// What lies beside the method in its section need not be named.
TEST(RemediesTest, AdaptersWhereTheMethodAloneIsAllowed) {
  for (const char* field : {"training.adapter", "training.adapter.method"}) {
    RecommendSpec spec = Allowing({field});
    spec.job.training.precision.preset = "bf16-pure";
    EXPECT_THAT(GivenUp(RemediesOf(spec)), Contains("training.adapter.method")) << field;
    spec.frozen.emplace_back("training.adapter.target_modules");
    EXPECT_THAT(GivenUp(RemediesOf(spec)), Not(Contains("training.adapter.method"))) << field;
  }
}

// The job's own precision stays where adapters are modelled in it.
TEST(RemediesTest, AdaptersLeaveThePrecisionThatTheyMayHave) {
  for (const char* preset : {"bf16-pure", "bf16-autocast"}) {
    RecommendSpec spec = Allowing({"*", "training.adapter"});
    spec.job.training.precision.preset = preset;
    const std::vector<Candidate> remedies = RemediesOf(spec);
    ExpectProven(remedies);
    const Candidate* const adapter = FindRemedy(remedies, "training.adapter.method");
    ASSERT_NE(adapter, nullptr) << preset;
    EXPECT_EQ(adapter->job.training.precision.preset, preset);
  }
}

// What is dropped is a change of its own, and none that the request keeps is dropped.
TEST(RemediesTest, SaysEachSettingThatARemedyDrops) {
  RecommendSpec spec = Allowing({"*", "training.adapter", "training.optimizer"});
  spec.job.training.precision.preset = "bf16-mixed";
  spec.job.training.precision.master_dtype = "fp32";
  spec.job.training.optimizer.implementation = "foreach";
  const std::vector<Candidate> remedies = RemediesOf(spec);
  ExpectProven(remedies);
  const Candidate* const adapter = FindRemedy(remedies, "training.adapter.method");
  ASSERT_NE(adapter, nullptr);
  EXPECT_THAT(Fields(*adapter), Contains("training.precision.master_dtype"));
  for (const char* kept : {"training.precision.preset", "training.precision.master_dtype"}) {
    RecommendSpec frozen = spec;
    frozen.frozen.emplace_back(kept);
    EXPECT_THAT(GivenUp(RemediesOf(frozen)), Not(Contains("training.adapter.method"))) << kept;
  }
}

TEST(RemediesTest, EightBitsKeepWhatElseTheOptimizerIs) {
  RecommendSpec spec = Allowing({"*", "training.optimizer"});
  spec.job.training.precision.preset = "fp32";
  spec.job.training.optimizer.implementation = "foreach";
  Shape(spec.job).layer_count = 14;
  const std::vector<Candidate> remedies = RemediesOf(spec);
  const Candidate* const states = FindRemedy(remedies, "training.optimizer.name");
  ASSERT_NE(states, nullptr);
  EXPECT_THAT(Fields(*states), Contains("training.optimizer.implementation"));
  spec.frozen.emplace_back("training.optimizer.implementation");
  EXPECT_THAT(GivenUp(RemediesOf(spec)), Not(Contains("training.optimizer.name")));
}

TEST(RemediesTest, NoOtherTrainingUnlessItIsNamed) {
  for (const std::vector<std::string>& allowed :
       std::vector<std::vector<std::string>>{{}, {"*"}, {"*", "training"}}) {
    const std::vector<std::string> fields = GivenUp(RemediesOf(Allowing(allowed)));
    EXPECT_THAT(fields, Not(Contains("training.adapter.method")));
    EXPECT_THAT(fields, Not(Contains("training.optimizer.name")));
  }
  RecommendSpec frozen = Allowing({"*", "training.adapter"});
  frozen.frozen.emplace_back("training.adapter");
  EXPECT_THAT(GivenUp(RemediesOf(frozen)), Not(Contains("training.adapter.method")));
}

// Weights and gradients fit, fp32 states do not.
TEST(RemediesTest, StatesOfEightBitsWhereTheyAreAllowed) {
  RecommendSpec spec = Allowing({"*", "training.optimizer"});
  spec.job.training.precision.preset = "fp32";
  Shape(spec.job).layer_count = 14;
  const std::vector<Candidate> remedies = RemediesOf(spec);
  ExpectProven(remedies);
  const Candidate* const states = FindRemedy(remedies, "training.optimizer.name");
  ASSERT_NE(states, nullptr);
  EXPECT_EQ(states->changes[0].from, "adamw");
  EXPECT_EQ(states->changes[0].to, "adamw-8bit");
}

// Two billion parameters need 18 bytes each where nothing is sharded.
TEST(RemediesTest, TheNextFrameworkThatShards) {
  const std::vector<Candidate> remedies = RemediesOf(Held(With(TightJob(), "ddp")));
  ExpectProven(remedies);
  const Candidate* const next = FindRemedy(remedies, "runtime.framework");
  ASSERT_NE(next, nullptr);
  EXPECT_EQ(next->changes[0].from, "ddp");
  EXPECT_EQ(next->changes[0].to, "fsdp2");
  EXPECT_EQ(next->job.runtime.framework, "fsdp2");
}

TEST(RemediesTest, TheTrainerStaysWhereItRunsOnTheNext) {
  JobSpec job = With(TightJob(), "ddp");
  job.runtime.trainer = "hf-trainer";
  const std::vector<Candidate> remedies = RemediesOf(Held(std::move(job)));
  const Candidate* const next = FindRemedy(remedies, "runtime.framework");
  ASSERT_NE(next, nullptr);
  EXPECT_EQ(next->job.runtime.framework, "fsdp2");
  EXPECT_EQ(next->job.runtime.trainer, "hf-trainer");
}

TEST(RemediesTest, NoFrameworkThatIsFrozen) {
  RecommendSpec spec = Held(With(TightJob(), "ddp"));
  spec.frozen.emplace_back("runtime.framework");
  EXPECT_THAT(GivenUp(RemediesOf(spec)), Not(Contains("runtime.framework")));
}

std::vector<std::string> Names(const std::vector<NextFramework>& next) {
  std::vector<std::string> names;
  for (const NextFramework& one : next) names.emplace_back(FindProfile(one.framework, -1)->name);
  return names;
}

TEST(NextFrameworkTest, TrainersGoWhereTheyRun) {
  JobSpec job = With(SmallJob(), "ddp");
  EXPECT_THAT(Names(NextFrameworks(*Valid(job))), ElementsAre("fsdp2", "deepspeed", "fsdp1"));
  job.runtime.trainer = "litgpt";
  EXPECT_THAT(Names(NextFrameworks(*Valid(job))), ElementsAre("fsdp1", "fsdp2"))
      << "fsdp2 as torchtitan runs it";
  EXPECT_EQ(NextFrameworks(*Valid(job)).back().trainer, Trainer::kTorchtitan);
}

// What the next lacks is left behind, and said.
TEST(NextFrameworkTest, LeavesWhatTheNextLacks) {
  RecommendSpec spec;
  spec.job = With(SmallJob(), "ddp");
  spec.job.runtime.gradient_as_bucket_view = true;
  spec.job.runtime.versions["torch"] = "2.8";
  spec.job.training.recompute.mode = "per-op";
  spec.job.parallelism.zero_stage = 0;
  const ValidJob job = Valid(spec.job);
  const NextFramework deepspeed{Framework::kDeepSpeed, Trainer::kNone, "shards"};
  const std::optional<Moved> moved = MoveTo(spec, *job, deepspeed);
  ASSERT_TRUE(moved.has_value());
  EXPECT_THAT(Refusals(moved->spec.job), IsEmpty());
  std::vector<std::string> fields;
  for (const Change& change : moved->changes) fields.emplace_back(change.field);
  EXPECT_THAT(fields, ElementsAre("runtime.framework", "training.recompute",
                                  "runtime.gradient_as_bucket_view"));
  EXPECT_EQ(moved->spec.job.runtime.versions.size(), 1u);
}

TEST(NextFrameworkTest, GoesNowhereWithWhatIsFrozen) {
  RecommendSpec spec;
  spec.job = With(SmallJob(), "ddp");
  spec.job.runtime.gradient_as_bucket_view = true;
  spec.frozen = {"runtime.gradient_as_bucket_view"};
  const ValidJob job = Valid(spec.job);
  EXPECT_FALSE(MoveTo(spec, *job, {Framework::kFsdp2, Trainer::kNone, "shards"}).has_value());
}

}  // namespace
}  // namespace plimsoll
