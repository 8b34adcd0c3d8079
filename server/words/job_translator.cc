#include "server/words/job_translator.h"

#include <google/protobuf/message.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "estimator/job/fields.h"
#include "server/wire/field_value.h"
#include "server/wire/shorten.h"
#include "server/words/flag_fields.h"
#include "server/words/job_field.h"
#include "server/words/written_size.h"
#include "server/words/yaml_message.h"
#include "server/words/yaml_scalar.h"

namespace plimsoll {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::Reflection;

// Sections that one word may stand for, by type: the field that it is.
struct Shorthand {
  absl::string_view type;
  const char* field;
};
constexpr Shorthand kShorthands[] = {
    {"plimsoll.v1.Distillation", "teacher"}, {"plimsoll.v1.Precision", "preset"},
    {"plimsoll.v1.Optimizer", "name"},       {"plimsoll.v1.Recompute", "mode"},
    {"plimsoll.v1.Loss", "implementation"},  {"plimsoll.v1.Adapter", "method"},
    {"plimsoll.v1.Quantization", "format"},  {"plimsoll.v1.Preference", "method"},
};

// Whether fields stand below one.
bool IsSection(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !field.is_repeated() &&
         field.message_type()->full_name() != "google.protobuf.Struct";
}

// Returns the field that one word for the section `type` sets; empty where none is.
std::string ShorthandOf(const Descriptor& type, const std::string& word) {
  if (&type == v1::Model::descriptor()) {
    const std::string field = ModelSetting(word).field;
    return field.substr(field.find('.') + 1);
  }
  for (const Shorthand& row : kShorthands) {
    if (row.type == type.full_name()) return row.field;
  }
  return "";
}

std::string Join(const std::string& path, const std::string& name) {
  return path.empty() ? name : absl::StrCat(path, ".", name);
}

std::string LastName(absl::string_view path) {
  return std::string(path.substr(path.rfind('.') + 1));
}

// The field at a path below "job."; null where there is none, or it is of a map.
const FieldDescriptor* FieldAt(absl::string_view path, std::string* proper_path) {
  const Descriptor* type = v1::Job::descriptor();
  const FieldDescriptor* field = nullptr;
  proper_path->clear();
  for (const absl::string_view name : absl::StrSplit(path, '.')) {
    field = type == nullptr ? nullptr : FindField(*type, std::string(name));
    if (field == nullptr) return nullptr;
    *proper_path = Join(*proper_path, field->name());
    type = IsSection(*field) ? field->message_type() : nullptr;
  }
  return field;
}

// Whether a value asks for nothing of what a name would ask for.
bool IsNeutral(absl::string_view neutral, const YAML::Node& value) {
  if (neutral.empty() || value.IsMap() || value.IsSequence()) return false;
  if (value.IsNull()) return true;
  const std::string word = absl::AsciiStrToLower(value.Scalar());
  if (neutral == "1" || neutral == "0") return word == neutral || word == "0";
  if (word == neutral) return true;
  return word == "false" || word == "no" || word == "none" || word == "null" || word == "0";
}

std::optional<bool> ReadSwitch(const std::string& text) {
  const std::string word = absl::AsciiStrToLower(text);
  if (word == "true" || word == "yes" || word == "on" || word == "1") return true;
  if (word == "false" || word == "no" || word == "off" || word == "0") return false;
  return std::nullopt;
}

// Whether a value leaves a word's field open.
bool SaysNothing(const FieldSynonym& row, const std::string& text) {
  if (absl::AsciiStrToLower(text) != "auto") return false;
  if (row.reading != WordReading::kSame) return true;
  std::string proper;
  const FieldDescriptor* const field = FieldAt(row.field, &proper);
  return field != nullptr && field->cpp_type() != FieldDescriptor::CPPTYPE_STRING;
}

bool IsAsTheFieldTakesIt(WordReading reading) {
  return reading == WordReading::kSame || reading == WordReading::kGpus ||
         reading == WordReading::kBits || reading == WordReading::kWords;
}

// Whether two values of a field are one: of words in any case, and of true in any spelling.
bool IsSame(absl::string_view path, const std::string& one, const std::string& other) {
  const auto read = [path](const std::string& text) {
    const ValueSynonym* const row = FindValueSynonym(path, text, {});
    const std::optional<bool> truth = ReadSwitch(text);
    if (row != nullptr) return std::string(row->value);
    return truth.has_value() ? absl::StrCat(*truth) : absl::AsciiStrToLower(text);
  };
  return read(one) == read(other);
}

// What a row says of a field whose values are words, or true and false.
FieldValue ValueOf(absl::string_view text, const FieldDescriptor& field) {
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL) return text == "true";
  return std::string(text);
}

}  // namespace

JobSetting ModelSetting(const std::string& model) {
  const bool path = absl::StartsWith(model, ".") || absl::StartsWith(model, "/") ||
                    absl::StartsWith(model, "~") || absl::EndsWith(model, ".json") ||
                    absl::EndsWith(model, "/");
  const auto slash = static_cast<size_t>(std::count(model.begin(), model.end(), '/'));
  return {path || slash > 1 ? "model.hf_config" : "model.name", model};
}

void JobTranslator::Fail(absl::string_view path, absl::string_view value, absl::string_view rule,
                         ViolationCode code) {
  violations_.push_back(
      {absl::StrCat("job.", path), Shorten(value, kMaxShownBytes), std::string(rule), code});
}

void JobTranslator::Note(absl::string_view field, absl::string_view name, absl::string_view value) {
  v1::Assumption note;
  note.set_field(absl::StrCat("job.", field));
  note.set_reason(absl::StrCat("written as ", name, name.empty() ? "" : ": ",
                               Shorten(value, 2 * kMaxShownBytes)));
  for (v1::Assumption& older : read_) {
    if (older.field() == note.field()) return older.Swap(&note);
  }
  read_.push_back(std::move(note));
}

void JobTranslator::Forget(const std::string& field) {
  read_.erase(std::remove_if(read_.begin(), read_.end(),
                             [&](const v1::Assumption& note) {
                               return note.field() == absl::StrCat("job.", field);
                             }),
              read_.end());
}

// `text` with its unit, as a number.
std::string JobTranslator::Sized(const std::string& field, const std::string& text) {
  absl::StatusOr<std::string> number = ReadWrittenSize(field, text);
  if (!number.ok()) {
    Fail(field, text, number.status().message(), ViolationCode::kMalformed);
    return "";
  }
  if (*number != text) Note(field, "", text);
  return *std::move(number);
}

YAML::Node JobTranslator::Translate(const YAML::Node& job) {
  if (!job.IsMap()) return job;
  std::vector<Moved> moved;
  YAML::Node translated = TranslateMapping(job, *v1::Job::descriptor(), "", &moved);
  for (const Moved& one : moved) Place(one, &translated);
  return translated;
}

YAML::Node JobTranslator::TranslateMapping(const YAML::Node& node, const Descriptor& type,
                                           const std::string& path, std::vector<Moved>* moved) {
  YAML::Node translated(YAML::NodeType::Map);
  for (const auto& pair : node) {
    if (++value_count_ > kMaxYamlValues) return node;
    const std::string name = pair.first.IsScalar() ? pair.first.Scalar() : "";
    const FieldDescriptor* const field = name.empty() ? nullptr : FindField(type, name);
    if (field != nullptr) {
      YAML::Node value = TranslateValue(pair.second, *field, Join(path, field->name()), moved);
      if (value.IsDefined()) translated.force_insert(pair.first, value);
    } else if (name.empty() || name == "<<" || !Move(Join(path, name), pair.second, moved)) {
      translated.force_insert(pair.first, pair.second);
    }
  }
  return translated;
}

// An undefined node where the value is refused.
YAML::Node JobTranslator::TranslateValue(const YAML::Node& node, const FieldDescriptor& field,
                                         const std::string& path, std::vector<Moved>* moved) {
  if (node.IsMap()) {
    return IsSection(field) ? TranslateMapping(node, *field.message_type(), path, moved) : node;
  }
  if (!node.IsScalar() || field.is_repeated()) return node;
  if (IsSection(field)) {
    const std::string below = ShorthandOf(*field.message_type(), node.Scalar());
    if (below.empty()) return node;
    YAML::Node section(YAML::NodeType::Map);
    section[below] = node;
    return section;
  }
  const size_t before = violations_.size();
  const std::string text = Sized(path, node.Scalar());
  if (violations_.size() > before) return YAML::Node(YAML::NodeType::Undefined);
  return text == node.Scalar() ? node : YAML::Node(text);
}

// Reads a name that is no field's where it stands. Returns false where it is nobody's.
bool JobTranslator::Move(const std::string& path, const YAML::Node& node,
                         std::vector<Moved>* moved) {
  if (node.IsMap() && MoveSection(path, node, moved)) return true;
  if (node.IsMap() && MoveBelow(path, node, moved)) return true;
  const FieldSynonym* const row = FindFieldSynonym(path);
  if (row != nullptr) return MoveSynonym(*row, path, node, moved);
  if (const RefusedWord* const refused = FindRefusedName(path)) {
    if (!IsNeutral(refused->neutral, node)) Fail(path, Shown(node), refused->rule, refused->code);
    return true;
  }
  const std::string field = FlagField(path);  // a job file may say what a flag may
  if (field.empty()) return false;
  moved->push_back({field, node});
  return true;
}

// Whether `path` is a flag that one word of a section is set by, as "optimizer": reads the
// section.
bool JobTranslator::MoveSection(const std::string& path, const YAML::Node& node,
                                std::vector<Moved>* moved) {
  const std::string field = FlagField(path);
  const std::string section = field.substr(0, field.rfind('.'));
  std::string proper;
  const FieldDescriptor* const found = field.empty() ? nullptr : FieldAt(section, &proper);
  if (found == nullptr || !absl::StrContains(section, '.')) return false;
  const size_t at = moved->size();  // before what is moved from below it
  moved->push_back({section, YAML::Node()});
  YAML::Node translated = TranslateMapping(node, *found->message_type(), section, moved);
  (*moved)[at].value.reset(translated);
  return true;
}

// Whether rows have names below `path`, as "zero_optimization": reads those.
bool JobTranslator::MoveBelow(const std::string& path, const YAML::Node& node,
                              std::vector<Moved>* moved) {
  const std::string prefix = NormalizedName(path) + ".";
  bool any = false;
  for (const FieldSynonym& row : FieldSynonyms()) any |= absl::StartsWith(row.word, prefix);
  if (!any) return false;
  if (prefix == "zero-optimization.") engine_ = true;
  for (const auto& pair : node) {
    if (++value_count_ > kMaxYamlValues) return false;
    const std::string below = Join(path, Shown(pair.first));
    if (!Move(below, pair.second, moved)) {
      Fail(below, Shown(pair.second), "no such field", ViolationCode::kUnknownField);
    }
  }
  return true;
}

// Whether a name takes `text`, and no other of its kind said the field: of settings, as of a file,
// where two are a key that is there twice.
bool JobTranslator::TakeWord(const FieldSynonym& row, const std::string& path,
                             const std::string& text) {
  if (!HasWord(row.on, absl::AsciiStrToLower(text))) {
    Fail(path, text, absl::StrCat("must be ", absl::StrReplaceAll(row.on, {{" ", " or "}})),
         ViolationCode::kUnknownName);
    return false;
  }
  const FieldSynonym* const first =
      in_settings_ ? named_.emplace(row.field, &row).first->second : &row;
  if (first == &row) return true;
  Fail(path, text, absl::StrCat("must be given once: ", first->word, " is the same field"),
       ViolationCode::kConflict);
  return false;
}

bool JobTranslator::MoveSynonym(const FieldSynonym& row, const std::string& path,
                                const YAML::Node& node, std::vector<Moved>* moved) {
  const std::string field(row.field);
  const std::string name = LastName(path);
  if (node.IsNull()) return true;
  if (!node.IsScalar()) {
    moved->push_back({field, node});
    return true;
  }
  std::string text = node.Scalar();
  if (SaysNothing(row, text)) return true;
  if (row.reading == WordReading::kWords && !TakeWord(row, path, text)) return true;
  if (row.reading == WordReading::kBits && (text == "4" || text == "8")) {
    const FieldSynonym* const bits = FindFieldSynonym(absl::StrCat("load-in-", text, "bit"));
    truths_.push_back({bits, path, text, in_settings_});
    return true;
  }
  const bool written_size = IsAsTheFieldTakesIt(row.reading);
  if (IsBoolean(row.reading)) {
    const std::optional<bool> on = ReadSwitch(text);
    if (!on.has_value() && text != row.on) {
      Fail(path, text, "must be true or false", ViolationCode::kMalformed);
      return true;
    }
    if (row.reading != WordReading::kSwitch) {
      if (on.value_or(true)) truths_.push_back({&row, path, text, in_settings_});
      return true;
    }
    text = std::string(on.value_or(true) ? row.on : row.off);
    if (text.empty()) return true;
  } else if (row.reading == WordReading::kHost) {
    if (text != "cpu" && text != "none") {
      Fail(path, text, "must be cpu or none: another device is not modelled yet",
           ViolationCode::kNotModelled);
      return true;
    }
    if (text == "none") return true;  // as where nothing is said
    text = "true";
  } else if (!written_size) {
    int64_t number = 0;
    if (!ToInt64(text, &number) || number < 1 || number > (int64_t{1} << 40)) {
      Fail(path, text, "must be a whole number above 0", ViolationCode::kMalformed);
      return true;
    }
    if (row.reading == WordReading::kNodes) nodes_ = {number, name, in_settings_};
    if (row.reading == WordReading::kAccumulation) accumulation_ = {number, name, in_settings_};
    if (row.reading != WordReading::kMebibytes) return true;
    text = absl::StrCat(number << 20);
  }
  const size_t before = violations_.size();
  if (written_size) text = Sized(field, text);
  if (violations_.size() > before) return true;
  int64_t count = 0;
  if (row.reading == WordReading::kGpus && ToInt64(text, &count))
    gpus_ = {count, name, in_settings_};
  Note(field, name, node.Scalar());
  moved->push_back({field, YAML::Node(text)});
  return true;
}

// Puts a field where the API has it.
void JobTranslator::Place(const Moved& moved, YAML::Node* root) {
  YAML::Node value = moved.value;
  std::string proper;
  const FieldDescriptor* const field = FieldAt(moved.field, &proper);
  if (field != nullptr && IsSection(*field)) {
    std::vector<Moved> none;
    value.reset(TranslateValue(value, *field, moved.field, &none));
  }
  const std::vector<std::string> names = absl::StrSplit(moved.field, '.');
  YAML::Node at = *root;
  for (size_t i = 0; i + 1 < names.size(); ++i) {
    YAML::Node below(YAML::NodeType::Null);
    for (const auto& pair : at) {
      const bool named =
          pair.first.IsScalar() && NormalizedName(pair.first.Scalar()) == NormalizedName(names[i]);
      if (named) below.reset(pair.second);
    }
    if (!below.IsMap()) {
      below.reset(YAML::Node(YAML::NodeType::Map));
      at.force_insert(names[i], below);
    }
    at.reset(below);
  }
  for (const auto& pair : at) {  // two words may say the same
    const bool same = pair.first.IsScalar() && pair.second.IsScalar() && value.IsScalar() &&
                      NormalizedName(pair.first.Scalar()) == NormalizedName(names.back()) &&
                      IsSame(moved.field, pair.second.Scalar(), value.Scalar());
    if (same) return;
  }
  at.force_insert(names.back(), value);
}

std::optional<JobSetting> JobTranslator::Translate(const JobSetting& setting) {
  const std::string field(absl::StripPrefix(setting.field, "job."));
  in_settings_ = true;
  std::string proper;
  if (FieldAt(field, &proper) != nullptr) {
    if (proper == "cluster.gpu_count") gpus_.reset();
    Forget(proper);
    return Resolve(proper, setting.value);
  }
  std::vector<Moved> moved;
  if (!Move(field, YAML::Node(setting.value), &moved)) return setting;
  if (moved.empty()) return std::nullopt;
  return Resolve(moved[0].field, moved[0].value.Scalar());
}

// The setting of a field, or of the one that stands for a section.
std::optional<JobSetting> JobTranslator::Resolve(const std::string& path,
                                                 const std::string& value) {
  std::string proper;
  const FieldDescriptor* const field = FieldAt(path, &proper);
  if (field != nullptr && IsSection(*field)) {
    const absl::string_view text = absl::StripLeadingAsciiWhitespace(value);
    const std::string below = ShorthandOf(*field->message_type(), value);
    const bool word = !below.empty() && !absl::StartsWith(text, "{");
    for (const absl::string_view at : FieldPaths()) {  // else all of it, or none
      if (!word && absl::StartsWith(at, absl::StrCat(proper, "."))) set_.emplace(at);
    }
    if (!word) return JobSetting{path, value};
    set_.insert(Join(proper, below));
    return JobSetting{Join(path, below), value};
  }
  const size_t before = violations_.size();
  std::string text = Sized(path, value);
  if (violations_.size() > before) return std::nullopt;
  set_.insert(path);
  return JobSetting{path, std::move(text)};
}

// The word of the API that `word` is there; itself where it is nobody's.
std::string JobTranslator::TranslateWord(const std::string& path, const std::string& word,
                                         v1::Job* job) {
  const WordUser user = {job->runtime().trainer(), job->runtime().framework()};
  const RefusedWord* const refused = FindRefusedValue(path, word, user);
  // What is not modelled the service refuses.
  if (refused != nullptr && refused->code != ViolationCode::kNotModelled) {
    Fail(path, word, refused->rule, refused->code);
    return "";
  }
  const absl::string_view own = OwnWord(path, word);
  const ValueSynonym* const row = FindValueSynonym(path, word, user);
  if (own == word || (own.empty() && row == nullptr)) return word;
  const bool noted = std::any_of(read_.begin(), read_.end(), [&](const v1::Assumption& note) {
    return note.field() == absl::StrCat("job.", path);
  });
  if (!noted)
    Note(path, "",
         row == nullptr || row->note.empty() ? word : absl::StrCat(word, "; ", row->note));
  if (!own.empty()) return std::string(own);
  if (!row->other_field.empty()) {
    const JobField other = FindJobField(std::string(row->other_field), job);
    const FieldValue said = ValueOf(row->other_value, *other.field);
    if (!other.message->GetReflection()->HasField(*other.message, other.field)) {
      PutValue(said, other.field, other.message);
      Note(row->other_field, "", word);
    } else if (std::holds_alternative<bool>(said) &&
               GetValue(*other.message, other.field) != said) {
      Fail(path, word, absl::StrCat("means ", row->other_field, " ", row->other_value),
           ViolationCode::kConflict);
      return "";
    }
  }
  return std::string(row->value);
}

void JobTranslator::TranslateWords(const std::string& path, v1::Job* job) {
  if (!HasJobField(path, *job)) return;
  const JobField found = FindJobField(path, job);
  const Reflection& reflection = *found.message->GetReflection();
  if (found.field->is_repeated()) {
    for (int i = 0; i < reflection.FieldSize(*found.message, found.field); ++i) {
      const std::string word = reflection.GetRepeatedString(*found.message, found.field, i);
      reflection.SetRepeatedString(found.message, found.field, i, TranslateWord(path, word, job));
    }
    return;
  }
  const std::string word = reflection.GetString(*found.message, found.field);
  if (word.empty()) return;  // the service refuses it
  const std::string translated = TranslateWord(path, word, job);
  if (translated.empty()) {
    reflection.ClearField(found.message, found.field);
  } else {
    reflection.SetString(found.message, found.field, translated);
  }
}

// Says what became of each word.
void JobTranslator::FillNotes(const v1::Job& job) {
  std::vector<v1::Assumption> filled;
  for (v1::Assumption& note : read_) {
    const std::string path(absl::StripPrefix(note.field(), "job."));
    if (path == "model" || !HasJobField(path, job)) continue;
    note.set_value(ShownJobField(path, job));
    filled.push_back(std::move(note));
  }
  read_ = std::move(filled);
}

// What is true decides of a field that other words may say; a setting stands before a file.
void JobTranslator::Settle(const Truth& truth, v1::Job* job) {
  const FieldSynonym& row = *truth.row;
  const std::string path(row.field);
  const bool said_later = set_.contains(path) && !truth.by_setting;
  const bool overrides = truth.by_setting && !set_.contains(path);
  const JobField found = FindJobField(path, job);
  const Reflection& reflection = *found.message->GetReflection();
  const std::string own = reflection.GetString(*found.message, found.field);
  const bool refines = row.reading == WordReading::kRefined;
  if (own == row.on || said_later || (!refines && HasWord(row.off, own))) return;
  if (own.empty() || overrides || (refines && own == row.off)) {
    reflection.SetString(found.message, found.field, std::string(row.on));
    Note(path, LastName(truth.path), truth.text);
    return TranslateWords(path, job);
  }
  Fail(truth.path, truth.text, absl::StrCat("is ", path, " ", row.on, ", which is ", own, " here"),
       ViolationCode::kConflict);
}

void JobTranslator::Finish(v1::Job* job) {
  if (engine_ && !job->runtime().has_framework()) {  // nobody else's word
    job->mutable_runtime()->set_framework("deepspeed");
    Note("runtime.framework", "zero_optimization", "");
  }
  for (const absl::string_view path : VocabularyFields()) TranslateWords(std::string(path), job);
  for (const WordReading reading : {WordReading::kImplied, WordReading::kRefined}) {
    for (const Truth& truth : truths_) {
      if (truth.row->reading == reading) Settle(truth, job);
    }
  }
  if (nodes_.has_value()) CountNodes(job->mutable_cluster());
  if (accumulation_.has_value()) CountMicroBatches(job);
  FillNotes(*job);
}

}  // namespace plimsoll
