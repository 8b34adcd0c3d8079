// Every rule of the preference section, and what stands beside one.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/refusals.h"

namespace plimsoll {
namespace {

JobSpec Job() {
  JobSpec job = With(SmallJob(), "ddp", "bf16-pure");
  job.training.preference.method = "dpo";
  return job;
}

std::string NotModelled(absl::string_view field) {
  return absl::StrCat("job.", field, "; is not modelled with preference tuning");
}

TEST(ValidatePreferenceTest, RefusesWhatIsNoPreference) {
  ExpectRefusals(
      Job(),
      {
          {"no method",
           [](JobSpec& j) {
             j.training.preference.method.reset();
             j.training.preference.reference = "model";
           },
           {"job.training.preference.method: unset; must be set with other fields of preference"}},
          {"another method",
           [](JobSpec& j) { j.training.preference.method = "orpo"; },
           {"job.training.preference.method: orpo; not modelled yet: preference tuning but by DPO, "
            "KTO, GRPO and reward models"}},
          {"answers that are generated",
           [](JobSpec& j) { j.training.preference.method = "rloo"; },
           {"job.training.preference.method: rloo; not modelled yet: of training on answers that "
            "are sampled GRPO is"}},
          {"no reference",
           [](JobSpec& j) { j.training.preference.reference = "none"; },
           {"job.training.preference.reference: none; not modelled yet: TRL's DPOTrainer always "
            "has a reference"}},
          {"no word for a reference",
           [](JobSpec& j) { j.training.preference.reference = "teacher"; },
           {"job.training.preference.reference: teacher; must be one of model, adapters-off, "
            "precomputed"}},
          {"adapters that are not there",
           [](JobSpec& j) { j.training.preference.reference = "adapters-off"; },
           {"job.training.preference.reference: adapters-off; needs an adapter"}},
          {"a reference of a reward model",
           [](JobSpec& j) {
             j.training.preference.method = "reward";
             j.training.preference.reference = "model";
           },
           {"job.training.preference.reference: model; is compared with nothing"}},
      });
}

// Answers that the policy gives are compared with nothing where nobody asks, and cannot be compared
// before they are there. Dropout stays, and a server's part is said not to be counted.
TEST(ValidatePreferenceTest, GrpoSamplesItsAnswers) {
  JobSpec job = Job();
  job.training.preference = {};
  job.training.preference.method = "grpo";
  Shape(job).hidden_dropout = 0.1;
  const ValidJob valid = Valid(job);
  EXPECT_FALSE(valid->reference.has_value());
  EXPECT_EQ(valid->SequencesAtOnce(), valid->micro_batch_size);
  EXPECT_GT(valid->model->hidden_dropout, 0);
  const auto says = [&](absl::string_view id) {
    return std::any_of(valid->warnings.begin(), valid->warnings.end(),
                       [id](const auto& warning) { return warning.code == id; });
  };
  EXPECT_TRUE(says("samples"));
  EXPECT_FALSE(says("dropout-off"));
  job.training.preference.reference = "model";
  EXPECT_EQ(Valid(job)->reference, Reference::kModel);
  ExpectRefusals(job, {{"what was computed before",
                        [](JobSpec& j) { j.training.preference.reference = "precomputed"; },
                        {"job.training.preference.reference: precomputed; needs answers that are "
                         "there before training"}},
                       {"nothing, said as a word",
                        [](JobSpec& j) { j.training.preference.reference = "none"; },
                        {"job.training.preference.reference: none; must be left out: grpo is "
                         "compared with nothing then"}},
                       {"adapters switched off, where ranks share weights",
                        [](JobSpec& j) {
                          j.training.adapter.method = "lora";
                          j.training.preference.reference = "adapters-off";
                          j.runtime.framework = "fsdp2";
                          j.training.precision.preset = "bf16-mixed";
                          Shape(j).hidden_dropout = 0;
                        },
                        {"job.training.preference.reference: adapters-off; is not modelled with "
                         "fsdp2: model is"}},
                       {"several micro-batches, and a reference that FSDP2 shards",
                        [](JobSpec& j) {
                          j.runtime.framework = "fsdp2";
                          j.training.precision.preset = "bf16-mixed";
                          Shape(j).hidden_dropout = 0;
                          j.training.micro_batch_size = 1;
                          j.training.global_batch_size = 2 * Valid(j)->data_parallel_size;
                        },
                        {"job.training.global_batch_size: 2 micro-batches; is not modelled with "
                         "grpo's reference, which runs once for all of them"}},
                       {"ZeRO 3",
                        [](JobSpec& j) {
                          j.runtime.framework = "deepspeed";
                          j.parallelism.zero_stage = 3;
                          j.training.precision.preset = "bf16-mixed";
                        },
                        {"job.parallelism.zero_stage: 3; is not modelled with grpo, whose policy "
                         "runs forward twice"}}});
}

// What TRL's trainers read but tokens that follow, and what its head does not split.
TEST(ValidatePreferenceTest, TrlPredictsTokensOrScoresAnswers) {
  JobSpec job = With(SmallJob(), "ddp", "bf16-pure");
  job.runtime.trainer = "trl";
  ExpectRefusals(
      job,
      {
          {"its own head", [](JobSpec&) {}, {}},
          {"a classifier",
           [](JobSpec& j) {
             Shape(j).head = "sequence-classification";
             Shape(j).label_count = 2;
           },
           {"job.model: sequence-classification; needs training.preference.method reward under "
            "trl"}},
          {"masked words",
           [](JobSpec& j) { Shape(j).head = "masked-language-model"; },
           {"job.model: masked-language-model; is not modelled with tiled-log-probs"}},
          {"a trained head",
           [](JobSpec& j) {
             j.training.adapter.method = "lora";
             j.training.adapter.trained_modules = {"lm_head"};
           },
           {"job.training.adapter.trained_modules: lm_head; is not modelled with "
            "tiled-log-probs"}},
      });
  const ValidJob usual = [&job] {
    JobSpec plain = job;
    plain.training.precision.preset.reset();
    plain.training.adapter.method = "lora";
    return Valid(plain);
  }();
  EXPECT_TRUE(usual->precision.autocast);
}

TEST(ValidatePreferenceTest, SequencesOfASample) {
  const auto at_once = [](const char* method) {
    JobSpec job = Job();
    job.training.preference.method = method;
    return Valid(job)->SequencesAtOnce();
  };
  EXPECT_EQ(at_once("dpo"), 4);
  EXPECT_EQ(at_once("kto"), 2);
  EXPECT_EQ(at_once("reward"), 4);
}

// A reward model is the network with a head that scores.
TEST(ValidatePreferenceTest, RewardsAreScores) {
  JobSpec job = Job();
  job.training.preference.method = "reward";
  Shape(job).tied_embeddings = true;
  const ValidJob reward = Valid(job);
  EXPECT_EQ(reward->model->head, Head::kSequenceClassification);
  EXPECT_EQ(reward->model->label_count, 1);
  EXPECT_FALSE(reward->model->tied_embeddings);
  EXPECT_EQ(reward->loss, LossImplementation::kPlain);
  EXPECT_FALSE(reward->reference.has_value());
  Shape(job).tied_embeddings = false;
  Shape(job).head = "sequence-classification";
  Shape(job).label_count = 3;
  EXPECT_EQ(Valid(job)->model->label_count, 1);
  Shape(job).tied_embeddings = false;
  Shape(job).head = "token-classification";
  Shape(job).label_count = 2;
  EXPECT_THAT(
      Refusals(job),
      testing::ElementsAre(
          "job.model: token-classification; reward needs a head of sequence-classification"));
}

// TRL switches it off, whatever the job says.
TEST(ValidatePreferenceTest, SaysThatDropoutIsSwitchedOff) {
  const auto said = [](const JobSpec& job) {
    const ValidJob valid = Valid(job);
    return std::count_if(valid->warnings.begin(), valid->warnings.end(),
                         [](const Warning& one) { return one.code == "dropout-off"; });
  };
  JobSpec job = Job();
  EXPECT_EQ(said(job), 0);
  Shape(job).hidden_dropout = 0.1;
  EXPECT_EQ(said(job), 1);
  EXPECT_EQ(Valid(job)->model->hidden_dropout, 0);
  job = Job();
  job.training.adapter.method = "lora";
  EXPECT_EQ(said(job), 0);
  job.training.adapter.dropout = 0.05;
  EXPECT_EQ(said(job), 1);
  EXPECT_EQ(Valid(job)->adapter->dropout, 0);
}

TEST(ValidatePreferenceTest, RefusesWhatIsNotModelledBesideOne) {
  ExpectRefusals(
      Job(),
      {
          {"all logits at once",
           [](JobSpec& j) { j.training.loss.implementation = "plain"; },
           {"job.training.loss.implementation: plain; trl does not have it: its heads make tiles "
            "of "
            "logits: tiled-log-probs"}},
          {"parts recomputed",
           [](JobSpec& j) { j.training.recompute.mode = "selective"; },
           {"job.training.recompute.mode: selective; trl does not have it: its gradient "
            "checkpointing runs each layer again, whole",
            NotModelled("training.recompute.mode: selective")}},
          {"units of layers",
           [](JobSpec& j) {
             j.training.recompute.mode = "full";
             j.training.recompute.unit_layer_count = 2;
           },
           {"job.training.recompute.unit_layer_count: 2; trl does not have it: its gradient "
            "checkpointing runs each layer again, whole",
            NotModelled("training.recompute.unit_layer_count: 2")}},
          {"quantized weights under autocast",
           [](JobSpec& j) {
             j.training.adapter.method = "qlora";
             j.training.precision.preset = "bf16-autocast";
           },
           {NotModelled("training.quantization.format: nf4")}},
          {"quantized weights in one dtype",
           [](JobSpec& j) {
             j.training.adapter.method = "qlora";
             j.training.precision.preset = "bf16-pure";
           },
           {}},
          {"a model of its own beside quantized weights",
           [](JobSpec& j) {
             j.training.adapter.method = "qlora";
             j.training.precision.preset = "bf16-pure";
             j.training.preference.reference = "model";
           },
           {NotModelled("training.quantization.format: nf4")}},
          {"compiled layers",
           [](JobSpec& j) { j.runtime.compile = true; },
           {NotModelled("runtime.compile: true")}},
          {"masters",
           [](JobSpec& j) { j.training.precision.preset = "bf16-mixed"; },
           {"job.training.precision.master_dtype: fp32; is not modelled with preference tuning: "
            "presets bf16-autocast, bf16-pure and fp32 are"}},
          {"a classifier",
           [](JobSpec& j) {
             Shape(j).head = "sequence-classification";
             Shape(j).label_count = 2;
           },
           {NotModelled("model: sequence-classification")}},
      });
}

void Under(JobSpec& job, const char* framework, int64_t stage) {
  job.runtime.framework = framework;
  job.training.precision.preset.reset();
  job.parallelism.zero_stage = stage;
}

TEST(ValidatePreferenceTest, UnderFrameworksOfTrl) {
  JobSpec job = With(SmallJob(), "ddp", "fp32");
  job.training.preference.method = "dpo";
  ExpectRefusals(
      job,
      {
          {"fsdp2", [](JobSpec& j) { Under(j, "fsdp2", 3); }, {}},
          {"fsdp2 and adapters",
           [](JobSpec& j) {
             Under(j, "fsdp2", 3);
             j.training.adapter.method = "lora";
           },
           {"job.training.preference.reference: adapters-off; is not modelled with fsdp2: model "
            "and "
            "precomputed are"}},
          {"fsdp2 from the host",
           [](JobSpec& j) {
             Under(j, "fsdp2", 3);
             j.runtime.offload_parameters = true;
           },
           {NotModelled("runtime.offload_parameters: true")}},
          {"fsdp1",
           [](JobSpec& j) { Under(j, "fsdp1", 3); },
           {"job.training.preference.method: dpo; is not modelled with fsdp1: ddp, fsdp2 and "
            "deepspeed are, as TRL's trainers run on them"}},
          {"deepspeed", [](JobSpec& j) { Under(j, "deepspeed", 2); }, {}},
          {"deepspeed's shards of all", [](JobSpec& j) { Under(j, "deepspeed", 3); }, {}},
          {"of single answers",
           [](JobSpec& j) {
             Under(j, "deepspeed", 3);
             j.training.preference.method = "kto";
           },
           {"job.parallelism.zero_stage: 3; is not modelled with kto, whose policy runs forward "
            "twice"}},
          {"megatron",
           [](JobSpec& j) { j.runtime.framework = "megatron-core"; },
           {"job.training.preference.method: dpo; is not modelled with megatron-core: NeMo's over "
            "Megatron is its own"}},
          {"hf-trainer",
           [](JobSpec& j) { j.runtime.trainer = "hf-trainer"; },
           {"job.training.preference.method: dpo; hf-trainer does not have it: its loss is the "
            "model's: TRL's trainers tune by preferences and distil"}},
          {"a release of TRL that keeps logits",
           [](JobSpec& j) { j.runtime.versions["trl"] = "0.24"; },
           {"job.runtime.versions.trl: 0.24; is older than every era that is modelled"}},
      });
}

// With an adapter the policy is its own reference.
TEST(ValidatePreferenceTest, DefaultsAreTrls) {
  JobSpec job = Job();
  job.training.precision.preset.reset();
  const ValidJob plain = Valid(job);
  EXPECT_EQ(plain->reference, Reference::kModel);
  EXPECT_EQ(plain->loss, LossImplementation::kTiledLogProbs);
  EXPECT_EQ(plain->profile->trainer, Trainer::kTrl);
  EXPECT_TRUE(plain->precision.autocast);
  EXPECT_EQ(plain->SequencesAtOnce(), 4) << "two pairs";
  EXPECT_EQ(plain->LocalTokens(), 4 * 32);
  job.training.adapter.method = "lora";
  const ValidJob adapter = Valid(job);
  EXPECT_EQ(adapter->reference, Reference::kAdaptersOff);
  int said = 0;
  for (const Assumption& assumption : adapter->assumptions) {
    said += absl::StartsWith(assumption.field, "training.preference.") ? 1 : 0;
    said += assumption.field == "training.loss.implementation" ? 1 : 0;
  }
  EXPECT_EQ(said, 2);
}

}  // namespace
}  // namespace plimsoll
