// Every word of others, and every flag, against the same job in the field's own words.
#include <google/protobuf/util/message_differencer.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "estimator/job/fields.h"
#include "estimator/job/synonyms.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/words/flag_fields.h"
#include "server/words/job_field.h"
#include "server/words/job_settings.h"
#include "server/words/job_translator.h"
#include "server/words/yaml_message.h"
#include "server/words/yaml_writer.h"

namespace plimsoll {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::util::MessageDifferencer;
using testing::IsEmpty;
using testing::SizeIs;
using Settings = std::vector<JobSetting>;

struct Outcome {
  v1::Job job;
  Violations wrong;
  std::vector<v1::Assumption> read;
};

// As a command reads a job file and settings.
Outcome Read(const std::string& yaml, const Settings& settings = {}) {
  Outcome outcome;
  JobTranslator translator;
  YamlReader reader(std::nullopt);
  reader.Read(translator.Translate(YAML::Load(yaml)), "job", &outcome.job);
  outcome.wrong = reader.violations();
  ApplySettings(settings, std::nullopt, &translator, &outcome.job, &outcome.wrong);
  translator.Finish(&outcome.job);
  for (const Violation& violation : translator.violations()) outcome.wrong.push_back(violation);
  outcome.read = translator.read();
  return outcome;
}

// The job in the fields' own words, which no translator has seen.
v1::Job Own(const Settings& settings) {
  v1::Job job;
  YamlReader reader(std::nullopt);
  for (const auto& [field, value] : settings) {
    reader.Set(field == "model" ? "model.name" : field, value, "job", &job);  // it is a name here
  }
  EXPECT_EQ(ToText(reader.violations()), "");
  return job;
}

void ExpectReadsAs(const Outcome& seen, const Settings& own, const std::string& what) {
  const v1::Job expected = Own(own);
  EXPECT_EQ(ToText(seen.wrong), "") << what;
  EXPECT_TRUE(MessageDifferencer::Equals(seen.job, expected))
      << what << "\nis read as\n"
      << ToJobFile(seen.job) << "and means\n"
      << ToJobFile(expected);
}

// "a.b" and v as "{a: {b: v}}".
std::string Nested(absl::string_view path, const std::string& value) {
  const std::vector<std::string> names = absl::StrSplit(path, '.');
  std::string yaml;
  for (const std::string& name : names) absl::StrAppend(&yaml, "{", name, ": ");
  return absl::StrCat(yaml, value, std::string(names.size(), '}'));
}

std::string CamelCase(const std::string& word) {
  std::string camel;
  for (const absl::string_view part : absl::StrSplit(word, '-')) {
    std::string piece(part);
    if (!camel.empty() && !absl::EndsWith(camel, ".")) piece[0] = absl::ascii_toupper(piece[0]);
    camel += piece;
  }
  return camel;
}

// How people spell a name of the rows.
std::vector<std::string> Spellings(absl::string_view word) {
  const std::string dashes(word);
  const std::string underscores = absl::StrReplaceAll(word, {{"-", "_"}});
  std::vector<std::string> all = {dashes, underscores, absl::AsciiStrToUpper(underscores)};
  // Of letters alone, in parts of two or more: where another part begins is plain then.
  bool camel = word.find_first_of(".0123456789") == absl::string_view::npos;
  for (const absl::string_view part : absl::StrSplit(word, '-')) camel = camel && part.size() > 1;
  if (camel) all.push_back(CamelCase(dashes));
  return all;
}

const FieldDescriptor& DescriptorOf(const std::string& path) {
  v1::Job job;
  return *FindJobField(path, &job).field;
}

// Values that a field may have.
std::vector<std::string> SamplesOf(const std::string& path) {
  const FieldRow* const row = FindFieldRow(path);
  std::vector<std::string> samples;
  for (const absl::string_view field : VocabularyFields()) {
    if (field != path || row == nullptr) continue;
    for (const absl::string_view word : row->words) samples.emplace_back(word);
  }
  const FieldDescriptor& field = DescriptorOf(path);
  if (field.is_repeated()) {
    for (std::string& sample : samples) sample = absl::StrCat("[", sample, "]");
    return samples.empty() ? std::vector<std::string>{"[something]"} : samples;
  }
  if (!samples.empty()) return samples;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return {"true", "false"};
    case FieldDescriptor::CPPTYPE_INT64:
      return {"2", "4096"};
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return {"0.25"};
    default:
      return {"something"};
  }
}

// A word's value, what it says of its field, and what must be said beside it.
struct Case {
  std::string value;
  Settings own;
  Settings beside = {};
};

// What a word that is true says: it may be another word for a value itself.
Settings Truth(const std::string& field, absl::string_view word) {
  const ValueSynonym* const row = FindValueSynonym(field, std::string(word), {});
  Settings own = {{field, std::string(row == nullptr ? word : row->value)}};
  if (row != nullptr && !row->other_field.empty()) {
    own.push_back({std::string(row->other_field), std::string(row->other_value)});
  }
  return own;
}

void AddTruths(const FieldSynonym& row, std::vector<Case>* cases) {
  const std::string field(row.field);
  for (const char* const yes : {"true", "True", "yes", "ON", "1"}) {
    cases->push_back({yes, Truth(field, row.on)});
  }
  for (const char* const no : {"false", "FALSE", "no", "off", "0"}) {
    const bool says = row.reading == WordReading::kSwitch && !row.off.empty();
    cases->push_back({no, says ? Settings{{field, std::string(row.off)}} : Settings{}});
  }
}

std::vector<Case> CasesOf(const FieldSynonym& row) {
  const std::string field(row.field);
  std::vector<Case> cases;
  switch (row.reading) {
    case WordReading::kSwitch:
    case WordReading::kImplied:
    case WordReading::kRefined:
      AddTruths(row, &cases);
      break;
    case WordReading::kMebibytes:
      cases = {{"3", {{field, "3145728"}}}};
      break;
    case WordReading::kNodes:
      cases = {{"3", {{field, "12"}}, {{"cluster.gpus_per_node", "4"}}}, {"2", {{field, "16"}}}};
      break;
    case WordReading::kAccumulation:
      cases = {{"5",
                {{field, "30"}},
                {{"parallelism.data_parallel_size", "3"}, {"training.micro_batch_size", "2"}}}};
      break;
    case WordReading::kHost:
      cases = {{"cpu", {{field, "true"}}}, {"none", {}}};
      break;
    case WordReading::kWords:
      for (const absl::string_view word : absl::StrSplit(row.on, ' ')) {
        cases.push_back({std::string(word), Truth(field, word)});
      }
      break;
    case WordReading::kBits:
      cases = {{"4", {{field, "nf4"}}}, {"8", {{field, "int8"}}}};
      break;
    default:
      for (const std::string& sample : SamplesOf(field))
        cases.push_back({sample, {{field, sample}}});
  }
  if (row.reading != WordReading::kSame) cases.push_back({"auto", {}});
  return cases;
}

Settings With(Settings settings, const Settings& more) {
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

TEST(SynonymWordsTest, AFilesNamesAreTheFieldsOwn) {
  int count = 0;
  for (const FieldSynonym& row : FieldSynonyms()) {
    for (const Case& one : CasesOf(row)) {
      Settings own = With(one.own, one.beside);
      // DeepSpeed's own section is nobody else's.
      if (absl::StartsWith(row.word, "zero-optimization")) {
        own.push_back({"runtime.framework", "deepspeed"});
      }
      for (const std::string& spelling : Spellings(row.word)) {
        const std::string yaml = Nested(spelling, one.value);
        ExpectReadsAs(Read(yaml, one.beside), own, yaml);
        ++count;
      }
    }
  }
  EXPECT_GT(count, 1000);
}

TEST(SynonymWordsTest, ASettingsNamesAreTheFieldsOwn) {
  for (const FieldSynonym& row : FieldSynonyms()) {
    for (const Case& one : CasesOf(row)) {
      for (const std::string& spelling : Spellings(row.word)) {
        const Settings settings = With(one.beside, {{spelling, one.value}});
        ExpectReadsAs(Read("{}", settings), With(one.own, one.beside),
                      absl::StrCat(spelling, "=", one.value));
      }
    }
  }
}

// The first of a list of words with blanks between.
std::string FirstOf(absl::string_view words) {
  return std::string(words.substr(0, words.find(' ')));
}

// Who runs a job by a row of values.
Settings UserOf(const ValueSynonym& row) {
  Settings user;
  const std::string trainer = FirstOf(row.trainers);
  if (!trainer.empty()) user.push_back({"runtime.trainer", trainer});
  const std::string framework = FirstOf(row.frameworks);
  if (!framework.empty()) user.push_back({"runtime.framework", framework});
  return user;
}

// A word as the value of its field.
std::string InList(const ValueSynonym& row, absl::string_view word) {
  const bool list = DescriptorOf(std::string(row.field)).is_repeated();
  return list ? absl::StrCat("[\"", word, "\"]") : std::string(word);
}

// Another word for a value is the value, in a file and in a setting; printed in the API's words,
// the job reads as itself, with nothing more to say of it.
TEST(SynonymWordsTest, ValuesAreTheFieldsOwn) {
  for (const ValueSynonym& row : ValueSynonyms()) {
    const std::string field(row.field);
    const Settings user = UserOf(row);
    Settings own = With(user, {{field, InList(row, row.value)}});
    if (!row.other_field.empty()) {
      own.push_back({std::string(row.other_field), std::string(row.other_value)});
    }
    const std::string word(row.word);
    for (const std::string& spelling :
         {word, absl::StrReplaceAll(word, {{"-", "_"}}), absl::AsciiStrToUpper(word)}) {
      const std::string value = InList(row, spelling);
      const Outcome set = Read("{}", With(user, {{field, value}}));
      ExpectReadsAs(set, own, absl::StrCat(field, "=", value));
      const Outcome in_file = Read(Nested(field, value), user);
      ExpectReadsAs(in_file, own, absl::StrCat(field, ": ", value));
      const Outcome again = Read(ToJobFile(set.job));
      EXPECT_EQ(ToText(again.wrong), "") << field << " " << value;
      EXPECT_THAT(again.read, IsEmpty()) << field << " " << value;
      EXPECT_TRUE(MessageDifferencer::Equals(again.job, set.job)) << field << " " << value;
    }
  }
}

// A field's own words, whatever their case, are themselves.
TEST(SynonymWordsTest, OwnWordsStayWhatTheyAre) {
  for (const absl::string_view path : VocabularyFields()) {
    const std::string field(path);
    for (const std::string& sample : SamplesOf(field)) {
      const Outcome own = Read(Nested(field, sample));
      ExpectReadsAs(own, {{field, sample}}, absl::StrCat(field, ": ", sample));
      EXPECT_THAT(own.read, IsEmpty()) << field << ": " << sample;
      if (absl::StrContains(sample, "_")) continue;  // a module's name in Python, not a word
      const std::string loud = absl::StrReplaceAll(absl::AsciiStrToUpper(sample), {{"-", "_"}});
      ExpectReadsAs(Read(Nested(field, loud)), {{field, sample}}, absl::StrCat(field, ": ", loud));
    }
  }
}

TEST(SynonymWordsTest, RefusedNamesSayWhyWhereTheyStand) {
  int count = 0;
  for (const RefusedWord& row : RefusedWords()) {
    if (!row.field.empty()) continue;
    ++count;
    for (const std::string& spelling : Spellings(row.word)) {
      const Outcome seen = Read(Nested(absl::StrCat("training.", spelling), "junk"));
      ASSERT_THAT(seen.wrong, SizeIs(1)) << spelling;
      EXPECT_EQ(seen.wrong[0].field, absl::StrCat("job.training.", spelling));
      EXPECT_EQ(seen.wrong[0].value, "junk") << spelling;
      EXPECT_EQ(seen.wrong[0].rule, row.rule) << spelling;
      EXPECT_EQ(seen.wrong[0].code, row.code) << spelling;
      if (row.neutral.empty()) continue;
      const std::string neutral(row.neutral);
      const Outcome nothing = Read("{}", {{spelling, neutral}});
      ExpectReadsAs(nothing, {}, absl::StrCat(spelling, "=", neutral));
      ExpectReadsAs(Read(Nested(spelling, neutral)), {}, absl::StrCat(spelling, ": ", neutral));
    }
  }
  EXPECT_GT(count, 40);
}

// What is not modelled is the service's to refuse; the rest says what it may mean.
TEST(SynonymWordsTest, RefusedValuesSayWhyOrAreLeft) {
  for (const RefusedWord& row : RefusedWords()) {
    if (row.field.empty()) continue;
    const std::string field(row.field);
    const std::string word(row.word);
    Settings settings = {{field, word}};
    const std::string trainer = FirstOf(row.trainers);
    if (!trainer.empty()) settings.push_back({"runtime.trainer", trainer});
    const Outcome seen = Read("{}", settings);
    if (row.code == ViolationCode::kNotModelled) {
      ExpectReadsAs(seen, settings, absl::StrCat(field, "=", word));
      continue;
    }
    ASSERT_THAT(seen.wrong, SizeIs(1)) << field << " " << word;
    EXPECT_EQ(ToText(seen.wrong[0]), absl::StrCat("job.", field, ": ", word, "; ", row.rule));
    EXPECT_EQ(seen.wrong[0].code, row.code) << field << " " << word;
    EXPECT_FALSE(HasJobField(field, seen.job)) << field << " " << word;
  }
}

// Of a file full of refused names each is said, in order, and the rest is read.
TEST(SynonymWordsTest, EverythingWrongIsSaidAtOnce) {
  std::string yaml = "seq_len: 8k\n";
  std::vector<std::string> expected;
  for (const RefusedWord& row : RefusedWords()) {
    if (!row.field.empty() || absl::StrContains(row.word, ".")) continue;
    absl::StrAppend(&yaml, row.word, ": junk\n");
    expected.push_back(absl::StrCat("job.", row.word, ": junk; ", row.rule));
  }
  const Outcome seen = Read(yaml + "mbs: 2\n");
  std::vector<std::string> lines;
  for (const Violation& violation : seen.wrong) lines.push_back(ToText(violation));
  EXPECT_EQ(lines, expected);
  EXPECT_EQ(seen.job.training().sequence_length(), 8192);
  EXPECT_EQ(seen.job.training().micro_batch_size(), 2);
}

// A word that is no switch, number or device says so under its own name, in its own spelling.
TEST(SynonymWordsTest, ValuesThatAWordCannotHave) {
  for (const FieldSynonym& row : FieldSynonyms()) {
    std::string rule;
    if (IsBoolean(row.reading)) rule = "must be true or false";
    if (row.reading == WordReading::kHost) {
      rule = "must be cpu or none: another device is not modelled yet";
    }
    if (row.reading == WordReading::kMebibytes || row.reading == WordReading::kNodes ||
        row.reading == WordReading::kAccumulation) {
      rule = "must be a whole number above 0";
    }
    if (rule.empty()) continue;
    for (const std::string value : {"junk", "-1", "1.5", "99999999999999999999"}) {
      const Outcome seen = Read("{}", {{std::string(row.word), value}});
      ASSERT_THAT(seen.wrong, SizeIs(1)) << row.word << " " << value;
      EXPECT_EQ(ToText(seen.wrong[0]), absl::StrCat("job.", row.word, ": ", value, "; ", rule));
      EXPECT_TRUE(MessageDifferencer::Equals(seen.job, v1::Job())) << row.word << " " << value;
    }
  }
}

TEST(FlagFieldsTest, EachFlagIsItsField) {
  std::set<std::string> flags, fields;
  for (const JobFlag& flag : JobFlags()) {
    EXPECT_TRUE(flags.insert(flag.flag).second) << flag.flag;
    EXPECT_TRUE(fields.insert(flag.field).second) << flag.field;
    ASSERT_TRUE(absl::StartsWith(flag.flag, "--")) << flag.flag;
    const std::string name = flag.flag.substr(2);
    const std::string sample = SamplesOf(flag.field).front();
    for (const std::string& spelling : Spellings(name)) {
      EXPECT_EQ(FlagField(spelling), flag.field) << spelling;
      const JobSetting setting = ToSetting(spelling, sample);
      EXPECT_EQ(setting.field, flag.field) << spelling;
      EXPECT_EQ(setting.value, sample) << spelling;
      ExpectReadsAs(Read(Nested(spelling, sample)), {{flag.field, sample}}, spelling);
    }
  }
  EXPECT_GT(flags.size(), 30u);
}

// The choices that help and completion offer are taken as they are.
TEST(FlagFieldsTest, ChoicesOfAFlagAreItsFields) {
  int count = 0;
  for (const JobFlag& flag : JobFlags()) {
    absl::string_view choices = flag.value;
    if (!absl::ConsumePrefix(&choices, "{") || !absl::ConsumeSuffix(&choices, "}")) continue;
    const bool list = DescriptorOf(flag.field).is_repeated();
    for (const absl::string_view choice : absl::StrSplit(choices, ',')) {
      const std::string value = list ? absl::StrCat("[", choice, "]") : std::string(choice);
      const Outcome seen = Read("{}", {ToSetting(flag.flag.substr(2), value)});
      ExpectReadsAs(seen, {{flag.field, value}}, absl::StrCat(flag.flag, " ", value));
      EXPECT_THAT(seen.read, IsEmpty()) << flag.flag << " " << value;
      ++count;
    }
  }
  EXPECT_GT(count, 60);
}

TEST(FlagFieldsTest, OtherNamesArePaths) {
  EXPECT_EQ(FlagField("no-such-flag"), "");
  EXPECT_EQ(FlagField(""), "");
  const JobSetting path = ToSetting("training.sequence_length", "8");
  EXPECT_EQ(path.field, "training.sequence_length");
  EXPECT_EQ(path.value, "8");
  EXPECT_EQ(ToSetting("model", "./llama").field, "model.hf_config");
  EXPECT_EQ(ToSetting("model", "llama-3.1-8b").field, "model.name");
}

}  // namespace
}  // namespace plimsoll
