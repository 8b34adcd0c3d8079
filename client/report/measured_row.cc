#include "client/report/measured_row.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/report/report_words.h"
#include "client/standard_streams.h"
#include "google/protobuf/util/json_util.h"

namespace plimsoll {
namespace {

constexpr char kLineEnd[] = "\r\n";

// The columns of tests/accuracy/data, and the job.
constexpr const char* kColumns[] = {"id",
                                    "source_url_or_repo_path",
                                    "model",
                                    "params_b",
                                    "hidden",
                                    "layers",
                                    "heads",
                                    "kv_heads",
                                    "ffn",
                                    "vocab",
                                    "gpu",
                                    "num_gpus",
                                    "framework",
                                    "dp",
                                    "fsdp_shard",
                                    "tp",
                                    "pp",
                                    "pp_schedule",
                                    "cp",
                                    "ep",
                                    "sequence_parallel",
                                    "zero_stage",
                                    "precision",
                                    "optimizer",
                                    "seq_len",
                                    "micro_batch",
                                    "grad_accum",
                                    "recompute",
                                    "attention",
                                    "peft",
                                    "compile",
                                    "offload",
                                    "measured_value",
                                    "unit",
                                    "what_is_measured",
                                    "notes",
                                    "job"};

using Columns = std::map<std::string, std::string>;

std::string JobJson(const v1::Job& job) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  // Fails for nothing that was read from JSON.
  if (!google::protobuf::util::MessageToJsonString(job, &json, options).ok()) json.clear();
  return json;
}

// What the job itself says, for people: the row is judged by its `job`.
void AddJob(const v1::Job& job, Columns* columns) {
  const auto add = [columns](const char* name, bool is_set, const auto& value) {
    if (is_set) (*columns)[name] = absl::StrCat(value);
  };
  const v1::Training& training = job.training();
  const v1::Parallelism& parallelism = job.parallelism();
  add("model", job.model().source_case() == v1::Model::kName, job.model().name());
  add("num_gpus", job.cluster().has_gpu_count(), job.cluster().gpu_count());
  add("dp", parallelism.has_data_parallel_size(), parallelism.data_parallel_size());
  add("fsdp_shard", parallelism.has_shard_group_size(), parallelism.shard_group_size());
  add("tp", parallelism.has_tensor_parallel_size(), parallelism.tensor_parallel_size());
  add("pp", parallelism.has_pipeline_parallel_size(), parallelism.pipeline_parallel_size());
  add("pp_schedule", parallelism.has_pipeline_schedule(), parallelism.pipeline_schedule());
  add("sequence_parallel", parallelism.has_sequence_parallel(),
      parallelism.sequence_parallel() ? "true" : "false");
  add("zero_stage", parallelism.has_zero_stage(), parallelism.zero_stage());
  add("precision", training.precision().has_preset(), training.precision().preset());
  add("optimizer", training.optimizer().has_name(), training.optimizer().name());
  add("seq_len", training.has_sequence_length(), training.sequence_length());
  add("micro_batch", training.has_micro_batch_size(), training.micro_batch_size());
  add("recompute", training.recompute().has_mode(), training.recompute().mode());
  add("attention", training.has_attention(), training.attention());
}

std::string NotesOf(const v1::ReportUsageRequest& request, const v1::Gauge& predicted) {
  const v1::Prediction& prediction = request.prediction();
  return absl::StrCat(
      "grade=B; moment=whole run; outcome=", request.outcome(), "; source=", request.source(),
      "; gpus=", request.actual_peak_bytes_size(), "; predicted=", predicted.expected_bytes(),
      "; bound=", predicted.bound_bytes(), "; estimator=", prediction.estimator_version(),
      "; calibration=", prediction.calibration_id());
}

// A file that is locked for as long as this lives.
class LockedFile {
 public:
  explicit LockedFile(const std::string& name)
      : name_(name),
        file_(open(name.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0644)) {
    while (file_ >= 0 && flock(file_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~LockedFile() {
    if (file_ >= 0) close(file_);
  }
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;

  absl::Status Read(std::string* text) const {
    struct stat status;
    if (file_ < 0 || fstat(file_, &status) != 0) return Failed();
    if (!S_ISREG(status.st_mode)) {
      return absl::InternalError(absl::StrCat("--rows: ", name_, "; must be a regular file"));
    }
    char buffer[1 << 16];
    for (;;) {
      const ssize_t count = pread(file_, buffer, sizeof buffer, static_cast<off_t>(text->size()));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return Failed();
      if (count == 0) return absl::OkStatus();
      text->append(buffer, static_cast<size_t>(count));
    }
  }

  absl::Status Append(absl::string_view text) const {
    while (!text.empty()) {
      const ssize_t count = write(file_, text.data(), text.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return Failed();
      text.remove_prefix(static_cast<size_t>(count));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Failed() const {
    return absl::InternalError(absl::StrCat("--rows: ", name_, "; ", std::strerror(errno)));
  }

  const std::string& name_;
  const int file_;
};

}  // namespace

std::string CsvField(absl::string_view text) {
  if (text.find_first_of(",\"\r\n") == absl::string_view::npos) return std::string(text);
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

std::string MeasuredHeader() { return absl::StrJoin(kColumns, ","); }

MeasuredRow RowOf(const v1::ReportUsageRequest& request, const v1::ReportUsageResponse& labels) {
  const auto& peaks = request.actual_peak_bytes();
  const std::string id =
      absl::StrCat("reported-", request.job_id(), ":whole_run_", request.gauge());
  Columns columns = {
      {"id", id},
      {"source_url_or_repo_path", "plimsoll report"},
      {"gpu", labels.gpu()},
      {"framework", labels.framework()},
      {"measured_value", absl::StrCat(*std::max_element(peaks.begin(), peaks.end()))},
      {"unit", "B"},
      {"what_is_measured", request.gauge()},
      {"notes", NotesOf(request, MeasuredGauge(request))},
      {"job", JobJson(request.prediction().job())}};
  AddJob(request.prediction().job(), &columns);
  std::vector<std::string> fields;
  for (const char* const column : kColumns) fields.push_back(CsvField(columns[column]));
  return {.id = CsvField(id), .line = absl::StrJoin(fields, ",")};
}

absl::Status AppendRow(const std::string& file, const MeasuredRow& row) {
  const LockedFile locked(file);
  std::string text;
  const absl::Status read = locked.Read(&text);
  if (!read.ok()) return read;
  const std::string header = MeasuredHeader();
  if (!text.empty() && !absl::StartsWith(text, header + "\n") &&
      !absl::StartsWith(text, header + "\r\n")) {
    return absl::InternalError(absl::StrCat("--rows: ", file, "; its first line must be ", header));
  }
  if (absl::StrContains(text, absl::StrCat("\n", row.id, ","))) {
    Say(absl::StrCat("--rows: ", file, " has ", row.id, " already; not added again"));
    return absl::OkStatus();
  }
  const bool is_cut = !text.empty() && text.back() != '\n';
  return locked.Append(absl::StrCat(text.empty() ? header + kLineEnd
                                    : is_cut     ? kLineEnd
                                                 : "",
                                    row.line, kLineEnd));
}

}  // namespace plimsoll
