// Latent attention: what a spelled-out model says of it, which kernels take it, and what is
// modelled beside it.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "estimator/base/units.h"
#include "estimator/base/version.h"
#include "estimator/job/beside.h"
#include "estimator/job/validate_sections.h"
#include "estimator/job/vocabularies.h"

namespace plimsoll {
namespace {

constexpr KnownField kRank("model.transformer.key_value_rank");
constexpr KnownField kQueries("model.transformer.query_rank");
constexpr KnownField kRotary("model.transformer.rotary_head_size");
constexpr KnownField kValues("model.transformer.value_head_size");
constexpr char kNorm[] = "model.transformer.qk_norm";
constexpr char kAttention[] = "training.attention";

// Parts of latent attention need its rank.
void CheckParts(const TransformerSpec& spec, Check& check, const Transformer& model) {
  const auto needs_rank = [&](absl::string_view field, const auto& value) {
    check.Fail(field, value, "needs key_value_rank", ViolationCode::kConflict, {kRank});
  };
  for (const auto& [field, number] :
       {std::pair{kQueries, &spec.query_rank}, std::pair{kRotary, &spec.rotary_head_size},
        std::pair{kValues, &spec.value_head_size}}) {
    if (number->has_value()) needs_rank(field, check.Number(field, *number, 1));
  }
  if (model.qk_norm == QkNorm::kPerRank) needs_rank(kNorm, *spec.qk_norm);
}

void CheckSizes(Check& check, const Transformer& model) {
  if (model.latent.rotary_size >= model.head_size) {
    check.Fail(kRotary, model.latent.rotary_size,
               absl::StrCat("must be below head_size ", model.head_size), ViolationCode::kConflict,
               {"model.transformer.head_size"});
  }
  if (model.kv_head_count != model.head_count) {
    check.Fail("model.transformer.kv_head_count", model.kv_head_count,
               absl::StrCat("must be head_count ", model.head_count, " with key_value_rank"),
               ViolationCode::kConflict, {kRank});
  }
  if (model.qk_norm != QkNorm::kNone && model.qk_norm != QkNorm::kPerRank) {
    check.Fail(kNorm, NameOf(model.qk_norm, kQkNorms),
               "must be none or per-rank with key_value_rank", ViolationCode::kConflict, {kRank});
  }
  if (model.position_embedding == PositionEmbedding::kAlibi) {
    check.Fail("model.transformer.position_embedding", "alibi",
               "must be another with key_value_rank, which rotates", ViolationCode::kConflict,
               {kRank});
  }
}

// Whether cuDNN trains with heads of these sizes: up to 128 everywhere, on Hopper to 256 but for
// what its releases since 9.11 get wrong, on Blackwell 192 and 128.
// Source: transformer_engine/common/fused_attn/fused_attn.cpp, nvte_get_fused_attn_backend.
bool CudnnTakes(const Job& job) {
  const int64_t keys = job.model->head_size;
  const int64_t values = job.model->latent.value_size;
  const bool deepseek = keys == 192 && values == 128;
  if (std::max(keys, values) <= 128) return true;
  if (job.architecture == GpuArchitecture::kBlackwell) return deepseek;
  const bool wrong = keys >= 128 && values >= 128 && keys != values && !deepseek;
  return job.architecture == GpuArchitecture::kHopper && std::max(keys, values) <= 256 && !wrong;
}

// Whether PyTorch asks cuDNN first, and it takes these heads: on Hopper, and on Blackwell's GPUs of
// data centres, which have NVLink; where torch 2.11's builds for CUDA 13 brought a newer cuDNN.
// Source: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, check_prefer_cudnn_attention,
// check_cudnn_tensor_shapes.
bool PrefersCudnn(const Job& job) {
  constexpr int kSince = 2011;
  const bool large = job.architecture == GpuArchitecture::kBlackwell && job.gpu != nullptr &&
                     !job.gpu->IsWorkstationBlackwell();
  const bool asks = large || job.architecture == GpuArchitecture::kHopper;
  const int64_t keys = job.model->head_size;
  const int64_t values = job.model->latent.value_size;
  const bool takes = std::max(keys, values) <= 128 || (keys == 192 && values == 128);
  return asks && takes && !IsBefore(job.torch_version, kSince);
}

// Kernels read rows of 16 bytes.
bool FillsRows(const Transformer& model) {
  constexpr int64_t kStep = 8;
  return model.head_size % kStep == 0 && model.latent.value_size % kStep == 0;
}

// Flash attention takes values as wide as keys alone; Transformer Engine pads them from 2.17 on,
// which is not modelled.
// Source: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, check_head_dim_size_flash;
// transformer_engine/pytorch/attention/dot_product_attention/utils.py, get_attention_backend.
void CheckKernel(Check& check, const Job& job) {
  if (job.attention == AttentionKernel::kEager) return;
  const Transformer& model = *job.model;
  const std::string heads = absl::StrCat(model.head_size, " and ", model.latent.value_size);
  const auto fail = [&](absl::string_view rule) {
    check.Fail(kAttention, NameOf(job.attention, kAttentionKernels), absl::StrCat(rule, heads),
               ViolationCode::kNotSupported, {"model"});
  };
  if (job.profile->attention.flex && job.attention != AttentionKernel::kFlex) {
    check.Fail(kAttention, NameOf(job.attention, kAttentionKernels),
               "must be flex for latent attention", ViolationCode::kNotSupported, {"model"});
    return;
  }
  if (!FillsRows(model)) return fail("takes heads of keys and values of multiples of 8, not ");
  if (job.attention == AttentionKernel::kFlash && model.head_size != model.latent.value_size) {
    return fail("takes heads of values as wide as those of keys, not ");
  }
  const bool of_megatron = job.attention == AttentionKernel::kCudnn && job.transformer_engine;
  if (of_megatron && !CudnnTakes(job)) fail("does not train with heads of keys and values of ");
}

// Classes of one module after the other: what nothing was held against.
// Source: transformers models/deepseek_v3/configuration_deepseek_v3.py, base_model_tp_plan, which
// has no attention; torchtitan models/deepseek_v3/model.py.
void CheckOfModules(const Beside& latent, Check& check, const Job& job) {
  latent.RefuseSplits(job);
  latent.Refuse(job.compile, "runtime.compile", "true");
  latent.Refuse(job.model->remote_code, "model", "remote code");
  if (job.model->qk_norm == QkNorm::kPerRank) return;
  check.Fail(kNorm, NameOf(job.model->qk_norm, kQkNorms),
             "must be per-rank: its classes norm each rank", ViolationCode::kNotSupported,
             {"runtime.framework"});
}

// Transformer Engine passes keys and values around as they are; its other ways were not held.
// Source: context_parallel.py, AttnFuncWithCPAndKVP2P.forward (k_numel).
void CheckOfMegatron(const Beside& latent, const Job& job) {
  latent.Refuse(!job.transformer_engine, "runtime.transformer_implementation", "local");
  const bool other =
      job.context_parallel_size > 1 && job.context_parallel_method != ContextParallelMethod::kRing;
  latent.Refuse(other, "parallelism.context_parallel_method",
                NameOf(job.context_parallel_method, kContextParallelMethods));
}

}  // namespace

void ReadLatent(const TransformerSpec& spec, Check& check, Transformer& model) {
  if (!spec.key_value_rank.has_value()) return CheckParts(spec, check, model);
  const size_t before = check.violations().size();
  LatentAttention latent;
  latent.key_value_rank = check.Number(kRank, spec.key_value_rank, 1);
  latent.query_rank = spec.query_rank.has_value() ? check.Number(kQueries, spec.query_rank, 1) : 0;
  latent.rotary_size = check.Required(kRotary, spec.rotary_head_size);
  latent.value_size = check.Number(kValues, spec.value_head_size,
                                   std::max<int64_t>(model.head_size - latent.rotary_size, 1));
  if (check.violations().size() > before) return;
  model.latent = latent;
  CheckSizes(check, model);
}

AttentionKernel LatentKernel(const Job& job, AttentionKernel usual) {
  const bool narrower = job.model->head_size != job.model->latent.value_size;
  if (job.profile->attention.flex) return AttentionKernel::kFlex;
  if (usual == AttentionKernel::kEager || !FillsRows(*job.model)) return AttentionKernel::kEager;
  if (usual == AttentionKernel::kFlash && !narrower) return usual;
  if (!job.profile->transformers_attention) {
    return CudnnTakes(job) ? AttentionKernel::kCudnn : AttentionKernel::kEager;
  }
  const bool half = usual == AttentionKernel::kFlash;
  return half && PrefersCudnn(job) ? AttentionKernel::kCudnn : AttentionKernel::kMemoryEfficient;
}

void CheckLatent(Check& check, const Job& job) {
  if (!CheckAbility(Ability::kLatentAttention, "model", "latent attention", check, job)) return;
  const Beside latent("latent attention", "model", check);
  latent.Refuse(!job.model->causal, "model", "an encoder");
  latent.Refuse(job.model->norm_placement != NormPlacement::kPre, "model",
                NameOf(job.model->norm_placement, kNormPlacements));
  if (job.model->qk_norm == QkNorm::kPerRank && job.model->latent.query_rank == 0) {
    CheckAbility(Ability::kRankNormsAlone, "model", "norms of ranks without query_rank", check,
                 job);
  }
  CheckKernel(check, job);
  const bool modules = job.profile->transformers_attention || job.profile->attention.flex;
  if (modules) return CheckOfModules(latent, check, job);
  CheckOfMegatron(latent, job);
}

}  // namespace plimsoll
