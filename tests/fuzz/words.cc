// A submission: lines NAME=VALUE of a SchedulerRequest up to an empty one, then the script.
#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "client/job/sbatch_lines.h"
#include "google/protobuf/util/message_differencer.h"
#include "server/admit/gpu_request.h"
#include "server/admit/job_words.h"
#include "server/wire/shorten.h"
#include "tests/fuzz/fuzzer.h"
#include "tests/fuzz/service.h"

namespace plimsoll {
namespace {

using google::protobuf::FieldDescriptor;

void Set(absl::string_view name, absl::string_view value, v1::SchedulerRequest* request) {
  const FieldDescriptor* const field =
      v1::SchedulerRequest::descriptor()->FindFieldByName(std::string(name));
  int64_t number = 0;
  if (field == nullptr) return;
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    request->GetReflection()->SetString(request, field, std::string(value));
  } else if (absl::SimpleAtoi(value, &number)) {
    request->GetReflection()->SetInt64(request, field, number);
  }
}

v1::SchedulerRequest ReadSubmission(absl::string_view input) {
  v1::SchedulerRequest request;
  while (!input.empty()) {
    const absl::string_view line = TakeLine(&input);
    if (line.empty()) break;
    const size_t sign = std::min(line.find('='), line.size() - 1);
    Set(line.substr(0, sign), line.substr(sign + 1), &request);
  }
  request.MergeFrom(ReadSbatchLines(input));
  request.set_script_words(std::string(input));
  return request;
}

// What is changed asks for as many GPUs as it was changed to.
void CheckChanges(const v1::SchedulerRequest& request) {
  Violations wrong;
  const GpuRequest asked = ReadGpuRequest(request, &wrong);
  Promise(asked.count >= 0 && asked.per_node >= 0, "GPUs are counted");
  if (!wrong.empty() || asked.count == 0) return;
  for (const int64_t count : {1, 6, 8, 32}) {
    const auto changes = ChangeGpuCount(request, count, 8);
    if (!changes.has_value()) continue;
    v1::SchedulerRequest changed = request;
    for (const v1::SchedulerChange& change : *changes)
      Set(change.field(), change.value(), &changed);
    Promise(ReadGpuRequest(changed, &wrong).count == count && wrong.empty(),
            "a changed request asks for the GPUs that it was changed to");
  }
}

// The words that travel with the job say the same job.
void CheckTravel(const std::string& words) {
  v1::SchedulerRequest request;
  request.set_environment_words(words);
  Violations misread;
  const JobWords read = ReadWords(request, &misread);
  const std::optional<v1::Job> job = ReadJob(read, &misread);
  Promise(job.has_value() && misread.empty(), "words that travel can be read");
  Promise(InlineWords(*job, read.resize_allowed) == words, "words that travel stay as they are");
}

void CheckMessage(const std::string& message) {
  Promise(std::all_of(message.begin(), message.end(),
                      [](unsigned char c) { return c == '\n' || absl::ascii_isprint(c); }),
          "a user is told in ASCII");
}

}  // namespace

void FuzzWords(absl::string_view input) {
  if (!IsUtf8(input)) return;  // can't be sent
  v1::AdmitRequest request;
  *request.mutable_scheduler_request() = ReadSubmission(input);
  CheckChanges(request.scheduler_request());
  WireWriter written;
  v1::AdmitResponse answer;
  const grpc::Status status = Service().planner.Admit(request, {}, EnoughSoon(), &written);
  CheckAnswer(status, written, &answer);
  if (!status.ok()) return;
  const v1::AdmissionDecision& decision = answer.decision();
  Promise(
      decision.decision() != v1::DECISION_UNSPECIFIED && decision.cause() != v1::CAUSE_UNSPECIFIED,
      "a submission is decided on, for a cause");
  CheckMessage(decision.message());
  CheckMessage(decision.enforced_message());
  if (!decision.words().empty()) CheckTravel(decision.words());
}

}  // namespace plimsoll
