#include "estimator/job/hf_heads.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace plimsoll {
namespace {

using Kind = ConfigValue::Kind;

constexpr int64_t kMaxLabels = int64_t{1} << 20;

// How classes end. The first row that fits decides.
struct HeadRow {
  absl::string_view ending;
  Head head;
  bool sentence = false;   // BERT's second head beside it
  bool one_label = false;  // where the file counts none
};
constexpr HeadRow kRows[] = {
    {"ForCausalLM", Head::kLanguageModel},
    {"LMHeadModel", Head::kLanguageModel},
    {"ForMaskedLM", Head::kLanguageModel},
    {"ForConditionalGeneration", Head::kLanguageModel},
    {.ending = "ForPreTraining", .head = Head::kLanguageModel, .sentence = true},
    {"ForSequenceClassification", Head::kSequenceClassification},
    {.ending = "RewardModel", .head = Head::kSequenceClassification, .one_label = true},
    {"ForTokenClassification", Head::kTokenClassification},
    {"ForQuestionAnswering", Head::kQuestionAnswering},
    {"DoubleHeadsModel", Head::kNone},
    {"Model", Head::kNone},
};

// The first class under `architectures`; empty where there is none.
absl::string_view ReadClass(const HfReader& reader) {
  const ConfigValue* classes = reader.Find("architectures");
  if (classes == nullptr || classes->items.empty()) return "";
  return classes->items.front().text;
}

const HeadRow* FindRow(absl::string_view name) {
  if (name.empty()) return &kRows[0];
  for (const HeadRow& row : kRows) {
    if (absl::EndsWith(name, row.ending)) return row.ending == "DoubleHeadsModel" ? nullptr : &row;
  }
  return nullptr;
}

// The names of labels count before their number, as in PreTrainedConfig.
int64_t ReadLabels(HfReader& reader, bool one) {
  const ConfigValue* names = reader.Find("id2label");
  if (names != nullptr && names->kind == Kind::kObject && !names->fields.empty()) {
    return static_cast<int64_t>(names->fields.size());
  }
  return reader.Size("num_labels", kMaxLabels, one ? 1 : 2);
}

void Refuse(HfReader& reader, absl::string_view name) {
  reader.Refuse("architectures", SeenText(name), "the head is not modelled yet",
                ViolationCode::kNotModelled);
}

void ReadScores(const HfFamily& family, const HeadRow& row, HfReader& reader, Transformer& model) {
  const bool sequence = row.head == Head::kSequenceClassification;
  model.pooler = sequence && family.sequence_scores == HfScores::kPooled;
  model.head_bias = !sequence || model.pooler;
  const bool answers = row.head == Head::kQuestionAnswering;
  model.label_count = answers && !family.answers_by_labels ? 2 : ReadLabels(reader, row.one_label);
  if (answers && model.label_count != 2) {
    reader.Refuse("num_labels", absl::StrCat(model.label_count),
                  "must be 2: question answering scores where an answer begins and ends");
  }
  const double otherwise =
      model.pooler || reader.Has("hidden_dropout") ? model.hidden_dropout : 0.1;
  if (model.head_dropout == 0) model.head_dropout = reader.Rate("classifier_dropout", otherwise);
}

void ReadNone(const HfFamily& family, absl::string_view name, HfReader& reader,
              Transformer& model) {
  model.pooler = family.base_pooler;
  model.head_bias = false;
  reader.Warn("no-head", "architectures",
              absl::StrCat(SeenText(name),
                           " has no head: the loss is taken to read one vector of "
                           "each sequence"));
}

}  // namespace

bool NamesMaskedHead(const HfReader& reader) {
  return absl::EndsWith(ReadClass(reader), "ForMaskedLM");
}

void ReadHead(const HfFamily& family, HfReader& reader, Transformer& model) {
  const absl::string_view name = ReadClass(reader);
  const HeadRow* row = FindRow(name);
  if (row == nullptr || (row->sentence && !family.sentence_head)) return Refuse(reader, name);
  const bool scores = !PredictsTokens(row->head) && row->head != Head::kNone;
  if (family.predicts_alone && scores) return Refuse(reader, name);
  model.head = row->head;
  model.sentence_head = row->sentence;
  switch (row->head) {
    case Head::kLanguageModel:
    case Head::kMaskedLanguageModel:
      if (family.masked_lm_head) model.head = Head::kMaskedLanguageModel;
      return;
    case Head::kSequenceClassification:
      if (family.sequence_scores == HfScores::kUnmodelled ||
          (row->one_label && family.deep_reward)) {
        return Refuse(reader, name);
      }
      return ReadScores(family, *row, reader, model);
    case Head::kTokenClassification:
    case Head::kQuestionAnswering:
      return ReadScores(family, *row, reader, model);
    case Head::kNone:
      return ReadNone(family, name, reader, model);
  }
}

}  // namespace plimsoll
