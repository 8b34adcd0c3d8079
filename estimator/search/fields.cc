#include "estimator/search/fields.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "estimator/base/vocabulary.h"
#include "estimator/search/knobs.h"

namespace plimsoll {
namespace {

constexpr absl::string_view kPartFields[] = {
    "training.recompute.mode",
    "training.recompute.modules",
    "training.recompute.interval",
    "training.recompute.unit_layer_count",
};

constexpr absl::string_view kFollowingFields[] = {
    "parallelism.data_parallel_size",
    "parallelism.pipeline_schedule",
    "parallelism.pipeline_layout",
    "parallelism.micro_batch_group_size",
};

constexpr absl::string_view kKeptFields[] = {
    "model.name",
    "model.hf_config",
    "model.transformer.hidden_size",
    "model.transformer.layer_count",
    "model.transformer.head_count",
    "model.transformer.kv_head_count",
    "model.transformer.head_size",
    "model.transformer.ffn_size",
    "model.transformer.vocab_size",
    "model.transformer.position_count",
    "model.transformer.activation",
    "model.transformer.gated_mlp",
    "model.transformer.norm",
    "model.transformer.norm_placement",
    "model.transformer.qkv_bias",
    "model.transformer.attention_output_bias",
    "model.transformer.mlp_bias",
    "model.transformer.qk_norm",
    "model.transformer.tied_embeddings",
    "model.transformer.position_embedding",
    "model.transformer.hidden_dropout",
    "model.transformer.attention_dropout",
    "model.transformer.token_type_count",
    "model.transformer.masked_lm_head",
    "model.transformer.sentence_head",
    "model.transformer.head",
    "model.transformer.label_count",
    "model.accept_unknown_model_type",
    "training.sequence_length",
    "training.global_batch_size",
    "training.precision.preset",
    "training.precision.parameter_dtype",
    "training.precision.gradient_dtype",
    "training.precision.gradient_accumulation_dtype",
    "training.precision.reduce_dtype",
    "training.precision.master_dtype",
    "training.precision.optimizer_state_dtype",
    "training.optimizer.name",
    "training.optimizer.implementation",
    "training.gradient_clipping",
    "training.attention",
    "training.loss.implementation",
    "training.loss.chunk_count",
    "training.resumed_from_checkpoint",
    "runtime.framework",
    "runtime.versions",
    "runtime.vocab_size_divisor",
    "runtime.gradient_as_bucket_view",
    "runtime.reduce_bucket_element_count",
    "runtime.overlap_communication",
    "runtime.reshard_after_forward",
    "runtime.gradient_accumulation_fusion",
    "runtime.attention_mask",
    "runtime.cublas_workspace_config",
    "runtime.deferred_embedding_gradient_count",
    "runtime.transformer_implementation",
    "runtime.trainer",
    "runtime.compile",
    "runtime.allocator.expandable_segments",
    "runtime.allocator.max_split_size_bytes",
    "runtime.allocator.roundup_power2_division_count",
    "runtime.allocator.garbage_collection_threshold",
    "runtime.allocator.memory_fraction",
    "cluster.gpu_memory_bytes",
    "cluster.gpus_per_node",
    "cluster.reserved_for_others_bytes",
    "cluster.interconnect_bytes_per_second",
    "cluster.network_bytes_per_second",
};

// What is below them is the user's own to name.
constexpr absl::string_view kMaps[] = {"model.hf_config", "runtime.versions"};

bool IsBelow(absl::string_view path, absl::string_view section) {
  return absl::StartsWith(path, absl::StrCat(section, "."));
}

template <typename Fields>
bool HasBelow(const Fields& fields, absl::string_view section) {
  return std::any_of(std::begin(fields), std::end(fields),
                     [&](absl::string_view field) { return IsBelow(field, section); });
}

template <size_t kCount>
bool Has(const absl::string_view (&fields)[kCount], absl::string_view path) {
  return std::find(std::begin(fields), std::end(fields), path) != std::end(fields);
}

}  // namespace

const std::vector<absl::string_view>& FieldPaths() {
  static const auto* const paths = [] {
    auto* const all = new std::vector<absl::string_view>;
    for (const Knob& knob : kKnobs) all->push_back(knob.field);
    all->insert(all->end(), std::begin(kPartFields), std::end(kPartFields));
    all->insert(all->end(), std::begin(kFollowingFields), std::end(kFollowingFields));
    all->insert(all->end(), std::begin(kKeptFields), std::end(kKeptFields));
    return all;
  }();
  return *paths;
}

std::optional<FieldUse> UseOf(absl::string_view path) {
  if (path == "*") return FieldUse::kChosen;
  for (const Knob& knob : kKnobs) {
    if (path == knob.field || IsBelow(knob.field, path)) return FieldUse::kChosen;
  }
  if (Has(kPartFields, path)) return FieldUse::kPart;
  if (Has(kFollowingFields, path)) return FieldUse::kFollows;
  if (Has(kKeptFields, path) || HasBelow(kKeptFields, path)) return FieldUse::kKept;
  for (const absl::string_view map : kMaps) {
    if (IsBelow(path, map)) return FieldUse::kKept;
  }
  return std::nullopt;
}

std::string NotAllowed(absl::string_view path) {
  const std::optional<FieldUse> use = UseOf(path);
  if (!use.has_value()) return NotAWord(path, FieldPaths());
  switch (*use) {
    case FieldUse::kChosen:
      return "";
    case FieldUse::kPart:
      return absl::StrCat("changes with the whole of ", path.substr(0, path.rfind('.')));
    case FieldUse::kFollows:
      return "follows from other fields, allow these";
    case FieldUse::kKept:
      return "is never changed by a search";
  }
  return "";
}

}  // namespace plimsoll
