// `plimsoll admit`.
#include <unistd.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "client/command/commands.h"
#include "client/format/json_writer.h"
#include "client/io/standard_streams.h"
#include "client/io/text.h"
#include "client/job/job_file.h"
#include "client/service/admission.h"
#include "client/service/service.h"
#include "server/admit/job_words.h"
#include "server/admit/message.h"
#include "server/admit/policy.h"
#include "server/admit/unread.h"
#include "server/wire/json.h"
#include "server/wire/shorten.h"
#include "server/words/document.h"
#include "server/words/refusal.h"
#include "server/words/yaml_writer.h"

namespace plimsoll {
namespace {

ExitCode ToExitCode(v1::Decision decision) {
  switch (decision) {
    case v1::DECISION_REJECT:
      return ExitCode::kDoesNotFit;
    case v1::DECISION_RESIZE:
      return ExitCode::kResize;
    default:
      return ExitCode::kDone;
  }
}

// "CAUSE_DOES_NOT_FIT" is "does not fit".
std::string Words(const std::string& name) {
  return absl::AsciiStrToLower(absl::StrReplaceAll(name.substr(name.find('_') + 1), {{"_", " "}}));
}

// A decision for people.
std::string ToText(const v1::AdmissionDecision& decision) {
  std::string text = absl::StrCat(
      absl::AsciiStrToUpper(Words(v1::Decision_Name(decision.decision()))), "  ",
      Words(v1::Cause_Name(decision.cause())), "; mode ", decision.mode(),
      decision.enforced() == decision.decision()
          ? ""
          : absl::StrCat(", which would be ", Words(v1::Decision_Name(decision.enforced())),
                         " under enforce"),
      "\n");
  if (!decision.message().empty()) {
    absl::StrAppend(&text, decision.message(), "\n");
  } else if (!decision.enforced_message().empty()) {  // mode shadow
    absl::StrAppend(&text, decision.enforced_message(), "\n");
  } else if (decision.has_job()) {
    absl::StrAppend(&text, NeedWords(decision), "\n");
  }
  for (const v1::SchedulerChange& change : decision.scheduler_changes()) {
    absl::StrAppend(&text, "  ", change.field(), " ", Clean(change.value()), "\n");
  }
  return text;
}

std::string Render(const v1::AdmissionDecision& decision, const std::string& format) {
  if (format == "json") return ToPrettyJson(decision);
  if (format == "yaml") return decision.has_job() ? ToJobFile(decision.job()) : "";
  if (format != "jsonl") return ToText(decision);
  std::string line;
  AppendJson(decision, &line);
  return line + "\n";
}

// A submission, as the command line has it.
struct Submission {
  v1::AdmitRequest request;
  JobWords words;      // of the scheduler's request, or a job file
  Violations misread;  // what is wrong with the request, and with the words
  bool is_one = true;  // the request could be read
};

// Reads the request, and what it says. Of one that is none, what can't be read of it is
// all that is judged.
//
// Errors: INVALID_ARGUMENT where there is no such file.
absl::Status ReadRequest(const std::string& file, Submission* submission) {
  const absl::StatusOr<std::string> text = ReadDocument(file);
  if (!text.ok()) return text.status();
  v1::SchedulerRequest& request = *submission->request.mutable_scheduler_request();
  Violations& misread = submission->misread;
  misread = ReadJsonMessage(*text, &request);
  if (misread.empty() && request.scheduler() != "slurm") {
    misread.push_back(
        {"scheduler", Clean(request.scheduler()), "must be slurm", ViolationCode::kUnknownName});
  }
  submission->is_one = misread.empty();
  submission->words = ReadWords(request, &misread);
  return absl::OkStatus();
}

// Whether a job file is a script that says that it may be changed. What is wrong with it
// is told when its job is read.
bool SaysResize(const std::string& file) {
  if (file == "-") return false;  // to be read once
  const absl::StatusOr<std::string> text = ReadDocument(file);
  Violations told_later;
  return text.ok() && IsJobScript(*text) && ReadScriptWords(*text, &told_later).resize_allowed;
}

absl::StatusOr<Submission> ReadSubmission(const AdmitCommand& command) {
  Submission submission;
  if (!command.policy.empty()) {
    absl::StatusOr<v1::AdmissionPolicy> policy = ReadPolicy(command.policy);
    if (!policy.ok()) return policy.status();
    *submission.request.mutable_policy() = *std::move(policy);
  }
  if (!command.scheduler_request.empty()) {
    const absl::Status read = ReadRequest(command.scheduler_request, &submission);
    if (!read.ok()) return read;
    return submission;
  }
  v1::SchedulerRequest& place = *submission.request.mutable_scheduler_request();
  place.set_partition(command.partition);
  place.set_namespace_(command.name_space);
  submission.words = {.source = "job",
                      .file = command.job_file,
                      .inline_job = "",
                      .settings = {},
                      .resize_allowed = command.resize_allowed || SaysResize(command.job_file)};
  return submission;
}

// Returns the job that the words describe, with the files that they name; nothing, and why
// in `wrong`, where there is none.
std::optional<v1::Job> ReadWithFiles(const JobWords& words, Violations* wrong) {
  absl::StatusOr<v1::Job> job = ReadNamedJob(words, wrong);
  if (job.ok()) return *std::move(job);
  for (Violation& violation : ViolationsOf(job.status())) wrong->push_back(std::move(violation));
  return std::nullopt;
}

// Where the words are wrong, they say so in words of their own, if the controller, which
// opens no files, would find something else.
ExitCode PrintWords(const Submission& submission) {
  if (submission.misread.empty() && !submission.words.said()) return ExitCode::kDone;
  Violations wrong = submission.misread;
  const std::optional<v1::Job> job = ReadWithFiles(submission.words, &wrong);
  if (wrong.empty()) {
    return Finish(InlineWords(*job, submission.words.resize_allowed) + "\n", ExitCode::kDone);
  }
  Fail(Invalid(wrong));
  Violations by_controller = submission.misread;
  ReadJob(submission.words, &by_controller);
  if (ToText(by_controller) == ToText(wrong)) return ExitCode::kBadInput;
  return Finish(UnreadWords(wrong), ExitCode::kBadInput);
}

// Puts nothing but where the job is to go into the place of a request that is none.
void KeepPlace(v1::SchedulerRequest* request) {
  v1::SchedulerRequest place;
  place.set_partition(request->partition());
  place.set_namespace_(request->namespace_());
  *request = place;
}

// Puts the job that the words describe in their place, with the files that they name: the
// service opens none.
void ResolveWords(Submission* submission) {
  v1::AdmitRequest& request = submission->request;
  request.mutable_scheduler_request()->clear_script_words();
  request.mutable_scheduler_request()->clear_environment_words();
  request.mutable_scheduler_request()->clear_comment();
  request.set_resize_allowed(submission->words.resize_allowed);
  if (!submission->misread.empty()) return;
  std::optional<v1::Job> job = ReadWithFiles(submission->words, &submission->misread);
  if (job.has_value()) *request.mutable_job() = *std::move(job);
}

// Returns what to ask; `inline_words`: the words are judged as they are.
v1::AdmitRequest ToRequest(Submission submission, bool inline_words) {
  if (!submission.is_one) {
    KeepPlace(submission.request.mutable_scheduler_request());
  } else if (inline_words || !submission.words.said()) {
    return submission.request;
  } else {
    ResolveWords(&submission);
  }
  AddUnread(submission.misread, &submission.request);
  return submission.request;
}

// A decision of a scheduler is due within 100 ms, of which starting a process takes
// some 20.
Connection WithTimeout(Connection connection) {
  if (connection.timeout.empty()) connection.timeout = connection.server.empty() ? "10s" : "80ms";
  return connection;
}

}  // namespace

ExitCode RunAdmit(const AdmitCommand& command) {
  const absl::Time start = absl::Now();
  const Connection connection = WithTimeout(command.connection);
  if (command.job_file.empty() && command.scheduler_request.empty()) {
    return Fail(absl::InvalidArgumentError(
        "admit: nothing given; must have a job file or --scheduler-request"));
  }
  const absl::StatusOr<absl::Duration> timeout = CheckConnection(connection);
  if (!timeout.ok()) return Fail(timeout.status());
  absl::StatusOr<Submission> submission = ReadSubmission(command);
  if (!submission.ok()) return Fail(submission.status());
  if (command.print_words) return PrintWords(*submission);
  const absl::StatusOr<v1::AdmissionDecision> decision =
      AskAdmission(connection, ToRequest(*std::move(submission), command.refuse_files), start);
  if (!decision.ok()) return Fail(decision.status());
  if (!decision->problem().empty()) Say("admit: " + Clean(decision->problem()));
  return Finish(Render(*decision, command.output.format), ToExitCode(decision->decision()));
}

}  // namespace plimsoll
