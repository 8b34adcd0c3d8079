#include "server/catalog/speed_table.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "estimator/job/vocabularies.h"
#include "server/catalog/strict_yaml.h"

namespace plimsoll {
namespace {

constexpr absl::string_view kSpeedTableFields[] = {
    "id", "date", "source", "gpus", "other_gpu", "frameworks", "other_framework",
};
constexpr absl::string_view kGpuFields[] = {
    "matrix_efficiency",
    "matrix_half_gflop",
    "attention_efficiency",
    "memory_efficiency",
    "link_efficiency",
    "network_efficiency",
    "measured",
    "spread",
    "source",
};
constexpr absl::string_view kFrameworkFields[] = {
    "stack_factor", "tensor_overlap", "data_overlap", "kernel_seconds", "collective_seconds",
    "hop_seconds",  "step_seconds",   "measured",     "spread",         "source",
};

// One set of constants while it is read.
struct Set {
  std::string where;
  const YAML::Node& fields;

  std::string Path(absl::string_view field) const { return absl::StrCat(where, ".", field); }

  double Number(const std::string& field, double least, double most) const {
    const std::string what = absl::StrCat("must be a number from ", least, " to ", most);
    const auto number = Read<double>(fields[field], Path(field), what);
    if (!(number >= least && number <= most)) Refuse(Path(field), what);
    return number;
  }

  // Nothing is reached entirely without effort: 0 would take forever.
  double Efficiency(const std::string& field) const { return Number(field, 0.01, 1); }

  bool Measured() const {
    return Read<bool>(fields["measured"], Path("measured"), "must be true or false");
  }

  void CheckSource() const {
    const auto source = Read<std::string>(fields["source"], Path("source"), "must be a text");
    if (source.empty()) Refuse(Path("source"), "must be a text");
  }
};

GpuSpeed ReadGpu(const std::string& gpu, const Set& set) {
  CheckFields(set.fields, kGpuFields, set.where);
  set.CheckSource();
  return {
      .gpu = gpu,
      .matrix_efficiency = set.Efficiency("matrix_efficiency"),
      .matrix_half_gflop = set.Number("matrix_half_gflop", 0, 10000),
      .attention_efficiency = set.Efficiency("attention_efficiency"),
      .memory_efficiency = set.Efficiency("memory_efficiency"),
      .link_efficiency = set.Efficiency("link_efficiency"),
      .network_efficiency = set.Efficiency("network_efficiency"),
      .measured = set.Measured(),
      .spread = set.Number("spread", 0, 10),
  };
}

FrameworkSpeed ReadFramework(Framework framework, const Set& set) {
  CheckFields(set.fields, kFrameworkFields, set.where);
  set.CheckSource();
  return {
      .framework = framework,
      .stack_factor = set.Number("stack_factor", 0.1, 10),
      .tensor_overlap = set.Number("tensor_overlap", 0, 1),
      .data_overlap = set.Number("data_overlap", 0, 1),
      .kernel_seconds = set.Number("kernel_seconds", 0, 1),
      .collective_seconds = set.Number("collective_seconds", 0, 1),
      .hop_seconds = set.Number("hop_seconds", 0, 1),
      .step_seconds = set.Number("step_seconds", 0, 100),
      .measured = set.Measured(),
      .spread = set.Number("spread", 0, 10),
  };
}

// Calls `read` with the name and the fields of each set; no name comes twice.
template <typename ReadSet>
void ReadSets(const YAML::Node& table, const std::string& field, const ReadSet& read) {
  const YAML::Node sets = table[field];
  if (!sets || !sets.IsMap()) Refuse(field, "must be a map");
  std::set<std::string> seen;
  for (const auto& entry : sets) {
    const std::string& name = entry.first.Scalar();
    if (!seen.insert(name).second) Refuse(field, absl::StrCat(name, " is there twice"));
    read(name, Set{absl::StrCat(field, ".", name), entry.second});
  }
}

SpeedTable SpeedsOf(const YAML::Node& table) {
  CheckFields(table, kSpeedTableFields, "table");
  SpeedTable speed;
  speed.id = Read<std::string>(table["id"], "id", "must be a text");
  if (speed.id.empty() || speed.id.size() > 64) Refuse("id", "must be 1 to 64 bytes");
  ReadSets(table, "gpus", [&speed](const std::string& gpu, const Set& set) {
    speed.gpus.push_back(ReadGpu(gpu, set));
  });
  ReadSets(table, "frameworks", [&speed](const std::string& name, const Set& set) {
    speed.frameworks.push_back(ReadFramework(WordNamed(name, "frameworks", kFrameworks), set));
  });
  const YAML::Node other_gpu = table["other_gpu"];
  speed.other_gpu = ReadGpu("", {"other_gpu", other_gpu});
  const YAML::Node other_framework = table["other_framework"];
  speed.other_framework = ReadFramework(Framework{}, {"other_framework", other_framework});
  return speed;
}

}  // namespace

absl::StatusOr<SpeedTable> ReadSpeedTable(const DataFile& file) {
  return ReadStrictly<SpeedTable>(file, SpeedsOf);
}

absl::StatusOr<SpeedTable> LoadSpeed(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadSiteFile(path);
  if (!text.ok()) return text.status();
  return ReadSpeedTable({.path = path, .text = *text});
}

}  // namespace plimsoll
