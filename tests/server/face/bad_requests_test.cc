// Bad requests, each with the exact words it gets, over HTTP and gRPC alike; the
// server lives on.
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/json_util.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/support/status.h"
#include "gtest/gtest.h"
#include "server/wire/field_names.h"
#include "server/wire/json.h"
#include "tests/server/running_server.h"

namespace plimsoll {
namespace {

using google::protobuf::Value;

// A good request, with some of its fields set to other JSON.
struct BadRequestCase {
  const char* name;
  std::vector<std::pair<std::string, std::string>> edits;
  std::vector<std::string> lines;
};

const std::vector<BadRequestCase>& Cases() {
  static const auto* const kCases = new std::vector<BadRequestCase>{
      // Shape.
      {"JobIsNoObject", {{"job", R"(5)"}}, {"job: 5; must be an object"}},
      {"UnknownSection",
       {{"job.trainning", R"({})"}},
       {"job.trainning: an object; no such field, did you mean training"}},
      {"UnknownField",
       {{"job.training.sequence_lenght", R"(1)"}},
       {"job.training.sequence_lenght: 1; no such field, did you mean sequence_length"}},
      {"FieldInTheWrongSection",
       {{"job.parallelism.micro_batch_size", R"(1)"}},
       {"job.parallelism.micro_batch_size: 1; no such field here, it is "
        "job.training.micro_batch_size"}},
      {"CamelCaseSlip",
       {{"job.training.microBatchSze", R"(1)"}},
       {"job.training.microBatchSze: 1; no such field, did you mean micro_batch_size"}},
      {"NotModelledExpertParallel",
       {{"job.parallelism.expert_parallel_size", R"(8)"}},
       {"job.parallelism.expert_parallel_size: 8; is not modelled with fsdp2: megatron-core's is, "
        "and torchtitan's"}},
      {"NotModelledAdapter",
       {{"job.training.adapter", R"({"method": "vera"})"}},
       {"job.training.adapter.method: vera; not modelled yet: of PEFT's methods LoRA, DoRA, IA3, "
        "prompts and prefixes are"}},
      {"NotModelledOffload",
       {{"job.training.offload", R"("cpu")"}},
       {"job.training.offload: \"cpu\"; not modelled yet"}},
      {"UnknownDetail", {{"detail", R"("exact")"}}, {"detail: exact; must be summary or replay"}},
      {"TimelineOfASummary",
       {{"detail", R"("summary")"}, {"include_timeline", "true"}},
       {"include_timeline: true; needs detail replay"}},
      {"AllocatorOutOfRange",
       {{"job.runtime.allocator",
         R"({"max_split_size_bytes": 20971520, "roundup_power2_division_count": [3],
             "garbage_collection_threshold": 1.5, "memory_fraction": -0.1})"}},
       {"job.runtime.allocator.max_split_size_bytes: 20971520; must be from 20971521 to "
        "1125899906842624",
        "job.runtime.allocator.roundup_power2_division_count[0]: 3; must be 0 or a power of 2 up "
        "to 64",
        "job.runtime.allocator.garbage_collection_threshold: 1.5; must be from 0 to 1",
        "job.runtime.allocator.memory_fraction: -0.1; must be from 0 to 1"}},
      {"AllocatorHalfSaid",
       {{"job.runtime.allocator",
         R"({"garbage_collection_threshold": 0.8, "roundup_power2_division_count": [1, 2]})"}},
       {"job.runtime.allocator.roundup_power2_division_count: 2 numbers; must be one number, or 16",
        "job.runtime.allocator.garbage_collection_threshold: 0.8; moves no byte without "
        "memory_fraction"}},
      {"ProfiledWithoutItsGpu",
       {{"job", R"({"model": {"profiled": {"measured_gpu_count": 1,
                    "first_step": {"forward": {"allocated_bytes": 1, "reserved_bytes": 1}},
                    "steady_step": {"forward": {"allocated_bytes": 1, "reserved_bytes": 1}}}}})"}},
       {"job.model.profiled.measured_gpu: unset; must be set"}},
      {"TextForANumber",
       {{"job.training.sequence_length", R"("4k")"}},
       {"job.training.sequence_length: \"4k\"; must be an integer of 64 bits"}},
      {"FractionForANumber",
       {{"job.training.sequence_length", R"(4096.5)"}},
       {"job.training.sequence_length: 4096.5; must be an integer of 64 bits"}},
      {"NumberBeyond64Bits",
       {{"job.training.sequence_length", R"(1e+30)"}},
       {"job.training.sequence_length: 1e+30; must be an integer of 64 bits"}},
      {"NumberForAName",
       {{"job.runtime.framework", R"(2)"}},
       {"job.runtime.framework: 2; must be a string, as \"2\""}},
      {"NumberForAVersion",
       {{"job.runtime.framework", R"("ddp")"}, {"job.runtime.versions", R"({"torch": 2.4})"}},
       {"job.runtime.versions.torch: 2.4; must be a string, as \"2.4\"",
        "job.parallelism.zero_stage: 3; must be 0 with ddp"}},
      {"TextForABool",
       {{"job.training.gradient_clipping", R"("yes")"}},
       {"job.training.gradient_clipping: \"yes\"; must be true or false"}},
      {"ListForANumber",
       {{"job.cluster.gpu_count", R"([8])"}},
       {"job.cluster.gpu_count: a list; must be an integer of 64 bits"}},
      {"NumberForAList",
       {{"job.parallelism.pipeline_layout", R"(32)"}},
       {"job.parallelism.pipeline_layout: 32; must be a list"}},
      {"NullInAList",
       {{"job.parallelism.pipeline_layout", R"([16, null])"}},
       {"job.parallelism.pipeline_layout[1]: null; must be an integer of 64 bits"}},
      {"TwoModels",
       {{"job.model", R"({"name": "gpt2", "hf_config": {}})"}},
       {"job.model.name: \"gpt2\"; must not stand beside hf_config",
        "job.model.hf_config.model_type: unset; must be set; of a dense decoder's fields it lacks "
        "hidden_size, num_hidden_layers, num_attention_heads, vocab_size, intermediate_size"}},
      {"TextForRisk", {{"risk", R"("low")"}}, {"risk: \"low\"; must be a number"}},
      {"OneFieldTwice",
       {{"job.training.sequenceLength", R"(1)"}},
       {"job.training.sequence_length: 4096; must not be given twice, in both spellings"}},
      // Model.
      {"NoModel",
       {{"job.model", R"(null)"}},
       {"job.model: unset; must have name, hf_config or transformer"}},
      {"EmptyModel",
       {{"job.model", R"({})"}},
       {"job.model: unset; must have name, hf_config or transformer"}},
      {"UnknownModel",
       {{"job.model.name", R"("llama-3.1-8bb")"}},
       {"job.model.name: llama-3.1-8bb; is not known; nearest: llama-3.1-8b, llama-3.1-70b, "
        "llama-3-8b; another model is given by its config.json, as model.hf_config"}},
      {"ModelOfAnotherWorld",
       {{"job.model.name", R"("zzzzzzzzzzzzzz")"}},
       {"job.model.name: zzzzzzzzzzzzzz; is not known; another model is given by its config.json, "
        "as "
        "model.hf_config"}},
      {"EmptyModelName",
       {{"job.model.name", R"("")"}},
       {"job.model.name: ; is not known; another model is given by its config.json, as "
        "model.hf_config"}},
      {"LongModelName",
       {{"job.model.name", absl::StrCat("\"", std::string(1000, 'm'), "\"")}},
       {"job.model.name: mmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmm...; is "
        "not known; another model is given by its config.json, as model.hf_config"}},
      {"EmptyConfig",
       {{"job.model", R"({"hf_config": {}})"}},
       {"job.model.hf_config.model_type: unset; must be set; of a dense decoder's fields it lacks "
        "hidden_size, num_hidden_layers, num_attention_heads, vocab_size, intermediate_size"}},
      {"ConfigWithoutLayers",
       {{"job.model",
         R"({"hf_config": {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 128, "intermediate_size": 256}})"}},
       {"job.model.hf_config.num_hidden_layers: unset; must be set"}},
      {"ConfigOfAMixture",
       {{"job.model",
         R"({"hf_config": {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 128, "intermediate_size": 256, "num_local_experts": 8}})"}},
       {"job.model.hf_config.num_local_experts: 8; experts are not modelled yet"}},
      {"ConfigTooDeep",
       {{"job.model",
         R"({"hf_config": {"a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": {"i": {"j": {"k": {"l": {"m": {"n": {"o": {"p": {}}}}}}}}}}}}}}}}}})"}},
       {"job.model.hf_config: 17 levels; must nest at most 16 levels"}},
      {"TransformerWithNothing",
       {{"job.model", R"({"transformer": {}})"}},
       {"job.model.transformer.hidden_size: unset; must be set",
        "job.model.transformer.layer_count: unset; must be set",
        "job.model.transformer.head_count: unset; must be set",
        "job.model.transformer.vocab_size: unset; must be set"}},
      {"ZeroLayers",
       {{"job.model",
         R"({"transformer": {"hidden_size": 64, "layer_count": 0, "head_count": 4, "vocab_size": 128}})"}},
       {"job.model.transformer.layer_count: 0; must be from 1 to 4096"}},
      {"TooManyLayers",
       {{"job.model",
         R"({"transformer": {"hidden_size": 64, "layer_count": 5000, "head_count": 4, "vocab_size": 128}})"}},
       {"job.model.transformer.layer_count: 5000; must be from 1 to 4096"}},
      {"NegativeHidden",
       {{"job.model",
         R"({"transformer": {"hidden_size": -1, "layer_count": 2, "head_count": 4, "vocab_size": 128, "head_size": 16}})"}},
       {"job.model.transformer.hidden_size: -1; must be from 1 to 1048576"}},
      {"HeadsDoNotDivideHidden",
       {{"job.model",
         R"({"transformer": {"hidden_size": 64, "layer_count": 2, "head_count": 5, "vocab_size": 128}})"}},
       {"job.model.transformer.head_count: 5; must divide hidden_size 64 where head_size is "
        "unset"}},
      {"KvHeadsDoNotDivideHeads",
       {{"job.model",
         R"({"transformer": {"hidden_size": 64, "layer_count": 2, "head_count": 4, "vocab_size": 128, "kv_head_count": 3}})"}},
       {"job.model.transformer.kv_head_count: 3; must divide head_count 4"}},
      {"HugeVocabulary",
       {{"job.model",
         R"({"transformer": {"hidden_size": 64, "layer_count": 2, "head_count": 4, "vocab_size": 33554432}})"}},
       {"job.model.transformer.vocab_size: 33554432; must be from 1 to 16777216"}},
      {"UnknownActivation",
       {{"job.model",
         R"({"transformer": {"hidden_size": 64, "layer_count": 2, "head_count": 4, "vocab_size": 128, "activation": "swish"}})"}},
       {"job.model.transformer.activation: swish; must be one of gelu, gelu-tanh, gelu-new, silu, "
        "relu, "
        "relu2"}},
      {"UnknownNorm",
       {{"job.model",
         R"({"transformer": {"hidden_size": 64, "layer_count": 2, "head_count": 4, "vocab_size": 128, "norm": "batch-norm"}})"}},
       {"job.model.transformer.norm: batch-norm; must be one of layer-norm, rms-norm"}},
      {"UnknownPositions",
       {{"job.model",
         R"({"transformer": {"hidden_size": 64, "layer_count": 2, "head_count": 4, "vocab_size": 128, "position_embedding": "sine"}})"}},
       {"job.model.transformer.position_embedding: sine; must be one of rotary, learned, alibi, "
        "none"}},
      {"PositionsWithoutATable",
       {{"job.model",
         R"({"transformer": {"hidden_size": 64, "layer_count": 2, "head_count": 4, "vocab_size": 128, "position_count": 64}})"}},
       {"job.model.transformer.position_count: 64; needs position_embedding learned"}},
      {"DropoutAboveOne",
       {{"job.model",
         R"({"transformer": {"hidden_size": 64, "layer_count": 2, "head_count": 4, "vocab_size": 128, "hidden_dropout": 1.5}})"}},
       {"job.model.transformer.hidden_dropout: 1.5; must be from 0 to 1"}},
      {"NegativeDropout",
       {{"job.model",
         R"({"transformer": {"hidden_size": 64, "layer_count": 2, "head_count": 4, "vocab_size": 128, "attention_dropout": -0.1}})"}},
       {"job.model.transformer.attention_dropout: -0.1; must be from 0 to 1"}},
      // Training.
      {"NoSequenceLength",
       {{"job.training.sequence_length", R"(null)"}},
       {"job.training.sequence_length: unset; must be set"}},
      {"ZeroSequence",
       {{"job.training.sequence_length", R"(0)"}},
       {"job.training.sequence_length: 0; must be from 1 to 134217728"}},
      {"HugeSequence",
       {{"job.training.sequence_length", R"(268435456)"}},
       {"job.training.sequence_length: 268435456; must be from 1 to 134217728"}},
      {"NegativeMicroBatch",
       {{"job.training.micro_batch_size", R"(-4)"}},
       {"job.training.micro_batch_size: -4; must be from 1 to 1048576"}},
      {"GlobalBatchDoesNotDivide",
       {{"job.training.global_batch_size", R"(12)"}, {"job.training.micro_batch_size", R"(1)"}},
       {"job.training.global_batch_size: 12; must be a multiple of micro_batch_size x "
        "data_parallel_size, 8"}},
      {"ZeroGlobalBatch",
       {{"job.training.global_batch_size", R"(0)"}},
       {"job.training.global_batch_size: 0; must be from 1 to 1099511627776"}},
      {"UnknownPreset",
       {{"job.training.precision", R"({"preset": "bf17"})"}},
       {"job.training.precision.preset: bf17; must be one of fp32, fp16-mixed, bf16-mixed, "
        "bf16-autocast, fp16-autocast, bf16-pure, fp16-pure, bf16-optimizer, fp8-mixed, fp4-mixed, "
        "fp8-lm"}},
      {"UnknownDtype",
       {{"job.training.precision", R"({"gradient_dtype": "fp64"})"}},
       {"job.training.precision.gradient_dtype: fp64; must be one of fp32, fp16, bf16, fp8"}},
      {"NoneForWeights",
       {{"job.training.precision", R"({"parameter_dtype": "none"})"}},
       {"job.training.precision.parameter_dtype: none; must be one of fp32, fp16, bf16, fp8"}},
      {"UnknownOptimizer",
       {{"job.training.optimizer", R"({"name": "adamw8"})"}},
       {"job.training.optimizer.name: adamw8; is not known; nearest: adamw, adam, adamw-8bit"}},
      {"UnknownImplementation",
       {{"job.training.optimizer", R"({"implementation": "foreachh"})"}},
       {"job.training.optimizer.implementation: foreachh; must be one of for-loop, foreach, "
        "fused"}},
      {"UnknownRecompute",
       {{"job.training.recompute", R"({"mode": "some"})"}},
       {"job.training.recompute.mode: some; must be one of none, selective, per-op, full, "
        "every-nth"}},
      {"UnknownRecomputeModule",
       {{"job.training.recompute", R"({"mode": "selective", "modules": ["attn"]})"}},
       {"job.training.recompute.modules: attn; must be one of core-attention, mlp, norm, "
        "activation, up-projection, experts, shared-experts"}},
      {"ModulesWithoutSelective",
       {{"job.training.recompute", R"({"mode": "full", "modules": ["mlp"]})"}},
       {"job.training.recompute.modules: mlp; needs mode selective"}},
      {"EveryNthWithoutN",
       {{"job.training.recompute", R"({"mode": "every-nth"})"}},
       {"job.training.recompute.interval: unset; must be set"}},
      {"IntervalOverTheLayers",
       {{"job.training.recompute", R"({"mode": "every-nth", "interval": 33})"}},
       {"job.training.recompute.interval: 33; must be at most the model's 32 layers"}},
      {"IntervalWithoutItsMode",
       {{"job.training.recompute", R"({"interval": 2})"}},
       {"job.training.recompute.interval: 2; needs mode every-nth"}},
      {"UnitDoesNotDivideLayers",
       {{"job.training.recompute", R"({"mode": "full", "unit_layer_count": 5})"}},
       {"job.training.recompute.unit_layer_count: 5; must divide the layers of each stage, 32 on "
        "one"}},
      {"UnknownKernel",
       {{"job.training.attention", R"("flash-3")"}},
       {"job.training.attention: flash-3; must be one of auto, eager, flash, cudnn, "
        "memory-efficient, flex"}},
      {"FlashWithoutAmpere",
       {{"job.training.attention", R"("flash")"}, {"job.cluster.gpu", R"("v100-32gb-sxm")"}},
       {"job.training.attention: flash; needs an Ampere or newer GPU"}},
      {"FlashInFp32",
       {{"job.training.attention", R"("flash")"},
        {"job.training.precision", R"({"preset": "fp32"})"}},
       {"job.training.attention: flash; needs 16-bit activations"}},
      {"UnknownLoss",
       {{"job.training.loss", R"({"implementation": "liger"})"}},
       {"job.training.loss.implementation: liger; must be one of plain, chunked, "
        "chunked-cross-entropy, fused, "
        "fused-cross-entropy, te-cross-entropy, tiled-log-probs"}},
      {"ChunksWithoutChunked",
       {{"job.training.loss", R"({"chunk_count": 4})"}},
       {"job.training.loss.chunk_count: 4; needs implementation chunked"}},
      {"TooManyChunks",
       {{"job.training.loss", R"({"implementation": "chunked", "chunk_count": 4096})"}},
       {"job.training.loss.chunk_count: 4096; must be from 1 to 1024"}},
      // Parallelism.
      {"ZeroDataParallel",
       {{"job.parallelism.data_parallel_size", R"(0)"}},
       {"job.parallelism.data_parallel_size: 0; must be from 1 to 1048576"}},
      {"DegreesDoNotMultiply",
       {{"job.parallelism.data_parallel_size", R"(3)"}},
       {"job.cluster.gpu_count: 8; must be data x tensor x context x pipeline parallel size, 3 x 1 "
        "x 1 x 1"}},
      {"ZeroStageFour",
       {{"job.parallelism.zero_stage", R"(4)"}},
       {"job.parallelism.zero_stage: 4; must be from 0 to 3"}},
      {"ZeroOneWithFsdp",
       {{"job.parallelism.zero_stage", R"(1)"}, {"job.runtime.framework", R"("fsdp2")"}},
       {"job.parallelism.zero_stage: 1; must be 2 or 3 with fsdp2: 2 keeps weights gathered until "
        "backward"}},
      {"ShardGroupDoesNotDivide",
       {{"job.parallelism.shard_group_size", R"(3)"}},
       {"job.parallelism.shard_group_size: 3; must divide data x context parallel size 8"}},
      {"NegativeTensorParallel",
       {{"job.parallelism.tensor_parallel_size", R"(-8)"}},
       {"job.parallelism.tensor_parallel_size: -8; must be from 1 to 1024"}},
      {"DdpSplitsNoMatrices",
       {{"job.parallelism.tensor_parallel_size", R"(2)"},
        {"job.parallelism.zero_stage", R"(0)"},
        {"job.runtime.framework", R"("ddp")"}},
       {"job.parallelism.tensor_parallel_size: 2; ddp does not have it: it splits no matrices"}},
      {"HeadsDoNotDivide",
       {{"job.parallelism.tensor_parallel_size", R"(64)"},
        {"job.parallelism.zero_stage", R"(0)"},
        {"job.runtime.framework", R"("megatron-core")"},
        {"job.cluster.gpu_count", R"(64)"}},
       {"job.parallelism.tensor_parallel_size: 64; must divide head_count 32",
        "job.parallelism.tensor_parallel_size: 64; must divide kv_head_count 8"}},
      {"SequenceParallelAlone",
       {{"job.parallelism.zero_stage", R"(0)"},
        {"job.parallelism.sequence_parallel", R"(true)"},
        {"job.runtime.framework", R"("megatron-core")"}},
       {"job.parallelism.sequence_parallel: true; needs tensor_parallel_size above 1"}},
      {"MoreStagesThanLayers",
       {{"job.parallelism.zero_stage", R"(0)"},
        {"job.parallelism.pipeline_parallel_size", R"(64)"},
        {"job.runtime.framework", R"("megatron-core")"},
        {"job.cluster.gpu_count", R"(64)"}},
       {"job.parallelism.pipeline_parallel_size: 64; needs at least 64 layers, the model has 32"}},
      {"StagesDoNotDivideLayers",
       {{"job.parallelism.zero_stage", R"(0)"},
        {"job.parallelism.pipeline_parallel_size", R"(5)"},
        {"job.runtime.framework", R"("megatron-core")"},
        {"job.cluster.gpu_count", R"(5)"}},
       {"job.parallelism.pipeline_parallel_size: 5; stages x virtual stages 5 must divide the "
        "model's 32 layers, or pipeline_layout be set"}},
      {"LayoutOfTheWrongLength",
       {{"job.parallelism.zero_stage", R"(0)"},
        {"job.parallelism.pipeline_parallel_size", R"(2)"},
        {"job.parallelism.pipeline_layout", R"([32])"},
        {"job.runtime.framework", R"("megatron-core")"}},
       {"job.parallelism.pipeline_layout: 1 entries; must have one entry for each of "
        "pipeline_parallel_size 2 stages, or of 2 virtual stages"}},
      {"LayoutThatLosesLayers",
       {{"job.parallelism.zero_stage", R"(0)"},
        {"job.parallelism.pipeline_parallel_size", R"(2)"},
        {"job.parallelism.pipeline_layout", R"([16, 15])"},
        {"job.runtime.framework", R"("megatron-core")"}},
       {"job.parallelism.pipeline_layout: sum 31; must be counts that add up to the model's 32 "
        "layers"}},
      {"UnknownSchedule",
       {{"job.parallelism.zero_stage", R"(0)"},
        {"job.parallelism.pipeline_parallel_size", R"(2)"},
        {"job.parallelism.pipeline_schedule", R"("two-steps")"},
        {"job.runtime.framework", R"("megatron-core")"}},
       {"job.parallelism.pipeline_schedule: two-steps; must be one of gpipe, 1f1b, "
        "interleaved-1f1b"}},
      {"ScheduleThatIsNotModelled",
       {{"job.parallelism.zero_stage", R"(0)"},
        {"job.parallelism.pipeline_parallel_size", R"(2)"},
        {"job.parallelism.pipeline_schedule", R"("zero-bubble")"},
        {"job.runtime.framework", R"("megatron-core")"}},
       {"job.parallelism.pipeline_schedule: zero-bubble; not modelled yet: this schedule"}},
      {"ScheduleWithoutStages",
       {{"job.parallelism.pipeline_schedule", R"("1f1b")"}},
       {"job.parallelism.pipeline_schedule: 1f1b; needs pipeline_parallel_size above 1"}},
      {"VirtualStagesWithoutInterleaving",
       {{"job.parallelism.virtual_pipeline_size", R"(2)"}},
       {"job.parallelism.virtual_pipeline_size: 2; needs pipeline_schedule interleaved-1f1b"}},
      // Runtime and cluster.
      {"UnknownFramework",
       {{"job.runtime.framework", R"("fsdp")"}, {"job.parallelism.zero_stage", R"(0)"}},
       {"job.runtime.framework: fsdp; must be one of ddp, fsdp1, fsdp2, deepspeed, megatron-core, "
        "megatron-lm, megatron-deepspeed, nanotron"}},
      {"VersionOfAnotherPackage",
       {{"job.runtime.versions", R"({"numpy": "1.26"})"}},
       {"job.runtime.versions.numpy: 1.26; moves no byte of fsdp2; only torch and nccl do"}},
      {"VersionThatIsNone",
       {{"job.runtime.framework", R"("fsdp2")"},
        {"job.runtime.versions", R"({"torch": "newest"})"}},
       {"job.runtime.versions.torch: newest; must be a version such as 2.4"}},
      {"KnobOfAnotherFramework",
       {{"job.runtime.gradient_as_bucket_view", R"(true)"}},
       {"job.runtime.gradient_as_bucket_view: set; fsdp2 does not have it"}},
      {"BadWorkspace",
       {{"job.runtime.cublas_workspace_config", R"("4096")"}},
       {"job.runtime.cublas_workspace_config: 4096; must be as :4096:8, pairs of KiB and count"}},
      {"ZeroVocabDivisor",
       {{"job.runtime.vocab_size_divisor", R"(0)"}},
       {"job.runtime.vocab_size_divisor: 0; must be from 1 to 65536"}},
      {"NoGpu",
       {{"job.cluster.gpu", R"(null)"}},
       {"job.cluster.gpu: unset; exactly one of gpu and gpu_memory_bytes must be set"}},
      {"UnknownGpu",
       {{"job.cluster.gpu", R"("h100-79gb-sxm")"}},
       {"job.cluster.gpu: h100-79gb-sxm; is not known; nearest: h100-80gb-sxm, h100-96gb-sxm, "
        "a100-40gb-sxm"}},
      {"GpuAndMemory",
       {{"job.cluster.gpu_memory_bytes", R"(85899345920)"}},
       {"job.cluster.gpu_memory_bytes: 85899345920; exactly one of gpu and gpu_memory_bytes must "
        "be set"}},
      {"TinyMemory",
       {{"job.cluster.gpu", R"(null)"}, {"job.cluster.gpu_memory_bytes", R"(1000)"}},
       {"job.cluster.gpu_memory_bytes: 1000; must be from 1048576 to 1125899906842624"}},
      {"ZeroGpus",
       {{"job.cluster.gpu_count", R"(0)"}},
       {"job.cluster.gpu_count: 0; must be from 1 to 1048576"}},
      {"NegativeGpus",
       {{"job.cluster.gpu_count", R"(-8)"}},
       {"job.cluster.gpu_count: -8; must be from 1 to 1048576"}},
      {"ZeroGpusPerNode",
       {{"job.cluster.gpus_per_node", R"(0)"}},
       {"job.cluster.gpus_per_node: 0; must be from 1 to 1024"}},
      {"AllMemoryTaken",
       {{"job.cluster.reserved_for_others_bytes", R"(1099511627776)"}},
       {"job.cluster.reserved_for_others_bytes: 1099511627776; must be below the GPU's memory of "
        "85020639232 bytes"}},
      {"RiskOfZero", {{"risk", R"(0)"}}, {"risk: 0; must be from 0.0001 to 0.5"}},
      {"RiskOfOne", {{"risk", R"(1)"}}, {"risk: 1; must be from 0.0001 to 0.5"}},
      // Several at once.
      {"EverySection",
       {{"job.model.name", R"("nobody-knows-this")"},
        {"job.training.sequence_length", R"(0)"},
        {"job.parallelism.zero_stage", R"(9)"},
        {"job.cluster.gpu", R"("tpu-v5")"},
        {"risk", R"(2)"}},
       {"job.model.name: nobody-knows-this; is not known; another model is given by its "
        "config.json, as model.hf_config",
        "job.cluster.gpu: tpu-v5; is not known",
        "job.parallelism.zero_stage: 9; must be from 0 to 3",
        "job.training.sequence_length: 0; must be from 1 to 134217728",
        "risk: 2; must be from 0.0001 to 0.5"}},
      // Shape and values at once, without what only follows from the shape.
      {"UnknownFieldBesideBadValues",
       {{"job.training.sequence_lenght", R"(1)"},
        {"job.training.micro_batch_size", R"(0)"},
        {"job.cluster.gpu", R"("tpu-v5")"},
        {"risk", R"("low")"}},
       {"job.training.sequence_lenght: 1; no such field, did you mean sequence_length",
        "risk: \"low\"; must be a number", "job.cluster.gpu: tpu-v5; is not known",
        "job.training.micro_batch_size: 0; must be from 1 to 1048576"}},
      {"MisspeltFieldIsNotUnsetToo",
       {{"job.training", R"({"sequence_lenght": 4096})"}, {"job.parallelism.zero_stage", R"(9)"}},
       {"job.training.sequence_lenght: 4096; no such field, did you mean sequence_length",
        "job.parallelism.zero_stage: 9; must be from 0 to 3"}},
      {"MisspeltSectionIsNotUnsetToo",
       {{"job.training", R"(null)"},
        {"job.trainning", R"({"sequence_length": 4096})"},
        {"job.cluster.gpu_count", R"(0)"}},
       {"job.trainning: an object; no such field, did you mean training",
        "job.cluster.gpu_count: 0; must be from 1 to 1048576"}},
      {"UnreadableModelIsNotUnsetToo",
       {{"job.model.name", R"(5)"}, {"job.training.sequence_length", R"(0)"}},
       {"job.model.name: 5; must be a string, as \"5\"",
        "job.training.sequence_length: 0; must be from 1 to 134217728"}},
      {"OneOfTwoIsUnreadable",
       {{"job.cluster.gpu", R"(null)"},
        {"job.cluster.gpu_memory_bytes", R"("much")"},
        {"job.training.sequence_length", R"(0)"}},
       {"job.cluster.gpu_memory_bytes: \"much\"; must be an integer of 64 bits",
        "job.training.sequence_length: 0; must be from 1 to 134217728"}},
      {"RulesThatNeedWhatIsUnreadable",
       {{"job.parallelism.pipeline_schedule", R"("1f1b")"},
        {"job.parallelism.pipeline_parallel_size", R"("two")"},
        {"job.training.sequence_length", R"(0)"}},
       {"job.parallelism.pipeline_parallel_size: \"two\"; must be an integer of 64 bits",
        "job.training.sequence_length: 0; must be from 1 to 134217728"}},
      {"NoFrameworkIsGuessedForAnUnreadableOne",
       {{"job.runtime.framework", R"(5)"},
        {"job.runtime.gradient_as_bucket_view", R"(true)"},
        {"job.cluster.gpus_per_node", R"(0)"}},
       {"job.runtime.framework: 5; must be a string, as \"5\"",
        "job.cluster.gpus_per_node: 0; must be from 1 to 1024"}},
      {"NoDegreeIsGuessedForAnUnreadableOne",
       {{"job.parallelism.tensor_parallel_size", R"("two")"},
        {"job.parallelism.data_parallel_size", R"(4)"},
        {"job.cluster.gpus_per_node", R"(0)"}},
       {"job.parallelism.tensor_parallel_size: \"two\"; must be an integer of 64 bits",
        "job.cluster.gpus_per_node: 0; must be from 1 to 1024"}},
      {"ListsGoAsAWhole",
       {{"job.parallelism.pipeline_parallel_size", R"(2)"},
        {"job.parallelism.pipeline_layout", R"([16, null, 3])"},
        {"job.parallelism.zero_stage", R"(0)"},
        {"job.runtime.framework", R"("megatron-core")"},
        {"job.training.micro_batch_size", R"(0)"}},
       {"job.parallelism.pipeline_layout[1]: null; must be an integer of 64 bits",
        "job.training.micro_batch_size: 0; must be from 1 to 1048576"}},
  };
  return *kCases;
}

Value ParseJson(const std::string& text) {
  Value value;
  EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(text, &value).ok()) << text;
  return value;
}

Value Edited(const BadRequestCase& bad) {
  Value request = ParseJson(kGoodRequest);
  for (const auto& [path, json] : bad.edits) {
    Value* at = &request;
    for (const auto& name : absl::StrSplit(path, '.')) {
      at = &(*at->mutable_struct_value()->mutable_fields())[std::string(name)];
    }
    *at = ParseJson(json);
  }
  return request;
}

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// "micro_batch_size" as "microBatchSize".
std::string ToCamelCase(const std::string& name) {
  std::string camel;
  bool upper = false;
  for (const char c : name) {
    if (c != '_') camel += upper ? absl::ascii_toupper(static_cast<unsigned char>(c)) : c;
    upper = c == '_';
  }
  return camel;
}

// The names of fields of messages, known or not, in camelCase; keys of maps and of
// configurations are no such names. Returns whether each stays a name of its own.
bool ToCamelCase(const Descriptor& type, Value* request) {
  if (!request->has_struct_value()) return true;
  auto& members = *request->mutable_struct_value()->mutable_fields();
  const std::map<std::string, Value> before(members.begin(), members.end());
  members.clear();
  bool unique = true;
  for (auto [name, value] : before) {
    const FieldDescriptor* const field = FindField(type, name);
    const Descriptor* const below = field == nullptr ? nullptr : field->message_type();
    if (below != nullptr && !field->is_map() && below->file()->package() != "google.protobuf") {
      unique &= ToCamelCase(*below, &value);
    }
    unique &= members.insert({ToCamelCase(name), value}).second;
  }
  return unique;
}

// Names of fields with an underscore, of a message and all below it.
void AddNames(const Descriptor& type, std::set<std::string>* names) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (absl::StrContains(field.name(), "_")) names->insert(field.name());
    const bool is_own = field.message_type() != nullptr &&
                        field.message_type()->file()->package() == type.file()->package();
    if (is_own && !field.is_map()) AddNames(*field.message_type(), names);
  }
}

// A line as one who writes camelCase gets it: each word that is a field's name, or is in
// the place of one. What is below a configuration is Hugging Face's.
std::string LineInCamelCase(const std::string& line) {
  static const auto* const kNames = [] {
    auto* const names = new std::set<std::string>();
    AddNames(*v1::EstimateMemoryRequest::descriptor(), names);
    return names;
  }();
  const std::pair<std::string, std::string> parts = absl::StrSplit(line, absl::MaxSplits(": ", 1));
  const std::string config = "job.model.hf_config";
  if (absl::StartsWith(parts.first, config + ".")) {
    return absl::StrCat("job.model.hfConfig", line.substr(config.size()));
  }
  std::string camel = absl::StrCat(ToCamelCase(parts.first), ": ");
  const size_t rule = parts.second.find("; ");
  std::string word;
  for (size_t i = 0; i <= parts.second.size(); ++i) {
    const char c = i < parts.second.size() ? parts.second[i] : ' ';
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_') {
      word += c;
      continue;
    }
    camel += i > rule && kNames->count(word) > 0 ? ToCamelCase(word) : word;
    if (i < parts.second.size()) camel += c;
    word.clear();
  }
  return camel;
}

class BadRequestsTest : public testing::Test {
 protected:
  void SetUp() override {
    server_ = StartOrFail(FreePorts());
    ASSERT_NE(server_, nullptr);
    stub_ = StubFor(server_->addresses()[0]);
  }

  void TearDown() override {
    const auto [status, message] = Post(kGoodRequest);
    EXPECT_EQ(status, 200) << message;
  }

  // Returns the HTTP status and the message of the error, if it is one.
  std::pair<int, std::string> Post(const std::string& body) const {
    auto client = HttpClientFor(server_->http_addresses()[0]);
    const httplib::Result result = client.Post("/v1:estimateMemory", body, "application/json");
    if (!result) return {0, httplib::to_string(result.error())};
    if (result->status == 200) return {200, ""};
    google::rpc::Status status;
    EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(result->body, &status).ok());
    return {result->status, status.message()};
  }

  std::unique_ptr<Server> server_;
  std::unique_ptr<v1::PlannerService::Stub> stub_;
};

TEST_F(BadRequestsTest, GetTheirExactWordsOverHttp) {
  EXPECT_GE(Cases().size(), 60u);
  for (const BadRequestCase& bad : Cases()) {
    std::string body;
    ASSERT_TRUE(google::protobuf::util::MessageToJsonString(Edited(bad), &body).ok());
    const auto [status, message] = Post(body);
    EXPECT_EQ(status, 400) << bad.name;
    EXPECT_EQ(message, absl::StrJoin(bad.lines, "\n")) << bad.name;
  }
}

// The order is that of the names as they are written.
TEST_F(BadRequestsTest, NameFieldsAsTheirCallersDo) {
  int changed = 0;
  for (const BadRequestCase& bad : Cases()) {
    Value request = Edited(bad);
    if (!ToCamelCase(*v1::EstimateMemoryRequest::descriptor(), &request)) continue;
    std::string body;
    ASSERT_TRUE(google::protobuf::util::MessageToJsonString(request, &body).ok());
    const auto [status, message] = Post(body);
    EXPECT_EQ(status, 400) << bad.name;
    std::vector<std::string> lines;
    for (const std::string& line : bad.lines) lines.push_back(LineInCamelCase(line));
    const std::vector<std::string> seen = absl::StrSplit(message, '\n');
    EXPECT_THAT(seen, testing::UnorderedElementsAreArray(lines)) << bad.name;
    changed += lines != bad.lines;
  }
  EXPECT_GE(changed, 60);
}

TEST_F(BadRequestsTest, GetTheSameWordsOverGrpc) {
  int sent = 0;
  for (const BadRequestCase& bad : Cases()) {
    v1::EstimateMemoryRequest request;
    if (!ReadJsonMessage(Edited(bad), "", &request).empty()) continue;  // no message at all
    ++sent;
    grpc::ClientContext context;
    v1::EstimateMemoryResponse response;
    const grpc::Status status = stub_->EstimateMemory(&context, request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << bad.name;
    EXPECT_EQ(status.error_message(), absl::StrJoin(bad.lines, "\n")) << bad.name;
  }
  EXPECT_GE(sent, 60);
}

TEST_F(BadRequestsTest, TextThatIsNoRequestIsRefusedInWords) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[]", "request: a list; must be an object"},
      {"null", "request: null; must be an object"},
      {"\"job\"", "request: \"job\"; must be an object"},
      {std::string(40, '['), "request: 40 levels; must nest at most 32 levels"},
      {std::string(500000, '{'), "request: 500000 levels; must nest at most 32 levels"},
      {"{\"job\": {\"model\": ",
       "request: ; must be JSON: unexpected end of string. Expected a value"},
      {"job: {}", "request: job: {}; must be JSON: unexpected token"},
      {"{\"job\": {}, \"job\": {}}",
       "request: {\"job\": {}, \"job\": {}}; must be JSON: (struct_value.fields[0]) job: Repeated "
       "map key: 'job' is already set"},
      {"{\"job\": NaN}", "job: nan; must be an object"},
      {"{\"job\": {\"model\": {\"name\": \"\\ud800\"}}}",
       "request: \\ud800\"}}}; must be JSON: missing low surrogate"},
      {"{\"job\": {}} trailing",
       "request: {\"job\": {}} trailing; must be JSON: parsing terminated before end of input"},
      {"{\"job\": {\"model\": {\"name\": \"\xff"
       "\"}}}",
       "request: ?\"}}}; must be JSON: encountered non UTF-8 code points"},
      {" ", "request: ; must be JSON: unexpected end of string. Expected a value"},
  };
  for (const auto& [body, message] : cases) {
    EXPECT_EQ(Post(body), std::make_pair(400, message));
  }
}

}  // namespace
}  // namespace plimsoll
