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

// Reads `text`, which messages call `name` (empty: there is none), then the settings.
// `folder` and `settings_folder` are where they find their files; none: nowhere.
absl::StatusOr<v1::Job> ReadText(const std::string& text, const std::string& name,
                                 const std::optional<std::string>& folder,
                                 const std::vector<JobSetting>& settings,
                                 const std::optional<std::string>& settings_folder,
                                 std::vector<std::string>* misread) {
  v1::Job job;
  if (!name.empty()) {
    const absl::StatusOr<YAML::Node> node = ParseYaml(text, name);
    if (!node.ok()) return node.status();
    YamlReader reader(folder);
    reader.Read(*node, kRoot, &job);
    *misread = reader.violations();
  }
  YamlReader reader(settings_folder);
  for (const JobSetting& setting : settings) {
    reader.Set(setting.field, setting.value, kRoot, &job);
  }
  misread->insert(misread->end(), reader.violations().begin(), reader.violations().end());
  return job;
}

}  // namespace

absl::StatusOr<v1::Job> ReadJob(const std::string& file, const std::vector<JobSetting>& settings,
                                std::vector<std::string>* misread) {
  if (file.empty()) return ReadInlineJob("", Files::kRead, settings, misread);
  const absl::StatusOr<std::string> text = ReadDocument(file);
  if (!text.ok()) return text.status();
  return ReadText(*text, file, FolderOf(file), settings, "", misread);
}

absl::StatusOr<v1::Job> ReadInlineJob(const std::string& text, Files files,
                                      const std::vector<JobSetting>& settings,
                                      std::vector<std::string>* misread) {
  std::optional<std::string> folder;
  if (files == Files::kRead) folder = "";
  return ReadText(text, text.empty() ? "" : kRoot, folder, settings, folder, misread);
}

}  // namespace plimsoll
