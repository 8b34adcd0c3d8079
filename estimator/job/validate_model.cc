// The model section: a catalog id, a config.json, or an architecture.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "estimator/base/units.h"
#include "estimator/job/hf_config.h"
#include "estimator/job/validate_sections.h"
#include "estimator/job/vocabularies.h"

namespace plimsoll {
namespace {

constexpr size_t kLongestName = 256;

void ReadSizes(const TransformerSpec& spec, Check& check, Transformer& model) {
  const size_t before = check.violations().size();
  model.hidden_size = check.Required("model.transformer.hidden_size", spec.hidden_size);
  model.layer_count = check.Required("model.transformer.layer_count", spec.layer_count);
  model.head_count = check.Required("model.transformer.head_count", spec.head_count);
  model.vocab_size = check.Required("model.transformer.vocab_size", spec.vocab_size);
  model.kv_head_count =
      check.Number("model.transformer.kv_head_count", spec.kv_head_count, model.head_count);
  if (check.violations().size() > before) return;  // what follows compares sizes
  if (model.head_count % model.kv_head_count != 0) {
    check.Fail("model.transformer.kv_head_count", model.kv_head_count,
               absl::StrCat("must divide head_count ", model.head_count), ViolationCode::kConflict,
               {"model.transformer.head_count"});
  }
  if (!spec.head_size.has_value() && model.hidden_size % model.head_count != 0) {
    check.Fail(
        "model.transformer.head_count", model.head_count,
        absl::StrCat("must divide hidden_size ", model.hidden_size, " where head_size is unset"),
        ViolationCode::kConflict, {"model.transformer.hidden_size", "model.transformer.head_size"});
  }
  const int64_t head_size = CeilDivide(model.hidden_size, model.head_count);
  model.head_size = check.Number("model.transformer.head_size", spec.head_size, head_size);
  model.ffn_size =
      check.Number("model.transformer.ffn_size", spec.ffn_size, Multiply(4, model.hidden_size));
  model.embedding_size = model.hidden_size;
}

// Parts of experts need experts.
void CheckExpertParts(const TransformerSpec& spec, Check& check) {
  const auto needs_count = [&](absl::string_view field, const std::optional<int64_t>& value) {
    if (!value.has_value()) return;
    check.Fail(field, *value, "needs expert_count", ViolationCode::kConflict,
               {"model.transformer.expert_count"});
  };
  needs_count("model.transformer.active_expert_count", spec.active_expert_count);
  needs_count("model.transformer.expert_ffn_size", spec.expert_ffn_size);
  needs_count("model.transformer.shared_expert_ffn_size", spec.shared_expert_ffn_size);
  needs_count("model.transformer.dense_layer_count", spec.dense_layer_count);
}

// Experts, and what contradicts them.
void ReadExperts(const TransformerSpec& spec, Check& check, Transformer& model) {
  constexpr KnownField active("model.transformer.active_expert_count");
  constexpr KnownField dense("model.transformer.dense_layer_count");
  const size_t before = check.violations().size();
  Experts experts;
  experts.count = check.Number("model.transformer.expert_count", spec.expert_count, 0);
  experts.active_count = check.Number(active, spec.active_expert_count, 1);
  experts.ffn_size =
      check.Number("model.transformer.expert_ffn_size", spec.expert_ffn_size, model.ffn_size);
  experts.shared_ffn_size =
      check.Number("model.transformer.shared_expert_ffn_size", spec.shared_expert_ffn_size, 0);
  experts.renormalizes = true;
  experts.layers.begin = check.Number(dense, spec.dense_layer_count, 0);
  if (check.violations().size() > before) return;
  if (experts.count == 0) return CheckExpertParts(spec, check);
  model.experts = experts;
  check.Required(active, spec.active_expert_count);
  if (experts.active_count > experts.count) {
    check.Fail(active, experts.active_count,
               absl::StrCat("must be at most expert_count ", experts.count),
               ViolationCode::kConflict, {"model.transformer.expert_count"});
  }
  if (experts.layers.begin >= model.layer_count) {
    check.Fail(dense, experts.layers.begin,
               absl::StrCat("must be below layer_count ", model.layer_count),
               ViolationCode::kConflict, {"model.transformer.layer_count"});
  }
}

template <typename Value, size_t kCount>
Value WordOr(Check& check, absl::string_view name, const std::optional<std::string>& seen,
             const Word<Value> (&words)[kCount], Value otherwise) {
  if (!seen.has_value()) return otherwise;
  return check.Meaning(absl::StrCat("model.transformer.", name), *seen, words).value_or(otherwise);
}

void ReadTraits(const TransformerSpec& spec, Check& check, Transformer& model) {
  model.gated_mlp = spec.gated_mlp.value_or(false);
  model.activation = WordOr(check, "activation", spec.activation, kActivations,
                            model.gated_mlp ? Activation::kSilu : Activation::kGelu);
  model.norm =
      WordOr(check, "norm", spec.norm, kNorms, model.gated_mlp ? Norm::kRmsNorm : Norm::kLayerNorm);
  model.norm_bias = model.norm == Norm::kLayerNorm;
  model.norm_placement =
      WordOr(check, "norm_placement", spec.norm_placement, kNormPlacements, NormPlacement::kPre);
  model.final_norm = model.norm_placement != NormPlacement::kPost;
  model.embedding_norm = model.norm_placement == NormPlacement::kPost;
  model.qk_norm = WordOr(check, "qk_norm", spec.qk_norm, kQkNorms, QkNorm::kNone);
  model.position_embedding = WordOr(check, "position_embedding", spec.position_embedding,
                                    kPositionEmbeddings, PositionEmbedding::kRotary);
  model.qkv_bias = spec.qkv_bias.value_or(false);
  model.attention_output_bias = spec.attention_output_bias.value_or(false);
  model.mlp_bias = spec.mlp_bias.value_or(false);
  model.token_type_count =
      check.Number("model.transformer.token_type_count", spec.token_type_count, 0);
  model.hidden_dropout = check.Share("model.transformer.hidden_dropout", spec.hidden_dropout, 0);
  model.embedding_dropout = model.hidden_dropout;
  model.attention_dropout =
      check.Share("model.transformer.attention_dropout", spec.attention_dropout, 0);
}

// Scores, what stands before them, and what contradicts them.
void ReadScores(const TransformerSpec& spec, Check& check, Transformer& model) {
  const bool scores =
      model.head == Head::kSequenceClassification || model.head == Head::kTokenClassification;
  if (spec.label_count.has_value() && !scores) {
    check.Fail("model.transformer.label_count", *spec.label_count,
               "needs head sequence-classification or token-classification",
               ViolationCode::kConflict, {"model.transformer.head"});
  }
  if (model.tied_embeddings && !PredictsTokens(model.head)) {
    check.Fail("model.transformer.tied_embeddings", "true", "needs a head that predicts tokens",
               ViolationCode::kConflict, {"model.transformer.head"});
  }
  if (PredictsTokens(model.head)) return;
  model.label_count = check.Number("model.transformer.label_count", spec.label_count,
                                   model.head == Head::kNone ? 0 : 2);
  const bool pools = model.head == Head::kSequenceClassification || model.head == Head::kNone;
  model.pooler = pools && model.norm_placement == NormPlacement::kPost;
  model.head_bias = model.pooler || !pools;
  if (model.head == Head::kNone) model.head_bias = false;
  model.head_dropout = model.hidden_dropout;
}

void ReadHead(const TransformerSpec& spec, Check& check, Transformer& model) {
  const bool masked = spec.masked_lm_head.value_or(false);
  model.head = WordOr(check, "head", spec.head, kHeads,
                      masked ? Head::kMaskedLanguageModel : Head::kLanguageModel);
  const bool is_masked = model.head == Head::kMaskedLanguageModel;
  if (spec.head.has_value() && spec.masked_lm_head.has_value() && masked != is_masked) {
    check.Fail("model.transformer.masked_lm_head", masked ? "true" : "false",
               absl::StrCat("contradicts head ", ShownValue(*spec.head)), ViolationCode::kConflict,
               {"model.transformer.head"});
  }
  model.tied_embeddings = spec.tied_embeddings.value_or(false);
  model.sentence_head = spec.sentence_head.value_or(false);
  if (model.sentence_head && !is_masked) {
    check.Fail("model.transformer.sentence_head", "true", "needs masked_lm_head",
               ViolationCode::kConflict, {"model.transformer.masked_lm_head"});
  }
  ReadScores(spec, check, model);
}

const Transformer* ReadTransformer(const JobSpec& job, const TransformerSpec& spec, Check& check,
                                   std::shared_ptr<const Transformer>& own) {
  auto model = std::make_shared<Transformer>();
  const size_t before = check.violations().size();
  ReadSizes(spec, check, *model);
  ReadTraits(spec, check, *model);
  ReadLatent(spec, check, *model);
  ReadLinear(spec, check, *model);
  ReadExperts(spec, check, *model);
  ReadHead(spec, check, *model);
  const bool learned = model->position_embedding == PositionEmbedding::kLearned;
  if (spec.position_count.has_value() && !learned) {
    check.Fail("model.transformer.position_count", *spec.position_count,
               "needs position_embedding learned", ViolationCode::kConflict,
               {"model.transformer.position_embedding"});
  }
  if (learned) {
    model->position_count = check.Number("model.transformer.position_count", spec.position_count,
                                         job.training.sequence_length.value_or(1));
  }
  if (check.violations().size() > before) return nullptr;
  own = std::move(model);
  return own.get();
}

const Transformer* ReadConfig(const ConfigValue& config, HfReading reading, Check& check, Job& job,
                              std::shared_ptr<const Transformer>& own) {
  HfConfig read = ReadHfConfig(config, "job.model.hf_config", reading);
  for (Warning& warning : read.warnings) job.warnings.push_back(std::move(warning));
  if (!read.violations.empty()) {
    for (Violation& violation : read.violations) {
      check.violations().push_back(std::move(violation));
    }
    return nullptr;
  }
  own = std::make_shared<Transformer>(std::move(read.model));
  return own.get();
}

}  // namespace

const Transformer* FindModel(absl::string_view field, const std::string& name,
                             const Catalog& catalog, Check& check) {
  const auto found = catalog.models.find(name);
  if (found != catalog.models.end()) return &found->second;
  // In any case: the hub's ids have capitals, and so have people.
  if (name.size() > kLongestName) return nullptr;
  const std::string lower = absl::AsciiStrToLower(name);
  const auto same = catalog.models.find(lower);
  if (same != catalog.models.end()) return &same->second;
  const auto hf_id = catalog.hf_ids.find(lower);
  if (hf_id == catalog.hf_ids.end()) return nullptr;
  check.Assume(field, hf_id->second.model, "the catalog's model of that Hugging Face id");
  return &catalog.models.find(hf_id->second.model)->second;
}

std::string NotAModel(const std::string& name, const Catalog& catalog) {
  std::vector<absl::string_view> names;
  for (const auto& entry : catalog.models) names.push_back(entry.first);
  std::string seen = name.substr(0, kLongestName);
  if (NearestNames(seen, names).empty()) {
    seen = absl::AsciiStrToLower(seen.substr(seen.rfind('/') + 1));
  }
  return NotAWord(seen, names);
}

const Transformer* CheckModel(const JobSpec& spec, const Catalog& catalog, Check& check, Job& job,
                              std::shared_ptr<const Transformer>& own) {
  const auto& source = spec.model.source;
  const bool accepts = spec.model.accept_unknown_model_type.value_or(false);
  const bool is_config = std::holds_alternative<ConfigValue>(source);
  const bool checked = std::holds_alternative<std::shared_ptr<const Transformer>>(source);
  if (accepts && !is_config && !checked) {
    check.Fail("model.accept_unknown_model_type", "true", "needs hf_config",
               ViolationCode::kConflict, {"model.hf_config"});
  }
  if (const auto* name = std::get_if<std::string>(&source)) {
    const Transformer* const found = FindModel("model.name", *name, catalog, check);
    if (found != nullptr) return found;
    check.Fail("model.name", *name,
               absl::StrCat(NotAModel(*name, catalog),
                            "; another model is given by its config.json, as model.hf_config"),
               ViolationCode::kUnknownName, {"model.hf_config"});
    return nullptr;
  }
  if (const auto* config = std::get_if<ConfigValue>(&source)) {
    return ReadConfig(*config, {.accept_unknown_model_type = accepts}, check, job, own);
  }
  if (const auto* transformer = std::get_if<TransformerSpec>(&source)) {
    return ReadTransformer(spec, *transformer, check, own);
  }
  if (checked) {
    own = std::get<std::shared_ptr<const Transformer>>(source);
    return own.get();
  }
  check.Fail("model", "unset", "must have name, hf_config or transformer", ViolationCode::kMissing,
             {"model.hf_config"});
  return nullptr;
}

}  // namespace plimsoll
