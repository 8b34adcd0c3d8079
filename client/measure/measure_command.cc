#include "client/measure/measure_command.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/io/output_file.h"
#include "client/io/standard_streams.h"
#include "client/io/terminal.h"
#include "client/measure/gpu_facts.h"
#include "client/measure/measure_answer.h"
#include "client/measure/measurement.h"
#include "client/measure/profiled_job.h"
#include "client/measure/run_child.h"
#include "client/service/service.h"
#include "server/catalog/gpu_names.h"
#include "server/words/yaml_writer.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

// A folder that is gone with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::error_code error;
    std::string pattern = (fs::temp_directory_path(error) / "plimsoll-measure-XXXXXX").string();
    if (const char* const made = mkdtemp(pattern.data())) path_ = made;
  }
  ~TemporaryFolder() {
    std::error_code error;
    if (!path_.empty()) fs::remove_all(path_, error);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }  // empty: it could not be made

 private:
  std::string path_;
};

absl::Status Check(const MeasureCommand& command) {
  if (command.command.empty() || command.gpu.empty()) {
    return absl::InvalidArgumentError(
        "measure: too little given; must have --gpu, then -- and the command that trains");
  }
  if (command.rank.count < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--gpus: ", command.rank.count, "; must be at least 1"));
  }
  if (command.rank.rank < 0 || command.rank.rank >= command.rank.count) {
    return absl::InvalidArgumentError(absl::StrCat("--rank: ", command.rank.rank, "; must be 0 to ",
                                                   command.rank.count - 1, ", as --gpus says"));
  }
  if (command.step_count < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--steps: ", command.step_count, "; must be 0, for as many as there are, or more"));
  }
  return absl::OkStatus();
}

// The one GPU that a name means.
absl::StatusOr<std::string> IdOf(const std::string& name) {
  const std::vector<std::string> ids = GpusCalled(name);
  if (ids.size() == 1) return ids[0];
  if (ids.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--gpu: ", name, "; must be a GPU of the catalog: plimsoll gpus lists them"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--gpu: ", name, "; must be one of ", absl::StrJoin(ids, ", ")));
}

absl::StatusOr<MeasuredGpu> MemoryOf(const std::string& id, const PlannerClient& client) {
  const absl::StatusOr<v1::ListGpusResponse> list = client.ListGpus();
  if (!list.ok()) return list.status();
  for (const v1::GpuInfo& gpu : list->gpus()) {
    if (gpu.gpu() != id) continue;
    return MeasuredGpu{.id = id,
                       .usable_bytes = gpu.runtime_memory_bytes(),
                       .context_bytes = gpu.context_bytes(),
                       .multiprocessor_count = gpu.multiprocessor_count()};
  }
  return absl::InternalError(absl::StrCat("--gpu: ", id, "; not listed"));
}

std::vector<std::string> TextsIn(const std::string& folder) {
  std::vector<std::string> texts;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    std::stringstream text;
    text << std::ifstream(entry.path(), std::ios::binary).rdbuf();
    texts.push_back(text.str());
  }
  return texts;
}

// What the one process left that used CUDA; nothing where none did.
absl::StatusOr<std::optional<Measurement>> Collect(const std::string& folder) {
  std::optional<Measurement> found;
  const std::vector<std::string> texts = TextsIn(folder);
  for (const std::string& text : texts) {
    absl::StatusOr<Measurement> measurement = ReadMeasurement(text);
    if (!measurement.ok()) return measurement.status();
    if (!measurement->refused.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("measure: ", measurement->refused));
    }
    found = *std::move(measurement);
  }
  if (texts.size() <= 1) return found;
  return absl::InvalidArgumentError(
      absl::StrCat("measure: ", texts.size(),
                   " processes used CUDA; must be one: a program that starts its ranks itself "
                   "must start one"));
}

// Why nothing is said of memory: the command failed by itself, or used none.
absl::Status NoAnswer(const ChildEnd& end) {
  if (end.signal != 0) {
    return absl::UnknownError(absl::StrCat("measure: the command was ended by signal ", end.signal,
                                           ", ", strsignal(end.signal), "; there is no answer"));
  }
  if (end.exit_status != 0) {
    return absl::UnknownError(absl::StrCat("measure: the command ended with exit status ",
                                           end.exit_status, "; there is no answer"));
  }
  return absl::UnknownError(
      "measure: the command did not use CUDA from PyTorch; there is no answer");
}

absl::StatusOr<Measurement> Measure(const MeasureCommand& command, const MeasuredGpu& gpu,
                                    const GpuFacts& facts) {
  const TemporaryFolder results;
  if (results.path().empty()) {
    return absl::UnknownError("measure: no folder can be made in TMPDIR");
  }
  const auto environment = PhantomEnvironment(
      gpu, facts, command.rank, {.folder = results.path(), .step_count = command.step_count});
  if (!environment.ok()) return environment.status();
  const absl::StatusOr<ChildEnd> end = RunChild(command.command, *environment);
  if (!end.ok()) return end.status();
  const absl::StatusOr<std::optional<Measurement>> found = Collect(results.path());
  if (!found.ok()) return found.status();
  const bool failed = end->signal != 0 || end->exit_status != 0;
  if (!found->has_value() || (failed && !(*found)->out_of_memory.has_value())) {
    return NoAnswer(*end);
  }
  return **found;
}

// Says what the run held, and what `plimsoll estimate` says of it as a job.
ExitCode Answer(const MeasureCommand& command, const Measurement& measurement,
                const MeasuredGpu& gpu, const PlannerClient& client) {
  const absl::StatusOr<v1::Job> job = ToProfiledJob(measurement, gpu);
  std::optional<v1::EstimateMemoryResponse> estimate;
  absl::Status written;
  if (job.ok()) {
    v1::EstimateMemoryRequest request;
    *request.mutable_job() = *job;
    absl::StatusOr<v1::EstimateMemoryResponse> response = client.EstimateMemory(request);
    if (!response.ok()) return Fail(response.status());
    estimate = *std::move(response);
    if (!command.job_file.empty()) written = WriteFile("--job", command.job_file, ToJobFile(*job));
  } else if (!command.job_file.empty()) {
    written = absl::UnknownError(
        absl::StrCat("--job: ", command.job_file, " is not written: ", job.status().message()));
  }
  const MeasureAnswer answer = {.measurement = measurement, .gpu = gpu, .estimate = estimate};
  const Terminal terminal = DescribeTerminal(STDOUT_FILENO, command.output.color);
  const std::string text =
      command.output.format == "json" ? ToJson(answer) : ToTable(answer, terminal);
  const ExitCode code = Finish(text, ToExitCode(VerdictOf(answer)));
  if (written.ok()) return code;
  const ExitCode failed = Fail(written);
  return code == ExitCode::kDoesNotFit ? code : failed;
}

}  // namespace

ExitCode RunMeasure(const MeasureCommand& command) {
  const absl::Status checked = Check(command);
  if (!checked.ok()) return Fail(checked);
  const absl::StatusOr<std::string> id = IdOf(command.gpu);
  if (!id.ok()) return Fail(id.status());
  const GpuFacts* const facts = FindGpuFacts(*id);
  if (facts == nullptr) {
    return Fail(absl::InvalidArgumentError(
        absl::StrCat("--gpu: ", *id,
                     "; no phantom stands in for it: its compute capability is "
                     "not known here")));
  }
  const absl::StatusOr<Service> service = OpenService(Connection{});
  if (!service.ok()) return Fail(service.status());
  const absl::StatusOr<MeasuredGpu> gpu = MemoryOf(*id, service->client);
  if (!gpu.ok()) return Fail(gpu.status());
  const absl::StatusOr<Measurement> measurement = Measure(command, *gpu, *facts);
  if (!measurement.ok()) return Fail(measurement.status());
  return Answer(command, *measurement, *gpu, service->client);
}

}  // namespace plimsoll
