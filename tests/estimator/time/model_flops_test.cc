// The FLOPs of a token against the formula that everybody quotes, over random models and layouts:
// six for each weight of a matrix that it meets, twelve S A for each layer's attention.
// Source: Narayanan et al. 2021 (arXiv 2104.04473), appendix; Korthikanti et al. 2022
// (arXiv 2205.05198), appendix A.
#include <random>

#include "estimator/time/step_time.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

double FlopsOf(const JobSpec& spec) {
  const ValidJob job = Valid(spec);
  return CostOf(job, BlocksProgram(job), SpeedOf(SmallCatalog().speed, *job)).flops_per_token;
}

// Weights of latent attention: down and up again, queries at once where they have no rank.
double LatentMatrices(const Transformer& model) {
  const LatentAttention& latent = model.latent;
  const auto H = static_cast<double>(model.hidden_size);
  const auto N = static_cast<double>(model.head_count);
  const auto Q = static_cast<double>(latent.query_rank);
  const auto J = static_cast<double>(latent.key_value_rank);
  const auto Y = static_cast<double>(latent.rotary_size);
  const auto D = static_cast<double>(model.head_size);
  const auto V = static_cast<double>(latent.value_size);
  const double queries = Q > 0 ? H * Q + Q * N * D : H * N * D;
  return queries + H * (J + Y) + J * N * (D - Y + V) + N * V * H;
}

// Weights of the layers' matrices that one token meets.
double LayerMatrices(const Transformer& model, bool experts) {
  const auto H = static_cast<double>(model.hidden_size);
  const auto A = static_cast<double>(model.head_count * model.head_size);
  const auto C = static_cast<double>(model.kv_head_count * model.head_size);
  const double branches = model.gated_mlp ? 3 : 2;
  const double attention = model.latent.Any() ? LatentMatrices(model) : 2 * A * H + 2 * C * H;
  if (!experts) return attention + branches * static_cast<double>(model.ffn_size) * H;
  const auto width = static_cast<double>(model.experts.ffn_size * model.experts.active_count +
                                         model.experts.shared_ffn_size);
  return attention + static_cast<double>(model.experts.count) * H + branches * width * H;
}

double AllMatrices(const Transformer& model) {
  const int64_t with = model.experts.Any() ? model.experts.layers.CountOf(model.layer_count) : 0;
  return static_cast<double>(model.layer_count - with) * LayerMatrices(model, false) +
         static_cast<double>(with) * LayerMatrices(model, true);
}

double AttentionOfLayers(const ValidJob& job) {
  const Transformer& model = *job->model;
  return 2.0 * static_cast<double>(job->sequence_length) *
         static_cast<double>(model.head_count * (model.head_size + model.ValueSize())) *
         static_cast<double>(model.layer_count);
}

double HeadMatrix(const ValidJob& job) {
  return static_cast<double>(job->padded_vocab_size) * static_cast<double>(job->model->hidden_size);
}

// A valid random job without what has formulas of its own.
JobSpec AnyPlain(std::mt19937_64& random) {
  while (true) {
    JobSpec job = RandomJob(random);
    job.cluster.gpu = "a100-80gb-sxm";
    job.cluster.gpu_memory_bytes.reset();
    const bool own =
        job.training.adapter.method.has_value() || job.training.preference.method.has_value() ||
        !job.training.trained.modules.empty() || job.training.trained.layer_count.has_value() ||
        job.training.loss.implementation == "chunked" ||
        job.training.loss.implementation == "tiled-log-probs" || job.runtime.trainer == "trl" ||
        Shape(job).linear_value_head_count.has_value();
    if (!own && Refusals(job).empty()) return job;
  }
}

TEST(ModelFlopsTest, SixForEachWeightAndTwelveForEachPairOfTokens) {
  std::mt19937_64 random(42);
  for (int i = 0; i < Rounds(300); ++i) {
    const JobSpec spec = AnyPlain(random);
    const ValidJob job = Valid(spec);
    const double expected =
        3 * (2 * (AllMatrices(*job->model) + HeadMatrix(job)) + AttentionOfLayers(job));
    EXPECT_NEAR(FlopsOf(spec) / expected, 1, 1e-9) << "job " << i << " " << *spec.runtime.framework
                                                   << " " << spec.training.attention.value_or("");
  }
}

// Frozen weights have no gradient: four of the six. Adapters of rank r on a matrix [m, n] add
// r (m + n) weights, and these are trained.
// Source: Hu et al. 2021 (arXiv 2106.09685), section 4.1.
TEST(ModelFlopsTest, FrozenWeightsAreFourOfTheSix) {
  JobSpec spec = With(SmallJob(), "ddp", "bf16-pure");
  spec.training.adapter.method = "lora";
  spec.training.adapter.rank = 8;
  spec.training.adapter.target_modules = {"q_proj", "v_proj"};
  const ValidJob job = Valid(spec);
  const double adapters = 4 * 8.0 * ((64 + 64) + (64 + 32));
  const double frozen = AllMatrices(*job->model) + HeadMatrix(job);
  // Nothing leads back to the first layer's input: no product of q, k, v, nor of the adapters'
  // first matrices, makes its gradient.
  const double first = 2 * (64.0 * (64 + 2 * 32) + 2 * 8 * 64);
  const double expected = 4 * frozen + 6 * adapters + 3 * AttentionOfLayers(job) - first;
  EXPECT_NEAR(FlopsOf(spec) / expected, 1, 1e-9);
}

// Of Mamba 1 three multiply-adds for each state beside four matrices a layer, whatever a sequence's
// length. Source: Gu and Dao 2023 (arXiv 2312.00752), equation 2.
TEST(ModelFlopsTest, StatesAreCarriedFromTokenToToken) {
  const double H = 64, I = 128, N = 16, R = 4;
  for (const int64_t length : {128, 1024}) {
    JobSpec spec = With(SmallJob(), "ddp", "bf16-pure");
    spec.training.sequence_length = length;
    spec = WithModel(spec, [](Transformer& model) {
      model.one_sublayer = true;
      model.attended = {.period = 1, .to = 0};
      model.state_space = {.head_count = 128, .head_size = 1, .state_size = 16, .step_rank = 4};
    });
    const ValidJob job = Valid(spec);
    const double layer = 3 * H * I + I * (R + 2 * N) + R * I + 3 * I * N;
    const double layers = static_cast<double>(job->model->layer_count);
    EXPECT_NEAR(FlopsOf(spec) / (6 * (layers * layer + HeadMatrix(job))), 1, 1e-9) << length;
  }
}

// How a job is laid out changes who works, not how much.
TEST(ModelFlopsTest, NoLayoutChangesTheModelsWork) {
  JobSpec plain = With(TightJob(), "megatron-core");
  plain.runtime.vocab_size_divisor = 1;
  const double alone = FlopsOf(plain);
  struct Layout {
    const char* name;
    void (*edit)(JobSpec&);
  };
  constexpr Layout kLayouts[] = {
      {"tensor", [](JobSpec& job) { job.parallelism.tensor_parallel_size = 4; }},
      {"sequence",
       [](JobSpec& job) {
         job.parallelism.tensor_parallel_size = 4;
         job.parallelism.sequence_parallel = true;
       }},
      {"pipeline", [](JobSpec& job) { job.parallelism.pipeline_parallel_size = 4; }},
      {"zero", [](JobSpec& job) { job.parallelism.zero_stage = 1; }},
      {"micro-batch", [](JobSpec& job) { job.training.micro_batch_size = 2; }},
      {"recomputed", [](JobSpec& job) { job.training.recompute.mode = "full"; }},
      {"core attention", [](JobSpec& job) { job.training.recompute.mode = "selective"; }},
      {"loss", [](JobSpec& job) { job.training.loss.implementation = "te-cross-entropy"; }},
  };
  for (const Layout& layout : kLayouts) {
    JobSpec job = plain;
    layout.edit(job);
    EXPECT_NEAR(FlopsOf(job) / alone, 1, 1e-9) << layout.name;
  }
}

// Tokens further apart than a window are no work of the model's.
TEST(ModelFlopsTest, AWindowIsAllThatATokenSees) {
  const JobSpec whole = SmallJob();
  const JobSpec windowed = WithModel(whole, [](Transformer& model) { model.sliding_window = 8; });
  const double by_token = 12.0 * 4 * 64;  // layers, A
  EXPECT_NEAR(FlopsOf(whole) - FlopsOf(windowed), by_token * (32 - 8), 1);
}

}  // namespace
}  // namespace plimsoll
