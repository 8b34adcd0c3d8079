#include "server/catalog/gpu_table.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace plimsoll {
namespace {

constexpr double kMib = 1 << 20;
constexpr double kGigabyte = 1e9;

constexpr std::pair<absl::string_view, GpuArchitecture> kArchitectures[] = {
    {"volta", GpuArchitecture::kVolta},   {"turing", GpuArchitecture::kTuring},
    {"ampere", GpuArchitecture::kAmpere}, {"ada", GpuArchitecture::kAda},
    {"hopper", GpuArchitecture::kHopper}, {"blackwell", GpuArchitecture::kBlackwell},
    {"cdna2", GpuArchitecture::kCdna2},   {"cdna3", GpuArchitecture::kCdna3},
};
constexpr absl::string_view kDTypes[] = {"fp32", "tf32", "fp16", "bf16", "fp8", "fp4"};
constexpr absl::string_view kGpuTableFields[] = {
    "architecture",
    "multiprocessor_count",
    "threads_per_multiprocessor",
    "aliases",
    "driver_memory_mib",
    "runtime_memory_mib",
    "bandwidth_gb_per_second",
    "teraflops",
    "interconnect",
    "interconnect_gb_per_second",
    "network_gb_per_second",
    "link_domain_size",
    "nvswitch",
    "source",
};

// Thrown inside this file only, as yaml-cpp reports by exceptions anyway; its
// text is "<gpu>.<field>: <what is wrong>".
struct BadRow {
  std::string text;
};

// One row while it is read.
struct Row {
  std::string id;
  YAML::Node fields;

  [[noreturn]] void Refuse(absl::string_view field, absl::string_view what) const {
    throw BadRow{absl::StrCat(id, ".", field, ": ", what)};
  }

  std::string Text(absl::string_view field) const {
    const YAML::Node node = fields[std::string(field)];
    if (!node || !node.IsScalar() || node.Scalar().empty()) Refuse(field, "must be a text");
    return node.Scalar();
  }

  // Returns `scale` times the number.
  int64_t Scaled(absl::string_view field, double scale) const {
    double number = 0;
    const YAML::Node node = fields[std::string(field)];
    if (!node || !YAML::convert<double>::decode(node, number) || !(number > 0 && number < 1e9)) {
      Refuse(field, "must be a number above 0");
    }
    return std::llround(number * scale);
  }
};

GpuArchitecture ReadArchitecture(const Row& row) {
  const std::string name = row.Text("architecture");
  for (const auto& [known, architecture] : kArchitectures) {
    if (known == name) return architecture;
  }
  row.Refuse("architecture", absl::StrCat(name, " is not known"));
}

std::map<std::string, double> ReadTeraflops(const Row& row) {
  std::map<std::string, double> teraflops;
  const YAML::Node rates = row.fields["teraflops"];
  if (!rates || !rates.IsMap()) row.Refuse("teraflops", "must be a map");
  for (const auto& rate : rates) {
    const std::string& dtype = rate.first.Scalar();
    double number = 0;
    if (std::find(std::begin(kDTypes), std::end(kDTypes), dtype) == std::end(kDTypes) ||
        !YAML::convert<double>::decode(rate.second, number) || !(number > 0)) {
      row.Refuse("teraflops", absl::StrCat(dtype, " is not a rate of a known dtype"));
    }
    teraflops[dtype] = number;
  }
  return teraflops;
}

Gpu ReadGpu(const Row& row) {
  for (const auto& field : row.fields) {
    const std::string& name = field.first.Scalar();
    if (std::find(std::begin(kGpuTableFields), std::end(kGpuTableFields), name) ==
        std::end(kGpuTableFields)) {
      row.Refuse(name, "is not known");
    }
  }
  Gpu gpu;
  gpu.id = row.id;
  gpu.architecture = ReadArchitecture(row);
  if (row.fields["multiprocessor_count"]) {
    gpu.multiprocessor_count = row.Scaled("multiprocessor_count", 1);
  }
  if (row.fields["threads_per_multiprocessor"]) {
    gpu.threads_per_multiprocessor = row.Scaled("threads_per_multiprocessor", 1);
  }
  gpu.driver_memory_bytes = row.Scaled("driver_memory_mib", kMib);
  gpu.runtime_memory_bytes = row.Scaled("runtime_memory_mib", kMib);
  if (gpu.runtime_memory_bytes > gpu.driver_memory_bytes) {
    row.Refuse("runtime_memory_mib", "must not exceed driver_memory_mib");
  }
  gpu.memory_bandwidth_bytes_per_second = row.Scaled("bandwidth_gb_per_second", kGigabyte);
  gpu.teraflops = ReadTeraflops(row);
  gpu.interconnect = row.Text("interconnect");
  gpu.interconnect_bytes_per_second = row.Scaled("interconnect_gb_per_second", kGigabyte);
  gpu.network_bytes_per_second = row.Scaled("network_gb_per_second", kGigabyte);
  if (row.fields["link_domain_size"]) {
    gpu.link_domain_size = row.Scaled("link_domain_size", 1);
  }
  const YAML::Node nvswitch = row.fields["nvswitch"];
  if (nvswitch && !YAML::convert<bool>::decode(nvswitch, gpu.nvswitch)) {
    row.Refuse("nvswitch", "must be true or false");
  }
  gpu.source = row.Text("source");
  for (const YAML::Node& alias : row.fields["aliases"]) gpu.aliases.push_back(alias.Scalar());
  return gpu;
}

void AddAliases(const Row& row, const Gpu& gpu, Catalog& catalog) {
  for (const std::string& alias : gpu.aliases) {
    const std::string lower = absl::AsciiStrToLower(alias);
    const auto [entry, is_new] = catalog.gpu_aliases.emplace(lower, gpu.id);
    if (!is_new) row.Refuse("aliases", absl::StrCat(alias, " is already ", entry->second));
  }
  // Kubernetes labels write a driver's name with '-' for spaces.
  for (const std::string& alias : gpu.aliases) {
    const std::string label = absl::StrReplaceAll(absl::AsciiStrToLower(alias), {{" ", "-"}});
    const auto entry = catalog.gpu_aliases.emplace(label, gpu.id).first;
    if (entry->second != gpu.id) {
      row.Refuse("aliases", absl::StrCat(alias, " is already ", entry->second));
    }
  }
}

// The words of an id, or of a name in lower case. Sockets count as their form: sxm4 as
// sxm.
std::set<std::string> WordsOf(absl::string_view name) {
  std::set<std::string> words;
  for (const absl::string_view word : absl::StrSplit(name, absl::ByAnyChar("- "))) {
    const bool socket = word.size() == 4 && word.substr(0, 3) == "sxm";
    words.emplace(socket ? word.substr(0, 3) : word);
  }
  return words;
}

// "could also be a, b or c": the ids but for `own`.
std::string OthersThan(const std::string& own, std::vector<std::string> ids) {
  ids.erase(std::find(ids.begin(), ids.end(), own));
  const std::string last = ids.back();
  ids.pop_back();
  return absl::StrCat("could also be ", absl::StrJoin(ids, ", "), ids.empty() ? "" : " or ", last);
}

// Marks the aliases that may mean several GPUs.
//
// Errors: INVALID_ARGUMENT where such an alias may not mean the GPU that has it.
absl::Status AddAmbiguous(const DataFile& file, Catalog& catalog) {
  std::map<std::string, std::set<std::string>> words_by_id;
  for (const auto& [id, gpu] : catalog.gpus) words_by_id[id] = WordsOf(id);
  for (const auto& [alias, own] : catalog.gpu_aliases) {
    const std::set<std::string> words = WordsOf(alias);
    std::vector<std::string> ids;
    for (const auto& [id, of_id] : words_by_id) {
      if (std::includes(of_id.begin(), of_id.end(), words.begin(), words.end())) ids.push_back(id);
    }
    if (ids.empty() || (ids.size() == 1 && ids[0] == own)) continue;
    if (std::find(ids.begin(), ids.end(), own) == ids.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.path, ": ", own, ".aliases: ", alias, " means ", ids[0]));
    }
    catalog.ambiguous_gpus[alias] = {.ids = ids, .others = OthersThan(own, ids)};
  }
  return absl::OkStatus();
}

void AddGpu(const Row& row, Catalog& catalog) {
  if (!row.fields.IsMap()) throw BadRow{absl::StrCat(row.id, ": must be a map")};
  const Gpu gpu = ReadGpu(row);
  AddAliases(row, gpu, catalog);
  if (!catalog.gpus.emplace(gpu.id, gpu).second) {
    throw BadRow{absl::StrCat(row.id, ": is there twice")};
  }
}

}  // namespace

absl::Status ReadGpuTable(const DataFile& file, Catalog& catalog) {
  try {
    const YAML::Node table = YAML::Load(std::string(file.text));
    if (!table.IsMap()) throw BadRow{"must be a map of GPU ids"};
    for (const auto& entry : table) {
      AddGpu({entry.first.Scalar(), entry.second}, catalog);
    }
  } catch (const BadRow& bad) {
    return absl::InvalidArgumentError(absl::StrCat(file.path, ": ", bad.text));
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(file.path, ": ", error.what()));
  }
  for (const auto& [alias, id] : catalog.gpu_aliases) {
    if (catalog.gpus.contains(alias)) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.path, ": ", id, ".aliases: ", alias, " is an id"));
    }
  }
  return AddAmbiguous(file, catalog);
}

}  // namespace plimsoll
