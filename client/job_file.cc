#include "client/job_file.h"

#include <optional>

#include "client/document.h"
#include "client/yaml_message.h"

namespace plimsoll {
namespace {

constexpr char kRoot[] = "job";

std::string FolderOf(const std::string& file) {
  const size_t slash = file.rfind('/');
  return slash == std::string::npos ? "" : file.substr(0, slash + 1);
}

}  // namespace

void ApplySettings(const std::vector<JobSetting>& settings, Files files, v1::Job* job,
                   Violations* misread) {
  std::optional<std::string> folder;
  if (files == Files::kRead) folder = "";
  YamlReader reader(folder);
  for (const JobSetting& setting : settings) reader.Set(setting.field, setting.value, kRoot, job);
  misread->insert(misread->end(), reader.violations().begin(), reader.violations().end());
}

absl::StatusOr<v1::Job> ReadJob(const std::string& file, const std::vector<JobSetting>& settings,
                                Violations* misread) {
  v1::Job job;
  if (!file.empty()) {
    const absl::StatusOr<std::string> text = ReadDocument(file);
    if (!text.ok()) return text.status();
    const absl::StatusOr<YAML::Node> node = ParseYaml(*text, file);
    if (!node.ok()) return node.status();
    YamlReader reader(FolderOf(file));
    reader.Read(*node, kRoot, &job);
    misread->insert(misread->end(), reader.violations().begin(), reader.violations().end());
  }
  ApplySettings(settings, Files::kRead, &job, misread);
  return job;
}

}  // namespace plimsoll
