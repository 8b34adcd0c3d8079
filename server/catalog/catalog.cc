#include "server/catalog/catalog.h"

#include <cstdlib>
#include <iostream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "estimator/job/hf_config.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "server/catalog/calibration_table.h"
#include "server/catalog/config_struct.h"
#include "server/catalog/gpu_table.h"
#include "server/catalog/hf_id_table.h"
#include "server/catalog/speed_table.h"

namespace plimsoll {
namespace {

absl::Status Broken(absl::string_view path, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

absl::Status AddModel(const DataFile& file, absl::string_view id, Catalog& catalog) {
  google::protobuf::Struct object;
  const auto parsed = google::protobuf::util::JsonStringToMessage(
      google::protobuf::StringPiece(file.text.data(), file.text.size()), &object);
  if (!parsed.ok()) {
    return Broken(file.path, absl::string_view(parsed.message().data(), parsed.message().size()));
  }
  const std::optional<ConfigValue> config = ToConfigValue(object);
  if (!config.has_value()) return Broken(file.path, "is nested too deeply");
  HfConfig read = ReadHfConfig(*config, id);
  if (!read.violations.empty()) return Broken(file.path, ToText(read.violations.front()));
  catalog.models.emplace(id, std::move(read.model));
  return absl::OkStatus();
}

// Puts a table, if it could be read, into its place.
template <typename Table>
absl::Status Place(absl::StatusOr<Table> read, Table* place) {
  if (!read.ok()) return read.status();
  *place = *std::move(read);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Catalog> ParseCatalog(absl::Span<const DataFile> files) {
  Catalog catalog;
  for (const DataFile& file : files) {
    absl::string_view id = file.path;
    absl::Status status;
    if (absl::ConsumePrefix(&id, "models/") && absl::ConsumeSuffix(&id, ".json")) {
      status = AddModel(file, id, catalog);
    } else if (file.path == "gpus.yaml") {
      status = ReadGpuTable(file, catalog);
    } else if (file.path == "hf_ids.yaml") {
      status = Place(ReadHfIdTable(file), &catalog.hf_ids);
    } else if (file.path == "calibration.yaml") {
      status = Place(ReadCalibrationTable(file), &catalog.calibration);
    } else if (file.path == "speed.yaml") {
      status = Place(ReadSpeedTable(file), &catalog.speed);
    }
    if (!status.ok()) return status;
  }
  for (const auto& [lower, hf_id] : catalog.hf_ids) {
    if (catalog.models.contains(hf_id.model)) continue;
    return Broken("hf_ids.yaml", absl::StrCat(hf_id.model, ": is no model of the catalog"));
  }
  return catalog;
}

const Catalog& LoadCatalog() {
  static const Catalog* const catalog = [] {
    absl::StatusOr<Catalog> parsed = ParseCatalog(EmbeddedFiles());
    if (!parsed.ok()) {
      std::cerr << "plimsoll: the catalog is broken: " << parsed.status().message() << "\n";
      std::abort();
    }
    return new Catalog(*std::move(parsed));
  }();
  return *catalog;
}

}  // namespace plimsoll
