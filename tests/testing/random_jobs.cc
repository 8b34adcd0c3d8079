#include "tests/testing/random_jobs.h"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "estimator/catalog/capabilities.h"
#include "estimator/catalog/profile.h"
#include "estimator/job/job_abilities.h"
#include "estimator/job/vocabularies.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

int64_t Below(RandomNumbers random, int64_t count) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(count));
}

bool Once(RandomNumbers random, int64_t in) { return Below(random, in) == 0; }

int64_t One(RandomNumbers random, std::initializer_list<int64_t> of) {
  return of.begin()[Below(random, static_cast<int64_t>(of.size()))];
}

template <typename Value, size_t kCount>
std::string AnyWord(RandomNumbers random, const Word<Value> (&words)[kCount]) {
  return std::string(words[Below(random, static_cast<int64_t>(kCount))].name);
}

// Over `tensor` and `context` ranks; keys and values may be fewer than these together.
void FillShape(RandomNumbers random, int64_t tensor, int64_t context, int64_t layers,
               TransformerSpec& shape) {
  const int64_t kv_heads = tensor * One(random, {1, 2});
  const int64_t head_size = One(random, {16, 32, 80, 128});
  shape.kv_head_count = kv_heads;
  shape.head_count = kv_heads * context * One(random, {1, 2, 4});
  shape.head_size = head_size;
  shape.hidden_size = *shape.head_count * head_size * One(random, {1, 1, 2});
  shape.layer_count = layers;
  shape.ffn_size = tensor * One(random, {64, 100, 512});
  shape.vocab_size = One(random, {257, 1000, 32000, 128256});
  shape.gated_mlp = Once(random, 2);
  shape.norm_placement = AnyWord(random, kNormPlacements);
  shape.norm = AnyWord(random, kNorms);
  do {  // that of ranks is FillLatent's
    shape.qk_norm = AnyWord(random, kQkNorms);
  } while (shape.qk_norm == "per-rank");
  shape.activation = AnyWord(random, kActivations);
  shape.position_embedding = AnyWord(random, kPositionEmbeddings);
  shape.qkv_bias = Once(random, 2);
  shape.attention_output_bias = Once(random, 2);
  shape.mlp_bias = Once(random, 2);
  shape.tied_embeddings = Once(random, 2);
  if (Once(random, 2)) shape.hidden_dropout = 0.1;
  if (Once(random, 2)) shape.attention_dropout = 0.1;
}

// Presets that are modelled with an adapter under ddp.
constexpr Word<int> kAdapterPresets[] = {{"fp32", 0}, {"bf16-pure", 1}, {"bf16-autocast", 2}};

// A word whose ability the framework and the trainer have.
template <typename Value, size_t kCount, typename AbilityOfValue>
std::string AnyWordOf(RandomNumbers random, const Capabilities& can,
                      const Word<Value> (&words)[kCount], const AbilityOfValue& ability_of) {
  while (true) {
    const Word<Value>& word = words[Below(random, static_cast<int64_t>(kCount))];
    if (can.Has(ability_of(word.value))) return std::string(word.name);
  }
}

// But RandomSteppedJob's.
std::string AnyOptimizer(RandomNumbers random, const Capabilities& can) {
  std::vector<Word<OptimizerName>> words;
  for (const Word<OptimizerName>& word : kOptimizers) {
    const OptimizerRow& row = RowOf(word.value);
    if (!row.compresses && row.picks != Picks::kTargets) words.push_back(word);
  }
  while (true) {
    const auto& word =
        words[static_cast<size_t>(Below(random, static_cast<int64_t>(words.size())))];
    if (can.Has(AbilityOf(word.value))) return std::string(word.name);
  }
}

// Half the time a trainer of some era that runs on the framework; what both have.
Capabilities FillTrainer(RandomNumbers random, const Profile& profile, JobSpec& job) {
  const auto& eras = TrainerEras();
  const TrainerEra& era =
      eras[static_cast<size_t>(Below(random, static_cast<int64_t>(eras.size())))];
  const bool runs = (era.frameworks >> static_cast<unsigned>(profile.framework) & 1) != 0;
  if (!runs || Once(random, 2)) {
    return CapabilitiesOf(profile.framework, kAnyVersion, Trainer::kNone, kAnyVersion);
  }
  job.runtime.trainer = std::string(era.name);
  job.runtime.versions[std::string(era.name)] = VersionText(era.since_month);
  return CapabilitiesOf(profile.framework, kAnyVersion, era.trainer, era.since_month);
}

// Of modules that each network has.
std::string AnyModule(RandomNumbers random, const Capabilities& can) {
  constexpr Word<RecomputeModule> kOfAll[] = {
      {"core-attention", RecomputeModule::kCoreAttention},
      {"mlp", RecomputeModule::kMlp},
      {"norm", RecomputeModule::kNorm},
  };
  return AnyWordOf(random, can, kOfAll, [](RecomputeModule module) { return AbilityOf(module); });
}

// Of layers whose experts Megatron-Core dispatches.
void FillModules(RandomNumbers random, JobSpec& job) {
  RecomputeSpec& recompute = job.training.recompute;
  recompute = {};
  recompute.mode = "selective";
  recompute.modules = {Once(random, 2) ? "core-attention" : "norm"};
  if (Once(random, 2)) recompute.modules.push_back("mlp");
  const bool shared = Shape(job).shared_expert_ffn_size.has_value();
  if (Once(random, 2)) {
    recompute.modules.push_back("experts");
  } else if (shared && Once(random, 2)) {
    recompute.modules.push_back("shared-experts");
  } else if (job.runtime.grouped_gemm == true) {
    recompute.modules.push_back("activation");
  }
}

void FillRecompute(RandomNumbers random, const Capabilities& can, int64_t layers_of_stage,
                   JobSpec& job) {
  RecomputeSpec& recompute = job.training.recompute;
  const auto mode = [](RecomputeMode one) { return AbilityOf(one); };
  recompute.mode = AnyWordOf(random, can, kRecomputeModes, mode);
  if (*recompute.mode == "every-nth") recompute.interval = One(random, {1, 2});
  const bool units = can.Has(Ability::kRecomputeUnits) && layers_of_stage % 2 == 0;
  if (*recompute.mode == "full" && units && Once(random, 2)) recompute.unit_layer_count = 2;
  if (*recompute.mode != "selective") return;
  recompute.modules = {AnyModule(random, can), AnyModule(random, can)};
  const bool own_norm = job.runtime.framework == "megatron-core";
  if (own_norm) job.runtime.transformer_implementation = "local";
  const std::vector<std::string>& modules = recompute.modules;
  const bool norms = std::find(modules.begin(), modules.end(), "norm") != modules.end();
  if (norms) Shape(job).norm_placement = "pre";
}

void FillPipeline(RandomNumbers random, const Capabilities& can, JobSpec& job) {
  const int64_t stages = *job.parallelism.pipeline_parallel_size;
  if (stages == 1) return;
  const bool gpipe = can.Has(Ability::kGpipe) && Once(random, 3);
  job.parallelism.pipeline_schedule = gpipe ? "gpipe" : "1f1b";
  if (!can.Has(Ability::kInterleaved1F1B) || !Once(random, 3)) return;
  job.parallelism.pipeline_schedule = "interleaved-1f1b";
  job.parallelism.virtual_pipeline_size = 2;
}

void FillTraining(RandomNumbers random, const Capabilities& can, JobSpec& job) {
  TrainingSpec& training = job.training;
  const ParallelismSpec& parallel = job.parallelism;
  const int64_t context = parallel.context_parallel_size.value_or(1);
  training.sequence_length =
      *parallel.tensor_parallel_size * context * One(random, {16, 128, 1024});
  training.micro_batch_size = One(random, {1, 2, 3});
  training.global_batch_size = *training.micro_batch_size * *parallel.data_parallel_size *
                               *parallel.pipeline_parallel_size * One(random, {1, 2, 5});
  do {  // products in fp8 are RandomFp8Job's
    training.precision.preset = AnyWordOf(
        random, can, kPresets, [](const Preset& preset) { return AbilityOf(preset.name); });
  } while (training.precision.preset == "fp8-mixed" || training.precision.preset == "fp4-mixed");
  const bool engine = job.runtime.framework == "deepspeed";
  const bool sums = engine && training.precision.preset == "bf16-optimizer";
  if (sums && job.parallelism.zero_stage == 0) job.parallelism.zero_stage = 1;
  training.optimizer.name = AnyOptimizer(random, can);
  const bool flat = engine || job.runtime.framework == "fsdp1";
  if (flat && training.optimizer.name == "muon") training.optimizer.name = "adamw";
  const bool core = job.runtime.framework == "megatron-core";
  if (core && training.optimizer.name == "muon" && parallel.zero_stage == 1) {
    if (*parallel.pipeline_parallel_size > 1) job.parallelism.zero_stage = 0;
    job.runtime.versions["megatron-core"] = "0.17";  // which deals whole parameters
  }
  training.gradient_clipping = Once(random, 2);
  if (Once(random, 2)) {
    training.attention = Once(random, 2) && context == 1 ? "eager" : "memory-efficient";
  }
  if (Once(random, 3)) {
    training.loss.implementation = AnyWordOf(
        random, can, kLossImplementations, [](LossImplementation loss) { return AbilityOf(loss); });
    const bool splits =
        *parallel.tensor_parallel_size * context * *parallel.pipeline_parallel_size > 1;
    if (splits && training.loss.implementation == "tiled-log-probs") training.loss = {};
  }
  if (can.Has(Ability::kCompile) && Once(random, 3)) job.runtime.compile = true;
}

// What is modelled where a trainer's own loss and layers are: choices that are not give way.
void KeepPlain(RandomNumbers random, JobSpec& job) {
  job.training.loss = {};
  job.runtime.compile.reset();
  if (!job.training.recompute.mode.has_value()) return;
  job.training.recompute = {};
  job.training.recompute.mode = Once(random, 2) ? "full" : "none";
}

// What is modelled with an adapter; other choices give way.
void FillAdapter(RandomNumbers random, const Capabilities& can, JobSpec& job) {
  const ParallelismSpec& parallel = job.parallelism;
  const bool whole = *parallel.tensor_parallel_size == 1 && *parallel.pipeline_parallel_size == 1 &&
                     parallel.context_parallel_size.value_or(1) == 1;
  // What these two have adapters beside is little; their rules have tests of their own.
  const bool own = job.runtime.trainer == "torchtune" || job.runtime.trainer == "litgpt" ||
                   job.runtime.trainer == "nemo-automodel";
  if (!can.Has(Ability::kLora) || own || !whole || !Once(random, 2)) return;
  AdapterSpec& adapter = job.training.adapter;
  const bool dora = can.Has(Ability::kDora) && Once(random, 4);
  adapter.method = dora ? "dora" : "lora";
  adapter.rank = One(random, {1, 8, 64});
  for (int64_t i = Below(random, 3); i > 0; --i) {
    const std::string target = AnyWord(random, kAdapterTargets);
    // The head's is litgpt's alone; FillLinear adds those of linear attention, FillLatent its own.
    constexpr absl::string_view kDense[] = {"all-linear", "attention", "mlp",    "q_proj",
                                            "k_proj",     "v_proj",    "o_proj", "gate_proj",
                                            "up_proj",    "down_proj"};
    adapter.target_modules.push_back(absl::c_linear_search(kDense, target) ? target : "q_proj");
  }
  if (Shape(job).gated_mlp == false) adapter.target_modules.emplace_back("up_proj");
  if (Once(random, 2)) adapter.dropout = 0.1;
  const bool units = job.runtime.framework == "fsdp1" || job.runtime.framework == "fsdp2";
  const bool engine = job.runtime.framework == "deepspeed";
  job.training.precision.preset = units ? "bf16-pure" : AnyWord(random, kAdapterPresets);
  if (units || (!dora && Once(random, 2))) adapter.adapter_dtype = "bf16";
  if (engine) job.parallelism.zero_stage = One(random, {0, 1, 2, 3});
  if (engine || (units && Once(random, 2))) {
    job.training.precision.preset = "bf16-mixed";
    adapter.adapter_dtype = "fp32";
  }
  KeepPlain(random, job);
}

// The same by preferences; torchtune, which has pairs alone, by none.
void FillPreference(RandomNumbers random, const Capabilities& can, JobSpec& job) {
  const ParallelismSpec& parallel = job.parallelism;
  const bool whole = *parallel.tensor_parallel_size == 1 && *parallel.pipeline_parallel_size == 1 &&
                     parallel.context_parallel_size.value_or(1) == 1;
  if (!can.Has(Ability::kGrpo) || !whole || !Once(random, 2)) return;
  job.parallelism.context_parallel_method.reset();  // TRL splits no sequence
  PreferenceSpec& preference = job.training.preference;
  const std::string method = AnyWord(random, kPreferenceMethods);
  preference.method = method;
  const PreferenceRow& row = RowOf(*FindWord(method, kPreferenceMethods));
  const bool adapter = job.training.adapter.method.has_value();
  const bool units = job.runtime.framework == "fsdp2";
  const char* const references[] = {"model", "precomputed", "adapters-off"};
  const bool alone = adapter && !units;
  if (row.compares && !row.samples) preference.reference = references[Below(random, alone ? 3 : 2)];
  if (row.samples && Once(random, 2)) preference.reference = "model";
  if (row.samples && units) job.training.global_batch_size.reset();  // one micro-batch
  const bool engine = job.runtime.framework == "deepspeed";
  if (engine) job.parallelism.zero_stage = One(random, {0, 1, 2, row.runs_twice ? 0 : 3});
  if (engine || (units && !adapter)) job.training.precision.preset = "bf16-mixed";
  if (!adapter && !engine && !units) {
    job.training.precision.preset = AnyWord(random, kAdapterPresets);
  }
  if (units && !adapter) job.runtime.offload_parameters.reset();
  KeepPlain(random, job);
}

// Frozen weights in 4 bits, and what is not quantized in 16 or 32.
void FillQuantization(RandomNumbers random, const Capabilities& can, JobSpec& job) {
  const bool plain = !job.training.preference.method.has_value();
  const bool frozen = job.training.adapter.method == "lora" && plain;
  if (!frozen || !can.Has(Ability::kNf4) || !Once(random, 2)) return;
  const bool engine = job.runtime.framework == "deepspeed";
  if (engine && job.parallelism.zero_stage == 3) job.parallelism.zero_stage = 2;
  if (job.runtime.framework == "fsdp2" && job.runtime.trainer != "trl") {
    job.runtime.trainer = "hf-trainer";  // accelerate leaves them unsharded
    job.runtime.versions.erase("torch");
    job.parallelism.context_parallel_method.reset();  // it splits no sequence
  }
  QuantizationSpec& quantization = job.training.quantization;
  quantization.format = Once(random, 2) ? "nf4" : "fp4";
  quantization.double_quantization = Once(random, 2);
  if (Once(random, 3)) quantization.compute_dtype = "fp32";
  PrecisionSpec& precision = job.training.precision;
  const bool autocast = precision.preset == "bf16-autocast";
  if (autocast && job.training.attention != "eager" && Once(random, 2)) {
    precision.parameter_dtype = "fp32";
  }
}

// Copies of the tables that are trained whole beside adapters, and states in managed memory.
void FillTrainedModules(RandomNumbers random, const Capabilities& can, JobSpec& job) {
  TrainingSpec& training = job.training;
  const std::string& optimizer = *training.optimizer.name;
  const bool adam = optimizer == "adam" || optimizer == "adamw";
  if (job.runtime.framework != "ddp") return;
  const bool paged = RowOf(*FindWord(optimizer, kOptimizers)).pages;
  if (paged && Once(random, 3)) training.optimizer.paged = true;
  const bool adapter = training.adapter.method.has_value();
  const bool masters = FindWord(*training.precision.preset, kPresets)->master != DType::kNone;
  const bool in_backward = !adapter && !masters && *job.parallelism.data_parallel_size == 1 &&
                           training.micro_batch_size == training.global_batch_size;
  const bool each = can.Has(Ability::kOptimizerInBackward) &&
                    !training.preference.method.has_value() &&
                    training.loss.implementation.value_or("plain") == "plain";
  if (in_backward && each && training.optimizer.paged == true && Once(random, 2)) {
    training.optimizer.in_backward = true;
    training.gradient_clipping = false;
  }
  const bool plain = !training.quantization.format.has_value() &&
                     !training.preference.method.has_value() && job.runtime.trainer != "trl";
  const bool alone =
      *job.parallelism.data_parallel_size == 1 && !training.optimizer.paged.has_value();
  if (!training.adapter.method.has_value() || !plain || !alone || !adam) return;
  if (Shape(job).tied_embeddings != false || !Once(random, 2)) return;
  training.adapter.trained_modules = {AnyWord(random, kTrainedModules)};
  if (Once(random, 2)) training.adapter.trained_modules = {"embed_tokens", "lm_head"};
}

// Experts in place of the MLP; what is not modelled beside them gives way.
void FillExperts(RandomNumbers random, const Capabilities& can, JobSpec& job) {
  const TrainingSpec& training = job.training;
  const bool plain = training.preference.method.value_or("") != "reward" &&  // another head
                     training.precision.preset != "fp8-lm";
  const ParallelismSpec& parallel = job.parallelism;
  const bool whole = *parallel.tensor_parallel_size == 1 && *parallel.pipeline_parallel_size == 1 &&
                     parallel.context_parallel_size.value_or(1) == 1;
  const bool own = can.Has(Ability::kTokenDispatcher);  // RandomDispatchedJob's
  if (!can.Has(Ability::kExperts) || own || !plain || !whole || !Once(random, 2)) return;
  TransformerSpec& shape = Shape(job);
  shape.norm_placement = "pre";
  shape.activation = "silu";
  shape.mlp_bias = false;
  shape.expert_count = One(random, {2, 8, 60});
  shape.active_expert_count = One(random, {1, 2});
  if (Once(random, 2)) shape.expert_ffn_size = One(random, {32, 768});
  if (Once(random, 3)) shape.shared_expert_ffn_size = 256;
  if (Once(random, 3)) shape.dense_layer_count = 1;
  if (job.runtime.trainer == "torchtitan") {
    shape.gated_mlp = true;
    job.training.precision.preset = Once(random, 2) ? "bf16-mixed" : "bf16-pure";
    const bool even = *parallel.data_parallel_size % 2 == 0;
    const bool apart = can.Has(Ability::kExpertParallel) && even && Once(random, 2);
    if (apart) job.parallelism.expert_parallel_size = 2;
  }
  const bool engine = job.runtime.framework == "deepspeed";
  if (engine && parallel.zero_stage == 3) job.parallelism.zero_stage = 2;
  if (training.adapter.method.has_value()) {
    AdapterSpec& adapter = job.training.adapter;
    const bool reached = job.runtime.framework == "ddp" && Once(random, 2);
    adapter.method = "lora";
    adapter.target_modules = {"q_proj", reached ? "all-linear" : "v_proj"};
    if (reached) adapter.dropout.reset();
    if (reached) shape.gated_mlp = true;
  }
  const bool adam = Once(random, 2) || job.runtime.trainer == "torchtitan";
  job.training.optimizer.name = adam ? "adamw" : "sgd";
  job.cluster.gpu = Once(random, 2) ? "h100-80gb-sxm" : "a100-80gb-sxm";
  KeepPlain(random, job);
}

// Keys and values of few numbers; what is not modelled beside them gives way.
void FillLatent(RandomNumbers random, const Capabilities& can, JobSpec& job) {
  const TrainingSpec& training = job.training;
  const ParallelismSpec& parallel = job.parallelism;
  const bool core = job.runtime.framework == "megatron-core";
  const bool splits = parallel.context_parallel_size.value_or(1) > 1;
  const bool whole =
      *parallel.tensor_parallel_size == 1 && *parallel.pipeline_parallel_size == 1 && !splits;
  const bool plain = training.preference.method.value_or("") != "reward";
  if (!can.Has(Ability::kLatentAttention) || !plain || (!core && !whole) || !Once(random, 3)) {
    return;
  }
  TransformerSpec& shape = Shape(job);
  shape.kv_head_count = shape.head_count;
  shape.norm_placement = "pre";
  shape.head_size = One(random, {24, 48, 192});
  shape.key_value_rank = One(random, {16, 40, 512});
  if (Once(random, 2)) shape.query_rank = One(random, {24, 96});
  shape.rotary_head_size = One(random, {8, 16});
  if (Once(random, 2)) shape.value_head_size = One(random, {16, 128});
  shape.qk_norm = "per-rank";
  if (shape.position_embedding == "alibi") shape.position_embedding = "rotary";
  job.runtime.compile.reset();
  if (training.adapter.method.has_value()) {
    const bool all = !shape.expert_count.has_value() && Once(random, 2);
    job.training.adapter.target_modules = {"kv_b_proj", all ? "all-linear" : "o_proj"};
  }
  if (!core) return;
  if (Once(random, 2) || !shape.query_rank.has_value()) shape.qk_norm = "none";
  job.runtime.transformer_implementation.reset();
  if (splits) {  // heads that cuDNN takes everywhere
    job.parallelism.context_parallel_method = "ring";
    shape.head_size = 48;
    shape.value_head_size = 16;
  }
  if (training.recompute.mode != "selective") return;
  job.training.recompute.modules = {Once(random, 2) ? "core-attention" : "norm"};
  if (Once(random, 2)) job.training.recompute.modules.push_back("up-projection");
}

// Gated delta networks in place of attention; what is not modelled beside them gives way.
void FillLinear(RandomNumbers random, const Capabilities& can, JobSpec& job) {
  const ParallelismSpec& parallel = job.parallelism;
  const bool whole = *parallel.tensor_parallel_size == 1 && *parallel.pipeline_parallel_size == 1 &&
                     parallel.context_parallel_size.value_or(1) == 1;
  TransformerSpec& shape = Shape(job);
  const bool other = shape.key_value_rank.has_value() || shape.dense_layer_count.has_value();
  if (!can.Has(Ability::kLinearAttention) || !whole || other || !Once(random, 3)) return;
  shape.linear_value_head_count = One(random, {2, 4, 6});
  if (Once(random, 2)) shape.linear_key_head_count = 2;
  shape.linear_key_head_size = One(random, {16, 24});
  shape.linear_value_head_size = One(random, {16, 40});
  if (Once(random, 3)) shape.linear_kernel_size = 2;
  if (Once(random, 2)) shape.attention_period_size = One(random, {2, 3});
  shape.attention_gate = Once(random, 2);
  shape.norm_placement = "pre";
  shape.norm = "rms-norm";
  TrainingSpec& training = job.training;
  if (Once(random, 2)) training.linear_attention = AnyWord(random, kLinearAttentionKernels);
  AdapterSpec& adapter = training.adapter;
  if (adapter.method == "dora") adapter.method = "lora";
  const bool nowhere = *shape.layer_count < shape.attention_period_size.value_or(4);
  if (adapter.method.has_value() && (nowhere || Once(random, 2))) {
    adapter.target_modules.emplace_back(Once(random, 2) ? "in_proj_qkv" : "out_proj");
  }
  std::string& preset = *training.precision.preset;
  if (preset.find("fp16") == 0) preset = adapter.method.has_value() ? "bf16-pure" : "bf16-mixed";
  KeepPlain(random, job);
}

// Experts over ranks, and how tokens come to them.
void FillDispatch(RandomNumbers random, JobSpec& job) {
  TransformerSpec& shape = Shape(job);
  ParallelismSpec& parallel = job.parallelism;
  shape.norm_placement = "pre";
  shape.activation = shape.gated_mlp == true ? "silu" : "gelu";
  shape.mlp_bias = false;
  shape.expert_count = One(random, {2, 8, 60});
  shape.active_expert_count = One(random, {1, 2});
  if (Once(random, 2)) shape.expert_ffn_size = One(random, {32, 768});
  if (Once(random, 3)) shape.shared_expert_ffn_size = 256;
  if (*shape.layer_count > 1 && Once(random, 3)) shape.dense_layer_count = 1;
  if (*parallel.tensor_parallel_size > 1) {
    parallel.sequence_parallel = true;
    if (Once(random, 2)) parallel.expert_tensor_parallel_size = 1;
  }
  if (*parallel.data_parallel_size % 2 == 0 && Once(random, 2)) parallel.expert_parallel_size = 2;
  if (Once(random, 2)) parallel.token_dispatcher = "all-to-all";
  if (Once(random, 3)) job.training.precision.router_dtype = "fp32";
  job.training.optimizer.name = Once(random, 2) ? "adamw" : "sgd";
  job.runtime.deterministic = Once(random, 2);
  job.runtime.grouped_gemm = job.runtime.transformer_implementation != "local" && Once(random, 2);
  KeepPlain(random, job);
  if (Once(random, 2)) FillModules(random, job);
}

// Ranks that split each sequence, by a method that the framework has.
void FillContexts(RandomNumbers random, const Capabilities& can, ParallelismSpec& parallel) {
  const auto of = [](ContextParallelMethod method) { return AbilityOf(method); };
  const bool any =
      std::any_of(std::begin(kContextParallelMethods), std::end(kContextParallelMethods),
                  [&](const auto& word) { return can.Has(of(word.value)); });
  if (!any || !Once(random, 2)) return;
  parallel.context_parallel_method = AnyWordOf(random, can, kContextParallelMethods, of);
  parallel.context_parallel_size = One(random, {1, 2, 4});
}

// Transformer Engine's kernels split sequences, in 16 bits; other choices give way.
void KeepKernels(RandomNumbers random, JobSpec& job) {
  const bool splits = job.parallelism.context_parallel_size.value_or(1) > 1;
  if (job.runtime.framework != "megatron-core" || !splits) return;
  job.runtime.transformer_implementation.reset();
  job.training.precision.preset = Once(random, 2) ? "bf16-mixed" : "fp16-mixed";
  job.training.attention = Once(random, 2) ? "flash" : "cudnn";
  job.cluster.gpu = Once(random, 2) ? "h100-80gb-sxm" : "a100-80gb-sxm";
  if (job.parallelism.context_parallel_method == "ulysses") {  // no head is copied
    Shape(job).kv_head_count = Shape(job).head_count;
  }
  if (job.training.recompute.mode != "selective") return;
  job.training.recompute = {};
  job.training.recompute.mode = "full";
}

// But RandomMegatronFsdpJob's.
int64_t AnyZeroStage(RandomNumbers random, bool core, const Capabilities& can) {
  while (true) {
    const int64_t stage = Below(random, 4);
    if (can.Has(AbilityOfZero(stage)) && (!core || stage < 2)) return stage;
  }
}

// A part of a plain model.
void FillTrainedPart(RandomNumbers random, const Capabilities& can, JobSpec& job) {
  const TransformerSpec& shape = Shape(job);
  const bool tuned = job.training.adapter.method.has_value() ||
                     job.training.preference.method.has_value() || shape.head.has_value();
  if (!can.Has(Ability::kFrozenParts) || tuned || !Once(random, 3)) return;
  TrainedSpec& trained = job.training.trained;
  for (const Word<ModelPart>& part : kModelParts) {
    if (Once(random, 2)) trained.modules.emplace_back(part.name);
  }
  if (Once(random, 2)) trained.layer_count = Below(random, *shape.layer_count + 1);
  KeepPlain(random, job);
  if (!Refusals(job).empty()) trained = {};
}

// Another of PEFT's methods in LoRA's place, where nothing that stands beside it is refused.
void FillOtherMethod(RandomNumbers random, JobSpec& job) {
  if (job.training.adapter.method != "lora" || !Once(random, 3)) return;
  const JobSpec before = job;
  constexpr absl::string_view kMethods[] = {"ia3", "prompt-tuning", "p-tuning", "prefix-tuning"};
  AdapterSpec& adapter = job.training.adapter;
  adapter.method = std::string(kMethods[Below(random, 4)]);
  adapter.rank.reset();
  adapter.dropout.reset();
  adapter.trained_modules.clear();
  if (adapter.method == "ia3") {
    if (Once(random, 2)) adapter.feedforward_modules = adapter.target_modules;
  } else {
    adapter.target_modules.clear();
    adapter.virtual_token_count = One(random, {1, 8, 100});
  }
  const bool prefix = adapter.method == "prefix-tuning";
  if (prefix && Once(random, 2)) adapter.prefix_projection = true;
  const bool encodes = adapter.method == "p-tuning" || adapter.prefix_projection == true;
  if (encodes && Once(random, 2)) adapter.encoder_hidden_size = One(random, {24, 96});
  if (prefix) job.training.recompute = {};
  if (!Refusals(job).empty()) job = before;
}

// Layers of which NeMo Automodel has classes; what was not held beside them gives way.
void KeepOwnClasses(JobSpec& job) {
  if (job.runtime.trainer != "nemo-automodel") return;
  TransformerSpec& shape = Shape(job);
  shape.gated_mlp = true;
  shape.activation = "silu";
  shape.norm = "rms-norm";
  shape.norm_placement.reset();
  shape.position_embedding.reset();
  shape.head.reset();
  if (shape.qk_norm == "full") shape.qk_norm.reset();
  job.training.adapter.dropout.reset();
  job.training.adapter.trained_modules.clear();
}

}  // namespace

JobSpec RandomJob(RandomNumbers random) {
  const auto& profiles = Profiles();
  const Profile& profile =
      profiles[static_cast<size_t>(Below(random, static_cast<int64_t>(profiles.size())))];
  JobSpec job;
  job.runtime.framework = std::string(profile.name);
  const Capabilities can = FillTrainer(random, profile, job);
  ParallelismSpec& parallel = job.parallelism;
  const auto degree = [&](Ability ability, std::initializer_list<int64_t> of) {
    return can.Has(ability) ? One(random, of) : 1;
  };
  parallel.tensor_parallel_size = degree(Ability::kTensorParallel, {1, 2, 4});
  parallel.pipeline_parallel_size = degree(Ability::kPipelineParallel, {1, 1, 2, 4});
  parallel.data_parallel_size = degree(Ability::kDataParallel, {1, 2, 8});
  FillContexts(random, can, parallel);
  parallel.zero_stage = AnyZeroStage(random, job.runtime.framework == "megatron-core", can);
  const int64_t layers_of_stage = One(random, {2, 4});
  TransformerSpec shape;
  FillShape(random, *parallel.tensor_parallel_size, parallel.context_parallel_size.value_or(1),
            layers_of_stage * *parallel.pipeline_parallel_size, shape);
  job.model.source = shape;
  FillPipeline(random, can, job);
  FillTraining(random, can, job);
  if (!Once(random, 3)) FillRecompute(random, can, layers_of_stage, job);
  FillAdapter(random, can, job);
  FillPreference(random, can, job);
  FillQuantization(random, can, job);
  const char* const gpus[] = {"a100-80gb-sxm", "h100-80gb-sxm", "v100-32gb-sxm", "rtx-4090"};
  job.cluster.gpu = gpus[Below(random, 4)];
  FillExperts(random, can, job);
  FillLatent(random, can, job);
  FillLinear(random, can, job);
  FillTrainedModules(random, can, job);
  KeepKernels(random, job);
  KeepOwnClasses(job);
  FillTrainedPart(random, can, job);
  if (Shape(job).key_value_rank.has_value() && job.training.attention != "eager") {
    job.training.attention.reset();  // which kernel takes its heads
  }
  FillOtherMethod(random, job);
  return job;
}

JobSpec RandomJob(std::mt19937_64& random) {
  return RandomJob([&random] { return random(); });
}

JobSpec RandomDispatchedJob(std::mt19937_64& random) {
  while (true) {
    JobSpec job = RandomJob(random);
    if (job.runtime.framework != "megatron-core") continue;
    FillDispatch([&random] { return random(); }, job);
    if (Refusals(job).empty()) return job;
  }
}

JobSpec RandomOffloadedJob(std::mt19937_64& random, absl::string_view framework) {
  while (true) {
    JobSpec job = RandomJob(random);
    if (job.runtime.framework != framework) continue;
    const bool engine = framework == "deepspeed";
    job.runtime.offload_parameters = !engine || job.parallelism.zero_stage == 3;
    if (engine) job.runtime.offload_optimizer = true;
    if (Refusals(job).empty()) return job;
  }
}

JobSpec RandomJobOfOffloadedLayers(std::mt19937_64& random) {
  while (true) {
    JobSpec job = RandomJob(random);
    if (job.runtime.trainer != "torchtune" && job.runtime.trainer != "trl") continue;
    job.training.recompute = {};
    job.training.recompute.mode = "full";
    job.runtime.offload_activations = true;
    if (Refusals(job).empty()) return job;
  }
}

JobSpec RandomLigerJob(std::mt19937_64& random) {
  while (true) {
    JobSpec job = RandomJob(random);
    const std::string& framework = *job.runtime.framework;
    if (framework != "ddp" && framework != "deepspeed" && !framework.starts_with("fsdp")) continue;
    TransformerSpec& shape = Shape(job);
    shape.gated_mlp = true;
    shape.activation = random() % 4 == 0 ? "gelu-tanh" : "silu";
    shape.norm = "rms-norm";
    shape.norm_placement.reset();
    shape.position_embedding.reset();
    shape.head.reset();
    shape.mlp_bias.reset();
    if (shape.qk_norm == "full") shape.qk_norm.reset();
    job.runtime.liger_kernel = true;
    job.runtime.compile.reset();
    if (random() % 2 == 0) job.training.loss = {};
    if (random() % 3 == 0) job.runtime.versions["liger-kernel"] = "0.7";
    if (Refusals(job).empty()) return job;
  }
}

JobSpec RandomDistilledJob(std::mt19937_64& random) {
  while (true) {
    JobSpec job = RandomJob(random);
    const bool engine = job.runtime.framework == "deepspeed";
    if (!engine && job.runtime.framework != "ddp") continue;
    job.runtime.trainer = "trl";
    job.runtime.versions.erase("torch");
    job.training.preference = {};
    job.training.quantization = {};
    job.training.loss = {};
    Shape(job).vocab_size = 128256;
    job.training.distillation.teacher = "llama-3.1-8b";
    job.training.distillation.jsd_beta = static_cast<double>(random() % 3) / 2;
    if (Refusals(job).empty()) return job;
  }
}

JobSpec RandomMambaJob(std::mt19937_64& random) {
  while (true) {
    JobSpec job = RandomJob(random);
    const bool selective = random() % 3 > 0, wide = random() % 2 == 0;
    const auto channels = static_cast<int64_t>(16u << random() % 6);
    const StateSpace space = {.head_count = selective ? channels : 4,
                              .head_size = selective ? 1 : channels / 4,
                              .state_size = static_cast<int64_t>(8u << random() % 4),
                              .step_rank = selective ? static_cast<int64_t>(1 + random() % 8) : 0,
                              .bias = random() % 2 == 0,
                              .convolution_bias = random() % 2 == 0};
    job = WithModel(job, [&](Transformer& model) {
      model.one_sublayer = true;
      model.attended = {.period = 1, .to = 0};
      model.experts = {};
      model.wide_residual = wide;
      model.state_space = space;
    });
    if (Refusals(job).empty()) return job;
  }
}

JobSpec RandomSteppedJob(std::mt19937_64& random) {
  const char* const compressing[] = {"onebit-adam", "zero-one-adam", "onebit-lamb"};
  while (true) {
    JobSpec job = RandomJob(random);
    OptimizerSpec& optimizer = job.training.optimizer;
    optimizer = {};
    job.training.precision.optimizer_state_dtype.reset();
    if (job.runtime.framework == "deepspeed") {
      job.runtime.versions["deepspeed"] = "0.18";
      job.parallelism.zero_stage = 0;
      optimizer.name = compressing[random() % 3];
    } else if (job.runtime.framework == "ddp") {
      optimizer.name = random() % 2 == 0 ? "galore-adamw" : "apollo-adamw";
      optimizer.rank = 1 + random() % 300;
      if (random() % 2 == 0) {
        optimizer.target_modules = {
            std::string(kProjectedParts[random() % std::size(kProjectedParts)].name)};
      }
    } else {
      continue;
    }
    if (Refusals(job).empty()) return job;
  }
}

JobSpec RandomMegatronFsdpJob(std::mt19937_64& random) {
  while (true) {
    JobSpec job = random() % 3 == 0 ? RandomDispatchedJob(random) : RandomJob(random);
    if (job.runtime.framework != "megatron-core") continue;
    TrainingSpec& training = job.training;
    training.precision = {};
    training.precision.preset = random() % 3 == 0 ? "fp16-mixed" : "bf16-mixed";
    training.optimizer = {};
    training.optimizer.name = random() % 3 == 0 ? "sgd-momentum" : "adamw";
    training.mtp_layer_count.reset();
    job.parallelism.zero_stage = 2 + random() % 2;
    job.parallelism.pipeline_parallel_size = 1;
    job.parallelism.pipeline_layout.clear();
    job.parallelism.pipeline_schedule.reset();
    job.parallelism.virtual_pipeline_size.reset();
    job.parallelism.micro_batch_group_size.reset();
    job.cluster.gpu_count.reset();
    if (random() % 2 == 0) job.runtime.overlap_communication = true;
    if (random() % 3 == 0) job.runtime.versions["megatron-core"] = "0.16";
    if (Refusals(job).empty()) return job;
  }
}

JobSpec RandomFp8Job(std::mt19937_64& random) {
  const char* const recipes[] = {"delayed", "tensorwise", "blockwise", "mxfp8"};
  while (true) {
    const bool dispatched = random() % 2 == 0;
    JobSpec job = dispatched ? RandomDispatchedJob(random) : RandomJob(random);
    if (job.runtime.framework != "megatron-core") continue;
    if (dispatched) job.runtime.grouped_gemm = true;
    PrecisionSpec& precision = job.training.precision;
    precision = {};
    if (random() % 5 == 0) {
      precision.preset = "fp4-mixed";
    } else {
      precision.fp8_recipe = recipes[random() % 4];
      precision.fp8_parameters = random() % 2 == 0;
    }
    job.cluster.gpu = random() % 2 == 0 ? "h100-80gb-sxm" : "b200-180gb";
    job.runtime.transformer_implementation.reset();
    if (Refusals(job).empty()) return job;
  }
}

JobSpec RandomMtpJob(std::mt19937_64& random) {
  while (true) {
    const uint64_t of = random() % 3;
    JobSpec job = of == 0   ? RandomFp8Job(random)
                  : of == 1 ? RandomDispatchedJob(random)
                            : RandomJob(random);
    if (job.runtime.framework != "megatron-core") continue;
    TransformerSpec& shape = Shape(job);
    shape.position_embedding = "rotary";
    shape.position_count.reset();
    shape.tied_embeddings = false;
    shape.hidden_dropout.reset();
    job.training.mtp_layer_count = 1;
    if (job.training.recompute.unit_layer_count.value_or(1) > 1) {
      job.training.recompute.unit_layer_count.reset();
    }
    if (Refusals(job).empty()) return job;
  }
}

namespace {

int64_t JunkNumber(RandomNumbers random) {
  switch (Below(random, 8)) {
    case 0:
      return std::numeric_limits<int64_t>::min();
    case 1:
      return std::numeric_limits<int64_t>::max();
    case 2:
      return -1;
    case 3:
      return 0;
    case 4:
      return int64_t{1} << Below(random, 63);
    default:
      return 1 + Below(random, 64);
  }
}

constexpr int kJunkRarity = 10;  // of the fields of a job, so that some junk is harmless

void Junk(RandomNumbers random, std::optional<int64_t>& field) {
  if (Once(random, kJunkRarity)) field = JunkNumber(random);
}

void Junk(RandomNumbers random, std::optional<bool>& field) {
  if (Once(random, kJunkRarity)) field = Once(random, 2);
}

void Junk(RandomNumbers random, std::optional<double>& field) {
  const double values[] = {-1,
                           0,
                           0.5,
                           1e308,
                           std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity()};
  if (Once(random, kJunkRarity)) field = values[Below(random, 6)];
}

// Half of what is set is a word of the API, so that junk gets beyond the first check.
template <typename Value, size_t kCount>
void Junk(RandomNumbers random, std::optional<std::string>& field,
          const Word<Value> (&words)[kCount]) {
  if (!Once(random, kJunkRarity)) return;
  field = Once(random, 2) ? AnyWord(random, words)
                          : std::string(static_cast<size_t>(Below(random, 200)), '\xff');
}

void JunkShape(RandomNumbers random, TransformerSpec& shape) {
  for (auto* field : {&shape.hidden_size,
                      &shape.layer_count,
                      &shape.head_count,
                      &shape.kv_head_count,
                      &shape.head_size,
                      &shape.ffn_size,
                      &shape.vocab_size,
                      &shape.position_count,
                      &shape.expert_count,
                      &shape.active_expert_count,
                      &shape.dense_layer_count,
                      &shape.key_value_rank,
                      &shape.query_rank,
                      &shape.rotary_head_size,
                      &shape.value_head_size,
                      &shape.linear_key_head_count,
                      &shape.linear_value_head_count,
                      &shape.linear_key_head_size,
                      &shape.linear_value_head_size,
                      &shape.linear_kernel_size,
                      &shape.attention_period_size}) {
    Junk(random, *field);
  }
  Junk(random, shape.activation, kActivations);
  Junk(random, shape.norm, kNorms);
  Junk(random, shape.norm_placement, kNormPlacements);
  Junk(random, shape.qk_norm, kQkNorms);
  Junk(random, shape.position_embedding, kPositionEmbeddings);
  Junk(random, shape.gated_mlp);
  Junk(random, shape.tied_embeddings);
  Junk(random, shape.hidden_dropout);
  Junk(random, shape.attention_dropout);
}

void JunkTraining(RandomNumbers random, TrainingSpec& training) {
  Junk(random, training.sequence_length);
  Junk(random, training.micro_batch_size);
  Junk(random, training.global_batch_size);
  Junk(random, training.precision.preset, kPresets);
  Junk(random, training.precision.fp8_recipe, kFp8Recipes);
  Junk(random, training.precision.fp8_parameters);
  Junk(random, training.optimizer.name, kOptimizers);
  Junk(random, training.optimizer.implementation, kOptimizerImplementations);
  Junk(random, training.recompute.mode, kRecomputeModes);
  Junk(random, training.recompute.interval);
  Junk(random, training.recompute.unit_layer_count);
  Junk(random, training.attention, kAttentionKernels);
  Junk(random, training.linear_attention, kLinearAttentionKernels);
  Junk(random, training.loss.implementation, kLossImplementations);
  Junk(random, training.loss.chunk_count);
  Junk(random, training.preference.method, kPreferenceMethods);
  Junk(random, training.preference.reference, kReferences);
  Junk(random, training.trained.layer_count);
  Junk(random, training.adapter.method, kAdapterMethods);
  Junk(random, training.adapter.rank);
  Junk(random, training.adapter.dropout);
  Junk(random, training.adapter.adapter_dtype, kAdapterDTypes);
}

void JunkParallelism(RandomNumbers random, ParallelismSpec& parallel) {
  for (auto* field :
       {&parallel.data_parallel_size, &parallel.zero_stage, &parallel.shard_group_size,
        &parallel.tensor_parallel_size, &parallel.context_parallel_size,
        &parallel.pipeline_parallel_size, &parallel.virtual_pipeline_size}) {
    Junk(random, *field);
  }
  Junk(random, parallel.sequence_parallel);
  Junk(random, parallel.context_parallel_method, kContextParallelMethods);
  Junk(random, parallel.pipeline_schedule, kPipelineSchedules);
  if (!Once(random, kJunkRarity)) return;
  for (int64_t i = Below(random, 6); i > 0; --i) {
    parallel.pipeline_layout.push_back(JunkNumber(random));
  }
}

}  // namespace

JobSpec JunkJob(std::mt19937_64& numbers) {
  const auto random = [&numbers] { return numbers(); };
  JobSpec job = RandomJob(random);
  JunkShape(random, Shape(job));
  JunkTraining(random, job.training);
  JunkParallelism(random, job.parallelism);
  Junk(random, job.runtime.framework, kFrameworks);
  Junk(random, job.runtime.vocab_size_divisor);
  Junk(random, job.runtime.reduce_bucket_element_count);
  if (Once(random, 10)) job.runtime.versions["torch"] = std::string(300, '9');
  if (Once(random, 10)) job.runtime.cublas_workspace_config = ":2147483647:2147483647";
  Junk(random, job.cluster.gpu_memory_bytes);
  Junk(random, job.cluster.gpu_count);
  Junk(random, job.cluster.gpus_per_node);
  Junk(random, job.cluster.reserved_for_others_bytes);
  Junk(random, job.risk);
  return job;
}

int Rounds(int count) {
#ifdef PLIMSOLL_SANITIZED
  return (count + 9) / 10;
#else
  const char* const times = std::getenv("PLIMSOLL_ROUNDS");
  return times == nullptr ? count : count * std::max(std::atoi(times), 1);
#endif
}

}  // namespace plimsoll
