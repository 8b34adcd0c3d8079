#include "client/job_file.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/admit/job_words.h"
#include "client/admit/requested_job.h"
#include "client/admit/sbatch_lines.h"
#include "client/document.h"
#include "client/yaml_message.h"

namespace plimsoll {
namespace {

constexpr char kRoot[] = "job";

std::string FolderOf(const std::string& file) {
  const size_t slash = file.rfind('/');
  return slash == std::string::npos ? "" : file.substr(0, slash + 1);
}

// Whether a document is a model's config.json, which has no job around it.
bool IsHfConfig(const YAML::Node& node) {
  return node.IsMap() && !node["model"] && (node["model_type"] || node["architectures"]);
}

absl::Status RefuseHfConfig(const std::string& file) {
  return Invalid({{file, "a model's config.json",
                   absl::StrCat("must be a job: --model ", file,
                                " takes it, as does `model: ", file, "` in a job file"),
                   ViolationCode::kMalformed}});
}

// Reads a job from its parts, in turn, into one.
class JobReader {
 public:
  JobReader(v1::Job* job, Violations* misread) : job_(*job), misread_(*misread) {}

  // Errors: INVALID_ARGUMENT where the file is no document, or a config.json.
  absl::Status ReadFile(const std::string& file) {
    const absl::StatusOr<std::string> text = ReadDocument(file);
    if (!text.ok()) return text.status();
    return IsJobScript(*text) ? ReadScript(*text, file) : ReadYaml(*text, file);
  }

  void Apply(const std::vector<JobSetting>& settings, const std::optional<std::string>& folder) {
    YamlReader reader(folder);
    for (const JobSetting& setting : settings) {
      const std::optional<JobSetting> translated = translator_.Translate(setting);
      if (translated.has_value()) reader.Set(translated->field, translated->value, kRoot, &job_);
    }
    Add(reader.violations());
  }

  // Returns what was read otherwise than it was written.
  std::vector<v1::Assumption> Finish() {
    translator_.Finish(&job_);
    Add(translator_.violations());
    return translator_.read();
  }

 private:
  absl::Status ReadYaml(const std::string& text, const std::string& file) {
    const absl::StatusOr<YAML::Node> node = ParseYaml(text, file);
    if (!node.ok()) return node.status();
    if (IsHfConfig(*node)) return RefuseHfConfig(file);
    YamlReader reader(FolderOf(file));
    reader.Read(translator_.Translate(*node), kRoot, &job_);
    Add(reader.violations());
    return absl::OkStatus();
  }

  // What the lines of a job script say, as admission reads them, with the GPUs that it asks
  // Slurm for. A job file that they name is looked for where sbatch would run: here.
  absl::Status ReadScript(const std::string& text, const std::string& script) {
    const JobWords words = ReadScriptWords(text, &misread_);
    if (!words.said()) {
      return Invalid({{script, "a script without #PLIMSOLL lines",
                       "must say its job, as #PLIMSOLL job.yaml or #PLIMSOLL model=llama-3.1-8b",
                       ViolationCode::kMissing}});
    }
    if (!words.file.empty()) {
      if (in_script_) {
        return Invalid({{words.source, words.file, "must be a job file, no script",
                         ViolationCode::kMalformed}});
      }
      in_script_ = true;
      const absl::Status read = ReadFile(words.file);
      if (!read.ok()) return read;
    }
    ReadInlineJob(words, &job_, &misread_);
    Apply(words.settings, "");
    // Whether two names are of one GPU, the service knows: the job's own stands.
    const auto same_gpu = [](const std::string&, const std::string&) { return true; };
    AddCluster(ReadGpuRequest(ReadSbatchLines(text), &misread_), v1::AdmissionRules(), same_gpu,
               &job_, &misread_);
    return absl::OkStatus();
  }

  void Add(const Violations& violations) {
    misread_.insert(misread_.end(), violations.begin(), violations.end());
  }

  v1::Job& job_;
  Violations& misread_;
  JobTranslator translator_;
  bool in_script_ = false;
};

}  // namespace

void ApplySettings(const std::vector<JobSetting>& settings, Files files, v1::Job* job,
                   Violations* misread) {
  std::optional<std::string> folder;
  if (files == Files::kRead) folder = "";
  JobReader reader(job, misread);
  reader.Apply(settings, folder);
  reader.Finish();
}

absl::StatusOr<v1::Job> ReadJob(const std::string& file, const std::vector<JobSetting>& settings,
                                Violations* misread, std::vector<v1::Assumption>* read_as) {
  v1::Job job;
  JobReader reader(&job, misread);
  const absl::Status read = file.empty() ? absl::OkStatus() : reader.ReadFile(file);
  if (!read.ok()) return read;
  reader.Apply(settings, "");
  std::vector<v1::Assumption> notes = reader.Finish();
  if (read_as != nullptr) *read_as = std::move(notes);
  return job;
}

}  // namespace plimsoll
