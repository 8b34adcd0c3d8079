#include "client/report/measured_row.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "client/io/standard_streams.h"
#include "client/io/text.h"
#include "client/report/report_words.h"
#include "server/wire/json.h"
#include "server/wire/shorten.h"

namespace plimsoll {
namespace {

constexpr char kLineEnd[] = "\r\n";
constexpr size_t kMaxFileBytes = 256 << 20;
constexpr absl::Duration kLockPause = absl::Milliseconds(20);

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

using ValueByColumn = std::map<std::string, std::string>;

// What the job itself says, for people: the row is judged by its `job`.
void AddJob(const v1::Job& job, ValueByColumn* columns) {
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
  add("cp", parallelism.has_context_parallel_size(), parallelism.context_parallel_size());
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

// A file of rows, locked for as long as this lives.
class RowsFile {
 public:
  explicit RowsFile(const std::string& name)
      : name_(name),
        file_(open(name.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK,
                   0644)) {}
  ~RowsFile() {
    if (file_ >= 0) close(file_);
  }
  RowsFile(const RowsFile&) = delete;
  RowsFile& operator=(const RowsFile&) = delete;

  // Locks and reads it.
  absl::Status Open(absl::Time deadline, std::string* text) const {
    struct stat status;
    if (file_ < 0 || fstat(file_, &status) != 0) return Failed();
    if (!S_ISREG(status.st_mode)) return Bad("must be a regular file");
    while (flock(file_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) return Failed();
      if (absl::Now() >= deadline) return Bad("locked by another for too long");
      absl::SleepFor(kLockPause);
    }
    return Read(text);
  }

  // Shortens the file to `size` bytes.
  absl::Status Truncate(size_t size) const {
    return ftruncate(file_, static_cast<off_t>(size)) == 0 ? absl::OkStatus() : Failed();
  }

  // Appends all of `text`, or nothing, to the file of `size` bytes.
  absl::Status Append(absl::string_view text, size_t size) const {
    while (!text.empty()) {
      const ssize_t count = write(file_, text.data(), text.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) {
        absl::Status failed = Failed();
        const absl::Status taken_back = Truncate(size);
        return taken_back.ok() ? failed : taken_back;
      }
      text.remove_prefix(static_cast<size_t>(count));
    }
    return absl::OkStatus();
  }

  absl::Status Bad(absl::string_view what) const {
    return absl::InternalError(absl::StrCat("--rows: ", name_, "; ", what));
  }

 private:
  absl::Status Read(std::string* text) const {
    char buffer[1 << 16];
    for (;;) {
      const ssize_t count = pread(file_, buffer, sizeof buffer, static_cast<off_t>(text->size()));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return Failed();
      if (count == 0) return absl::OkStatus();
      text->append(buffer, static_cast<size_t>(count));
      if (text->size() > kMaxFileBytes) return Bad("over 256 MiB; must be a new file");
    }
  }

  absl::Status Failed() const { return Bad(std::strerror(errno)); }

  const std::string& name_;
  const int file_;
};

// The rows of a file, apart.
struct Rows {
  std::vector<absl::string_view> lines;  // the header first; without their ends
  size_t whole_bytes = 0;                // up to the end of the last
};

// Whether a line without an end is a row all the same: it has every column, and the last,
// which is quoted, is closed.
bool IsWhole(absl::string_view line) {
  bool quoted = false;
  size_t columns = 1;
  for (const char c : line) {
    if (c == '"') quoted = !quoted;
    if (c == ',' && !quoted) ++columns;
  }
  return !quoted && columns == std::size(kColumns);
}

// Line ends within quotation marks end no row.
Rows SplitRows(absl::string_view text) {
  Rows rows;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') quoted = !quoted;
    if (text[i] != '\n' || quoted) continue;
    rows.lines.push_back(
        absl::StripSuffix(text.substr(rows.whole_bytes, i - rows.whole_bytes), "\r"));
    rows.whole_bytes = i + 1;
  }
  return rows;
}

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
  ValueByColumn columns = {
      {"id", id},
      {"source_url_or_repo_path", "plimsoll report"},
      {"gpu", labels.gpu()},
      {"framework", labels.framework()},
      {"measured_value", absl::StrCat(*std::max_element(peaks.begin(), peaks.end()))},
      {"unit", "B"},
      {"what_is_measured", request.gauge()},
      {"notes", NotesOf(request, MeasuredGauge(request))},
      {"job", ToShortJson(request.prediction().job(), /*otherwise=*/"")}};
  AddJob(request.prediction().job(), &columns);
  std::vector<std::string> fields;
  for (const char* const column : kColumns) fields.push_back(CsvField(Clean(columns[column])));
  return {.id = CsvField(id), .line = absl::StrJoin(fields, ",")};
}

absl::Status AppendRow(const std::string& file, const MeasuredRow& row, absl::Time deadline) {
  const RowsFile rows_file(file);
  std::string text;
  if (absl::Status opened = rows_file.Open(deadline, &text); !opened.ok()) return opened;
  const std::string header = MeasuredHeader();
  Rows rows = SplitRows(text);
  const absl::string_view tail = absl::string_view(text).substr(rows.whole_bytes);
  if (IsWhole(tail)) rows.lines.push_back(tail);
  const bool is_new = rows.lines.empty() && absl::StartsWith(header, text);
  if (!is_new && (rows.lines.empty() || rows.lines[0] != header)) {
    return rows_file.Bad("its first line must be " + header);
  }
  for (const absl::string_view line : rows.lines) {
    if (!absl::StartsWith(line, row.id + ",")) continue;
    Say(absl::StrCat("--rows: ", file, " has ", row.id, " already; not added again"));
    return absl::OkStatus();
  }
  const bool is_cut = !tail.empty() && !IsWhole(tail);
  if (is_cut && !is_new) Say(absl::StrCat("--rows: ", file, " ended in half a row; taken out"));
  const size_t size = is_cut ? rows.whole_bytes : text.size();
  absl::Status cut = is_cut ? rows_file.Truncate(size) : absl::OkStatus();
  if (!cut.ok()) return cut;
  const char* const before = !tail.empty() && !is_cut ? kLineEnd : "";
  return rows_file.Append(absl::StrCat(before, is_new ? header + kLineEnd : "", row.line, kLineEnd),
                          size);
}

}  // namespace plimsoll
