#include "client/job/job_file.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/job/sbatch_lines.h"
#include "server/admit/job_words.h"
#include "server/admit/requested_job.h"
#include "server/words/document.h"
#include "server/words/job_settings.h"
#include "server/words/yaml_message.h"

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

  // A config.json that a setting names is looked for in the working folder.
  void Apply(const std::vector<JobSetting>& settings) {
    ApplySettings(settings, "", &translator_, &job_, &misread_);
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
      absl::Status read = ReadFile(words.file);
      if (!read.ok()) return read;
    }
    ReadInlineJob(words, &job_, &misread_);
    Apply(words.settings);
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

absl::StatusOr<v1::Job> ReadJob(const std::string& file, const std::vector<JobSetting>& settings,
                                Violations* misread, std::vector<v1::Assumption>* read_as) {
  v1::Job job;
  JobReader reader(&job, misread);
  const absl::Status read = file.empty() ? absl::OkStatus() : reader.ReadFile(file);
  if (!read.ok()) return read;
  reader.Apply(settings);
  std::vector<v1::Assumption> notes = reader.Finish();
  if (read_as != nullptr) *read_as = std::move(notes);
  return job;
}

absl::StatusOr<v1::Job> ReadNamedJob(const JobWords& words, Violations* misread) {
  if (!words.file.empty()) return ReadJob(words.file, words.settings, misread);
  v1::Job job;
  ReadInlineJob(words, &job, misread);
  JobReader reader(&job, misread);
  reader.Apply(words.settings);
  reader.Finish();
  return job;
}

}  // namespace plimsoll
