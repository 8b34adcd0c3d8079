// Validation as a whole: what is wrong in one section hides nothing of another, and what a trainer
// changes of a model it changes of a copy.
#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Wrongs that have nothing to do with one another, and the field that each is told of.
struct Wrong {
  const char* field;
  void (*edit)(JobSpec&);
};
constexpr Wrong kWrongs[] = {
    {"job.model.transformer.norm", [](JobSpec& j) { Shape(j).norm = "batch-norm"; }},
    {"job.model.transformer.activation", [](JobSpec& j) { Shape(j).activation = "tanh"; }},
    {"job.model.transformer.hidden_dropout", [](JobSpec& j) { Shape(j).hidden_dropout = 1.5; }},
    {"job.training.sequence_length", [](JobSpec& j) { j.training.sequence_length = 0; }},
    {"job.training.precision.preset", [](JobSpec& j) { j.training.precision.preset = "fp7"; }},
    {"job.training.optimizer.name", [](JobSpec& j) { j.training.optimizer.name = "adamx"; }},
    {"job.training.attention", [](JobSpec& j) { j.training.attention = "flush"; }},
    {"job.training.recompute.mode", [](JobSpec& j) { j.training.recompute.mode = "some"; }},
    {"job.parallelism.pipeline_schedule",
     [](JobSpec& j) { j.parallelism.pipeline_schedule = "2f2b"; }},
    {"job.runtime.framework", [](JobSpec& j) { j.runtime.framework = "horovod"; }},
    {"job.runtime.allocator.garbage_collection_threshold",
     [](JobSpec& j) { j.runtime.allocator.garbage_collection_threshold = 2; }},
    {"job.cluster.gpu", [](JobSpec& j) { j.cluster.gpu = "h900"; }},
    {"job.cluster.reserved_for_others_bytes",
     [](JobSpec& j) { j.cluster.reserved_for_others_bytes = -1; }},
    {"detail", [](JobSpec& j) { j.detail = "exact"; }},
    {"risk", [](JobSpec& j) { j.risk = 0.9; }},
};

std::set<std::string> FieldsOf(const JobSpec& job) {
  const auto valid = Validate(job, SmallCatalog());
  std::set<std::string> fields;
  const auto* const violations = std::get_if<Violations>(&valid);
  if (violations == nullptr) return fields;
  for (const Violation& violation : *violations) fields.insert(violation.field);
  return fields;
}

TEST(ValidateTogetherTest, EachWrongIsToldByItself) {
  for (const Wrong& wrong : kWrongs) {
    JobSpec job = SmallJob();
    wrong.edit(job);
    EXPECT_EQ(FieldsOf(job), std::set<std::string>{wrong.field});
  }
}

// However many there are, in whatever sections: all are told, and nothing that is right.
TEST(ValidateTogetherTest, NoWrongHidesAnother) {
  std::mt19937 random(20261127);
  for (int round = 0; round < 500; ++round) {
    JobSpec job = SmallJob();
    std::set<std::string> fields;
    for (const Wrong& wrong : kWrongs) {
      if (random() % 3 != 0) continue;
      wrong.edit(job);
      fields.insert(wrong.field);
    }
    EXPECT_EQ(FieldsOf(job), fields);
  }
}

// litgpt's head has a table of its own, TRL scores sequences for rewards, and adapters of litgpt's
// are of one projection: each of a copy. The catalog's model is everybody's.
TEST(ValidateTogetherTest, TrainersChangeCopiesOfModels) {
  JobSpec job = Gpt2Xl();
  const Transformer& shared = SmallCatalog().models.at("gpt2-xl");
  EXPECT_EQ(Valid(job)->model, &shared) << "as it is";
  job.cluster.gpu = "a100-80gb-sxm";
  job.training.precision.preset = "bf16-pure";
  JobSpec litgpt = job;
  litgpt.runtime.trainer = "litgpt";
  const ValidJob untied = Valid(litgpt);
  EXPECT_FALSE(untied->model->tied_embeddings);
  JobSpec reward = job;
  reward.training.preference.method = "reward";
  const ValidJob scores = Valid(reward);
  EXPECT_EQ(scores->model->head, Head::kSequenceClassification);
  EXPECT_EQ(scores->model->label_count, 1);
  EXPECT_EQ(scores->model->hidden_dropout, 0) << "TRL drops nothing";
  EXPECT_EQ(scores->model->embedding_dropout, 0);
  EXPECT_TRUE(shared.tied_embeddings);
  EXPECT_EQ(shared.head, Head::kLanguageModel);
  EXPECT_EQ(shared.hidden_dropout, 0.1);
}

// What a copy has beside what was changed is the model's.
TEST(ValidateTogetherTest, CopiesOutliveTheirValidation) {
  ValidJob kept = [] {
    JobSpec job = SmallJob();
    Shape(job).tied_embeddings = true;
    job.runtime.trainer = "litgpt";
    return Valid(job);
  }();
  const ValidJob moved = std::move(kept);
  EXPECT_EQ(moved->model->hidden_size, 64);
  EXPECT_EQ(moved->model->layer_count, 4);
  EXPECT_FALSE(moved->model->tied_embeddings);
}

// Adapters of litgpt are of one product of queries, keys and values; only what rotates positions
// concatenates.
TEST(ValidateTogetherTest, LitgptsAdaptersJoinProjections) {
  struct Row {
    const char* trainer;
    bool adapted;
    const char* positions;
    bool joint;
    bool concatenates;
  };
  const Row rows[] = {{"litgpt", true, "rotary", true, true},
                      {"litgpt", true, "none", true, false},
                      {"litgpt", false, "rotary", false, false},
                      {"hf-trainer", true, "rotary", false, false}};
  for (const Row& row : rows) {
    JobSpec job = With(SmallJob(), "ddp", "bf16-pure");
    Shape(job).position_embedding = row.positions;
    job.runtime.trainer = row.trainer;
    if (row.adapted) job.training.adapter.method = "lora";
    ASSERT_THAT(Refusals(job), IsEmpty()) << row.trainer;
    const ValidJob valid = Valid(job);
    EXPECT_EQ(valid->model->joint_qkv, row.joint) << row.trainer << " " << row.positions;
    EXPECT_EQ(valid->model->concatenates_rotary, row.concatenates) << row.positions;
  }
}

// An unknown framework has everything: asking for what only some have is no wrong beside it.
TEST(ValidateTogetherTest, AnUnknownFrameworkHasEverything) {
  JobSpec job = SmallJob();
  job.runtime.framework = "horovod";
  job.training.loss.implementation = "te-cross-entropy";
  job.training.optimizer.name = "muon";
  job.parallelism.tensor_parallel_size = 2;
  EXPECT_THAT(FieldsOf(job), ElementsAre("job.runtime.framework"));
}

}  // namespace
}  // namespace plimsoll
