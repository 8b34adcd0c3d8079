#include "server/catalog/calibration_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "estimator/base/vocabulary.h"
#include "estimator/job/job.h"
#include "estimator/job/vocabularies.h"
#include "server/catalog/strict_yaml.h"

namespace plimsoll {
namespace {

constexpr Word<CalibratedGauge> kGauges[] = {
    {"allocated", CalibratedGauge::kAllocated},
    {"reserved", CalibratedGauge::kReserved},
    {"device", CalibratedGauge::kDevice},
    {"capacity", CalibratedGauge::kCapacity},
};
constexpr Word<Detail> kTableDetails[] = {
    {"summary", Detail::kSummary},
    {"replay", Detail::kReplay},
};
constexpr absl::string_view kCalibrationTableFields[] = {"id",   "date",  "source",
                                                         "gpus", "risks", "shares"};
constexpr absl::string_view kRowFields[] = {
    "gauge",   "detail", "framework", "trainer", "tensor_parallel", "expandable_segments",
    "phantom", "rows",   "shares",
};

// `rising`: shares; else risks, which fall.
std::vector<double> ReadNumbers(const YAML::Node& node, absl::string_view field, bool rising) {
  const absl::string_view what = rising ? "must be numbers from 0 to 100 that do not fall"
                                        : "must be numbers above 0, at most 0.5, that fall";
  if (!node || !node.IsSequence() || node.size() == 0) Refuse(field, what);
  std::vector<double> numbers;
  for (const YAML::Node& entry : node) {
    const double number = Read<double>(entry, field, what);
    const bool in_range = rising ? number >= 0 && number <= 100 : number >= 0.0001 && number <= 0.5;
    const bool in_order =
        numbers.empty() || (rising ? number >= numbers.back() : number < numbers.back());
    if (!in_range || !in_order) Refuse(field, what);
    numbers.push_back(number);
  }
  return numbers;
}

CalibrationRow ReadRow(const YAML::Node& fields, const std::string& where, size_t risk_count) {
  CheckFields(fields, kRowFields, where);
  const auto path = [&where](absl::string_view field) { return absl::StrCat(where, ".", field); };
  CalibrationRow row;
  row.gauge = ReadWord(fields["gauge"], path("gauge"), kGauges);
  row.detail = ReadWord(fields["detail"], path("detail"), kTableDetails);
  if (fields["framework"]) {
    row.framework = ReadWord(fields["framework"], path("framework"), kFrameworks);
  }
  if (fields["trainer"]) {
    const bool none = fields["trainer"].IsScalar() && fields["trainer"].Scalar() == "none";
    row.trainer = none ? Trainer::kNone : ReadWord(fields["trainer"], path("trainer"), kTrainers);
  }
  const auto flag = [&](const char* name) -> std::optional<bool> {
    if (!fields[name]) return std::nullopt;
    return Read<bool>(fields[name], path(name), "must be true or false");
  };
  row.tensor_parallel = flag("tensor_parallel");
  row.expandable_segments = flag("expandable_segments");
  row.phantom = flag("phantom").value_or(false);
  const bool of_allocator =
      row.gauge == CalibratedGauge::kAllocated || row.gauge == CalibratedGauge::kReserved;
  if (row.phantom && !(of_allocator && row.framework.has_value())) {
    Refuse(path("phantom"), "must be of allocated or reserved, and of a framework");
  }
  row.row_count = Read<int64_t>(fields["rows"], path("rows"), "must be a number of rows");
  row.shares = ReadNumbers(fields["shares"], path("shares"), true);
  if (row.shares.size() != risk_count) {
    Refuse(path("shares"), absl::StrCat("must be ", risk_count, ", one for each risk"));
  }
  return row;
}

// Whether shares are there for a job of which nothing is known.
bool HasFallback(const Calibration& calibration, CalibratedGauge gauge, Detail detail) {
  return std::any_of(
      calibration.rows.begin(), calibration.rows.end(), [&](const CalibrationRow& row) {
        return row.gauge == gauge && row.detail == detail && !row.framework.has_value() &&
               !row.tensor_parallel.has_value() && !row.expandable_segments.has_value();
      });
}

// Every gauge must have shares for such a job.
void CheckFallbacks(const Calibration& calibration) {
  for (const Word<CalibratedGauge>& gauge : kGauges) {
    for (const Word<Detail>& detail : kTableDetails) {
      const bool needed =
          gauge.value != CalibratedGauge::kCapacity || detail.value == Detail::kReplay;
      if (!needed || HasFallback(calibration, gauge.value, detail.value)) continue;
      Refuse("shares",
             absl::StrCat("no row is for every job: gauge ", gauge.name, ", detail ", detail.name));
    }
  }
}

Calibration CalibrationOf(const YAML::Node& table) {
  CheckFields(table, kCalibrationTableFields, "table");
  Calibration calibration;
  calibration.id = Read<std::string>(table["id"], "id", "must be a text");
  if (calibration.id.empty() || calibration.id.size() > 64) Refuse("id", "must be 1 to 64 bytes");
  calibration.risks = ReadNumbers(table["risks"], "risks", false);
  if (calibration.risks.back() > 0.1) Refuse("risks", "must reach 0.1 or less");
  if (!table["gpus"] || !table["gpus"].IsSequence()) Refuse("gpus", "must be a list of GPU ids");
  for (const YAML::Node& gpu : table["gpus"]) {
    calibration.gpus.push_back(Read<std::string>(gpu, "gpus", "must be a list of GPU ids"));
  }
  if (!table["shares"] || !table["shares"].IsSequence()) Refuse("shares", "must be a list");
  for (const YAML::Node& row : table["shares"]) {
    const std::string where = absl::StrCat("shares[", calibration.rows.size(), "]");
    calibration.rows.push_back(ReadRow(row, where, calibration.risks.size()));
  }
  CheckFallbacks(calibration);
  return calibration;
}

}  // namespace

absl::StatusOr<Calibration> ReadCalibrationTable(const DataFile& file) {
  return ReadStrictly<Calibration>(file, CalibrationOf);
}

absl::StatusOr<Calibration> LoadCalibration(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadSiteFile(path);
  if (!text.ok()) return text.status();
  return ReadCalibrationTable({.path = path, .text = *text});
}

}  // namespace plimsoll
