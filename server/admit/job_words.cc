#include "server/admit/job_words.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/wire/json.h"
#include "server/wire/shorten.h"
#include "server/words/flag_fields.h"
#include "server/words/job_settings.h"

namespace plimsoll {
namespace {

constexpr char kDirective[] = "#PLIMSOLL";
constexpr char kCommentStart[] = "plimsoll:";
constexpr char kResize[] = "resize";
constexpr char kUnread[] = "unread=";
constexpr size_t kMostUnreadBytes = 200;
constexpr size_t kMaxValueBytes = 4096;  // of one field
constexpr size_t kMostSettings = 256;

std::string Shown(absl::string_view text) { return Clean(Shorten(text, kMostShownBytes)); }

// Reads lines of words into `words`.
class WordsReader {
 public:
  WordsReader(JobWords* words, Violations* violations) : words_(*words), violations_(*violations) {}

  void ReadLine(absl::string_view line) {
    for (;;) {
      line = absl::StripLeadingAsciiWhitespace(line);
      if (line.empty()) return;
      if (line[0] == '{') return ReadInlineJob(absl::StripTrailingAsciiWhitespace(line));
      if (absl::ConsumePrefix(&line, kUnread)) return TellUnread(line);
      const size_t end = std::min(line.find_first_of(" \t\r\v\f"), line.size());
      ReadWord(line.substr(0, end));
      line.remove_prefix(end);
    }
  }

 private:
  void Fail(absl::string_view value, absl::string_view rule) {
    violations_.push_back(
        {words_.source, Shown(value), std::string(rule), ViolationCode::kMalformed});
  }

  void TellUnread(absl::string_view complaint) {
    violations_.push_back({words_.source, Clean(Shorten(complaint, kMostUnreadBytes)),
                           "was not read where the job was submitted", ViolationCode::kMalformed});
  }

  void ReadInlineJob(absl::string_view json) {
    if (!words_.inline_job.empty() || !words_.file.empty()) return Fail(json, "one job is enough");
    words_.inline_job = std::string(json);
  }

  void ReadWord(absl::string_view word) {
    const size_t equals = word.find('=');
    if (equals == absl::string_view::npos) {
      if (!words_.inline_job.empty() || !words_.file.empty()) {
        return Fail(word, "must be FIELD=VALUE: there is a job already");
      }
      words_.file = std::string(word);
      return;
    }
    const std::string name(word.substr(0, equals));
    const std::string value(word.substr(equals + 1));
    if (name == kResize) return ReadResize(value);
    if (name.empty()) return Fail(word, "must be FIELD=VALUE");
    if (value.size() > kMaxValueBytes || value.find_first_of("&*") != std::string::npos) {
      return Fail(word, absl::StrCat("must be at most ", kMaxValueBytes,
                                     " bytes, without anchors or aliases (& and *)"));
    }
    if (words_.settings.size() == kMostSettings) {
      return Fail(word, absl::StrCat("must be at most ", kMostSettings, " fields"));
    }
    words_.settings.push_back(ToSetting(name, value));
  }

  void ReadResize(const std::string& value) {
    if (value != "allowed" && value != "never") {
      return Fail(absl::StrCat(kResize, "=", value), "must be resize=allowed or resize=never");
    }
    words_.resize_allowed = value == "allowed";
  }

  JobWords& words_;
  Violations& violations_;
};

// The words of `text` where it is one of a script's lines, of a comment, or all
// of it; empty where they are nobody's.
absl::string_view AfterDirective(absl::string_view line) {
  if (!absl::ConsumePrefix(&line, kDirective)) return "";
  return line.empty() || absl::ascii_isspace(static_cast<unsigned char>(line[0])) ? line : "";
}

bool IsDirective(absl::string_view line) {
  return line == kDirective || !AfterDirective(line).empty();
}

void ReadSource(const char* source, absl::string_view text, size_t max_bytes, JobWords* words,
                Violations* violations) {
  words->source = source;
  if (text.size() > max_bytes) {
    violations->push_back({source, absl::StrCat("over ", max_bytes, " bytes"),
                           absl::StrCat("must be at most ", max_bytes), ViolationCode::kTooLarge});
    return;
  }
  WordsReader reader(words, violations);
  for (const absl::string_view line : absl::StrSplit(text, '\n')) reader.ReadLine(line);
}

// The words of a script, without what makes them comments of the shell.
std::string ScriptWords(absl::string_view lines) {
  std::vector<std::string> words;
  for (const absl::string_view line : absl::StrSplit(lines, '\n')) {
    words.emplace_back(AfterDirective(line));
  }
  return absl::StrJoin(words, "\n");
}

bool Blank(absl::string_view text) { return absl::StripAsciiWhitespace(text).empty(); }

}  // namespace

bool IsJobScript(absl::string_view text) {
  if (absl::StartsWith(text, "#!")) return true;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (IsDirective(line)) return true;
  }
  return false;
}

// Reads the job in JSON: of a job in YAML, aliases and merges could take seconds.
void ReadInlineJob(const JobWords& words, v1::Job* job, Violations* misread) {
  if (words.inline_job.empty()) return;
  google::protobuf::Value value;
  Violations violations = ReadJsonValue(words.inline_job, &value);
  if (violations.empty()) violations = ReadJsonMessage(std::move(value), "job", job);
  for (Violation& violation : violations) {
    if (violation.field == "request") violation.field = words.source;
    violation.value = Clean(violation.value);
    violation.field = Clean(violation.field);
    misread->push_back(std::move(violation));
  }
}

JobWords ReadWords(const v1::SchedulerRequest& request, Violations* violations) {
  JobWords words;
  const std::string script = ScriptWords(request.script_words());
  absl::string_view comment = request.comment();
  if (!Blank(request.environment_words())) {
    ReadSource("PLIMSOLL_JOB", request.environment_words(), kMaxWordsBytes, &words, violations);
  } else if (!Blank(script)) {
    ReadSource(kDirective, script, kMaxWordsBytes, &words, violations);
  } else if (absl::ConsumePrefix(&comment, kCommentStart)) {
    ReadSource("--comment", comment, kMaxCommentBytes, &words, violations);
  }
  return words;
}

JobWords ReadScriptWords(absl::string_view script, Violations* violations) {
  v1::SchedulerRequest request;
  std::vector<absl::string_view> lines;  // its own alone: a script may be long
  for (const absl::string_view line : absl::StrSplit(script, '\n')) {
    if (IsDirective(line)) lines.push_back(line);
  }
  request.set_script_words(absl::StrJoin(lines, "\n"));
  return ReadWords(request, violations);
}

std::optional<v1::Job> ReadJob(const JobWords& words, Violations* misread) {
  if (!words.file.empty()) {
    misread->push_back({words.source, Shown(words.file),
                        "must say the job itself: the scheduler reads no files of users (submit "
                        "where cli_filter is installed, or by plimsoll submit)"});
    return std::nullopt;
  }
  v1::Job job;
  ReadInlineJob(words, &job, misread);
  JobTranslator translator;
  ApplySettings(words.settings, /*folder=*/std::nullopt, &translator, &job, misread);
  translator.Finish(&job);
  misread->insert(misread->end(), translator.violations().begin(), translator.violations().end());
  return job;
}

std::string UnreadWords(const Violations& wrong) {
  std::string words;
  for (const Violation& violation : wrong) {
    absl::StrAppend(&words, kUnread, Clean(Shorten(ToText(violation), kMostUnreadBytes)), "\n");
  }
  return words;
}

std::string InlineWords(const v1::Job& job, bool resize_allowed) {
  return absl::StrCat(resize_allowed ? "resize=allowed " : "", ToShortJson(job));
}

}  // namespace plimsoll
