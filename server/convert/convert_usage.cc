#include "server/convert/convert_usage.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "server/convert/convert.h"
#include "server/convert/convert_job.h"
#include "server/wire/shorten.h"

namespace plimsoll {
namespace {

constexpr size_t kMaxSeenBytes = 64;

// Reads single fields and collects what is wrong with them.
class UsageReader {
 public:
  void Fail(const std::string& field, const std::string& value, std::string rule,
            ViolationCode code) {
    violations_.push_back({field, Shorten(value, kMaxSeenBytes), std::move(rule), code});
  }

  // Nothing where it is not a word.
  template <typename Value, size_t kCount>
  std::optional<Value> Find(const std::string& field, const std::string& name,
                            const Word<Value> (&words)[kCount]) {
    const std::optional<Value> value = FindWord(name, words);
    if (!value.has_value()) {
      Fail(field, name.empty() ? "unset" : name, NotAWord(name, words),
           name.empty() ? ViolationCode::kMissing : ViolationCode::kUnknownName);
    }
    return value;
  }

  std::string Text(const std::string& field, const std::string& text) {
    const auto is_printable = [](char c) {
      return absl::ascii_isprint(static_cast<unsigned char>(c));
    };
    if (text.size() > kMaxReportedTextBytes) {
      Fail(field, absl::StrCat(text.size(), " bytes"),
           absl::StrCat("must be at most ", kMaxReportedTextBytes, " bytes"),
           ViolationCode::kTooLarge);
    } else if (!std::all_of(text.begin(), text.end(), is_printable)) {
      Fail(field, text, "must be printable ASCII", ViolationCode::kMalformed);
    }
    return text;
  }

  int64_t Bytes(const std::string& field, int64_t bytes, int64_t least) {
    if (bytes < least || bytes > kMaxReportedBytes) {
      Fail(field, absl::StrCat(bytes),
           absl::StrCat("must be from ", least, " to ", kMaxReportedBytes),
           ViolationCode::kOutOfRange);
    }
    return bytes;
  }

  Gauge Figures(const std::string& field, const v1::Gauge& from) {
    const Gauge gauge = {Bytes(field + ".expected_bytes", from.expected_bytes(), 1),
                         Bytes(field + ".bound_bytes", from.bound_bytes(), 1)};
    if (gauge.bound_bytes > 0 && gauge.bound_bytes < gauge.expected_bytes) {
      Fail(field + ".bound_bytes", absl::StrCat(gauge.bound_bytes),
           absl::StrCat("must be at least the expected figure, ", gauge.expected_bytes),
           ViolationCode::kConflict);
    }
    return gauge;
  }

  Violations TakeViolations() { return std::move(violations_); }

 private:
  Violations violations_;
};

Verdict ReadVerdict(v1::Verdict verdict, UsageReader* reader) {
  constexpr std::pair<v1::Verdict, Verdict> kVerdicts[] = {
      {v1::VERDICT_FITS, Verdict::kFits},
      {v1::VERDICT_AT_RISK, Verdict::kAtRisk},
      {v1::VERDICT_DOES_NOT_FIT, Verdict::kDoesNotFit},
  };
  for (const auto& [from, to] : kVerdicts) {
    if (verdict == from) return to;
  }
  reader->Fail("prediction.verdict", verdict == 0 ? "unset" : absl::StrCat(verdict),
               "must be one of VERDICT_FITS, VERDICT_AT_RISK, VERDICT_DOES_NOT_FIT",
               verdict == 0 ? ViolationCode::kMissing : ViolationCode::kUnknownName);
  return Verdict::kFits;
}

// Every gauge that was sent is checked, whether it is the one that was measured or not.
Gauge ReadGauges(const v1::Prediction& from, std::optional<UsageGauge> measured,
                 UsageReader* reader) {
  struct Sent {
    UsageGauge gauge;
    const char* field;
    const v1::Gauge* figures;
  };
  const Sent all[] = {
      {UsageGauge::kAllocated, "prediction.allocated",
       from.has_allocated() ? &from.allocated() : nullptr},
      {UsageGauge::kReserved, "prediction.reserved",
       from.has_reserved() ? &from.reserved() : nullptr},
      {UsageGauge::kDevice, "prediction.device", from.has_device() ? &from.device() : nullptr},
  };
  Gauge result;
  for (const Sent& sent : all) {
    if (sent.figures != nullptr) {
      const Gauge figures = reader->Figures(sent.field, *sent.figures);
      if (measured == sent.gauge) result = figures;
    } else if (measured == sent.gauge) {
      reader->Fail(sent.field, "unset", "must be set: it is the gauge that was measured",
                   ViolationCode::kMissing);
    }
  }
  return result;
}

void ReadPrediction(const v1::Prediction& from, std::optional<UsageGauge> measured,
                    UsageReport* report, UsageReader* reader) {
  report->verdict = ReadVerdict(from.verdict(), reader);
  report->predicted = ReadGauges(from, measured, reader);
  reader->Bytes("prediction.usable_bytes", from.usable_bytes(), 0);
  report->detail = reader->Text("prediction.detail", from.detail());
  report->estimator_version =
      reader->Text("prediction.estimator_version", from.estimator_version());
  report->calibration_id = reader->Text("prediction.calibration_id", from.calibration_id());
}

// `may_be_empty`: where the job ran out of memory, or it is not known how it ended.
int64_t ReadPeaks(const v1::ReportUsageRequest& request, bool may_be_empty, UsageReader* reader) {
  constexpr char kField[] = "actual_peak_bytes";
  const int count = request.actual_peak_bytes_size();
  if (count > kMaxReportedPeaks) {
    reader->Fail(kField, absl::StrCat(count, " numbers"),
                 absl::StrCat("must be at most ", kMaxReportedPeaks), ViolationCode::kTooLarge);
    return 0;
  }
  if (count == 0 && !may_be_empty) {
    reader->Fail(kField, "unset", "must be set, but for outcome out-of-memory",
                 ViolationCode::kMissing);
  }
  int64_t largest = 0;
  for (int i = 0; i < count; ++i) {
    const int64_t peak = request.actual_peak_bytes(i);
    // Not named before something is wrong: there may be many.
    if (peak < 1 || peak > kMaxReportedBytes) {
      reader->Bytes(absl::StrCat(kField, "[", i, "]"), peak, 1);
    }
    largest = std::max(largest, peak);
  }
  return largest;
}

UsageLabels ReadLabels(const v1::Prediction& prediction, const Catalog& catalog) {
  if (!prediction.has_job() || !CheckHfConfig(prediction.job().model()).empty()) return {};
  const auto job = Validate(FromProto(prediction.job()), catalog);
  const auto* const valid = std::get_if<ValidJob>(&job);
  return valid == nullptr ? UsageLabels() : LabelsOf(*valid);
}

}  // namespace

std::variant<UsageReport, Violations> FromProto(const v1::ReportUsageRequest& request,
                                                const Catalog& catalog) {
  UsageReader reader;
  UsageReport report;
  report.job_id = reader.Text("job_id", request.job_id());
  report.gauge_name = request.has_gauge() ? request.gauge() : "device";
  report.source_name = request.has_source() ? request.source() : "other";
  report.outcome_name = request.outcome();
  const auto gauge = reader.Find("gauge", report.gauge_name, kUsageGauges);
  reader.Find("source", report.source_name, kUsageSources);
  const bool sees_device = report.source_name == "dcgm" || report.source_name == "nvidia-smi";
  if (gauge.has_value() && sees_device && report.gauge_name != "device") {
    reader.Fail("gauge", report.gauge_name,
                absl::StrCat("must be device, which is what ", report.source_name, " shows"),
                ViolationCode::kConflict);
  }
  const auto outcome = reader.Find("outcome", report.outcome_name, kUsageOutcomes);
  if (request.has_prediction()) {
    ReadPrediction(request.prediction(), gauge, &report, &reader);
  } else {
    reader.Fail("prediction", "unset", "must be set", ViolationCode::kMissing);
  }
  report.actual_bytes = ReadPeaks(
      request, outcome.value_or(UsageOutcome::kOutOfMemory) == UsageOutcome::kOutOfMemory, &reader);
  Violations violations = reader.TakeViolations();
  if (!violations.empty()) return violations;
  report.outcome = *outcome;
  report.gpu_count = request.actual_peak_bytes_size();
  report.labels = ReadLabels(request.prediction(), catalog);
  return report;
}

void Encode(const UsageReport& report, WireWriter* to) {
  using Response = v1::ReportUsageResponse;
  to->Double(Response::kActualPerPredictedFieldNumber, report.ActualPerPredicted());
  to->Number(Response::kWithinBoundFieldNumber, report.IsWithinBound());
  to->Text(Response::kFrameworkFieldNumber, report.labels.framework);
  to->Text(Response::kGpuFieldNumber, report.labels.gpu);
  to->Text(Response::kStrategyFieldNumber, report.labels.strategy);
}

}  // namespace plimsoll
