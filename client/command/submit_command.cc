// `plimsoll submit`: estimates, asks, and hands over to the scheduler's command.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "client/command/commands.h"
#include "client/io/standard_streams.h"
#include "client/io/text.h"
#include "client/job/job_file.h"
#include "client/service/admission.h"
#include "server/admit/job_words.h"
#include "server/admit/message.h"
#include "server/admit/unread.h"
#include "server/wire/shorten.h"

namespace plimsoll {
namespace {

// The rules of one who submits a job as `command` says.
v1::AdmissionPolicy PolicyOf(const SubmitCommand& command, const char* mode) {
  v1::AdmissionPolicy policy;
  v1::AdmissionRules& rules = *policy.mutable_rules();
  rules.set_mode(mode);
  rules.set_resize("allowed");
  if (command.risk.has_value()) rules.set_risk(*command.risk);
  for (const std::string& list : command.allowed_changes) {
    for (const absl::string_view field : absl::StrSplit(list, ',', absl::SkipEmpty())) {
      rules.add_allowed_changes(std::string(field));
    }
  }
  return policy;
}

// What mode `enforce` would do in mode `warn`; and does in mode `enforce`: the job is
// changed then.
absl::StatusOr<v1::AdmissionDecision> Decide(const SubmitCommand& command, const char* mode) {
  const absl::Time start = absl::Now();
  v1::AdmitRequest request;
  *request.mutable_policy() = PolicyOf(command, mode);
  request.set_resize_allowed(true);
  Violations misread;
  absl::StatusOr<v1::Job> job = ReadJob(command.job_file, command.settings, &misread);
  if (!job.ok()) return job.status();
  *request.mutable_job() = *std::move(job);
  AddUnread(misread, &request);
  return AskAdmission(command.connection, request, start);
}

// Asks on the terminal; without one the answer is no.
bool Agrees() {
  if (isatty(STDIN_FILENO) == 0) return false;
  std::cerr << "Submit it so? The job must read PLIMSOLL_ variables [y/N] " << std::flush;
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

std::string BaseName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// salloc and srun send the scheduler no environment: there the words go in the
// comment. One that the user gives comes later, and wins.
void AddComment(const std::string& words, std::vector<std::string>* arguments) {
  const std::string name = BaseName((*arguments)[0]);
  if (name != "salloc" && name != "srun") return;
  if (words.size() > kMaxCommentBytes) {
    Say(absl::StrCat("submit: the job is over ", kMaxCommentBytes, " bytes, which is all that ",
                     name, " brings: the scheduler will not know it"));
    return;
  }
  arguments->insert(arguments->begin() + 1, "--comment=plimsoll:" + words);
}

// Becomes the scheduler's command; returns only where that fails.
ExitCode Become(std::vector<std::string> arguments, const v1::AdmissionDecision& decision) {
  for (const auto& [name, value] : decision.environment()) setenv(name.c_str(), value.c_str(), 1);
  if (decision.has_job()) {  // there is none where no model of it exists
    const std::string words = InlineWords(decision.job(), /*resize_allowed=*/false);
    setenv("PLIMSOLL_JOB", words.c_str(), 1);
    setenv("PLIMSOLL_PREDICTION", decision.prediction().c_str(), 1);
    AddComment(words, &arguments);
  }
  std::vector<char*> raw;
  raw.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) raw.push_back(argument.data());
  raw.push_back(nullptr);
  execvp(raw[0], raw.data());
  Say(absl::StrCat("submit: ", Clean(arguments[0]), ": ", std::strerror(errno)));
  return ExitCode::kFailure;
}

// Submits the changed job.
ExitCode SubmitChanged(const SubmitCommand& command) {
  const absl::StatusOr<v1::AdmissionDecision> changed = Decide(command, "enforce");
  if (!changed.ok()) return Fail(changed.status());
  if (changed->decision() == v1::DECISION_RESIZE) return Become(command.command, *changed);
  Say("submit: " + Clean(changed->problem()));
  return ExitCode::kOutOfReach;
}

// Submits, or says why not.
ExitCode Obey(const SubmitCommand& command, const v1::AdmissionDecision& decision) {
  const bool fits_not =
      decision.enforced() == v1::DECISION_RESIZE || decision.enforced() == v1::DECISION_REJECT;
  if (!fits_not || command.as_is) return Become(command.command, decision);
  if (decision.enforced() == v1::DECISION_REJECT) {
    Say("submit: not submitted; --as-is submits it all the same");
    return ExitCode::kDoesNotFit;
  }
  if (command.yes || Agrees()) return SubmitChanged(command);
  Say("submit: not submitted; --yes submits the job so, --as-is as it is");
  return ExitCode::kDoesNotFit;
}

}  // namespace

ExitCode RunSubmit(const SubmitCommand& command) {
  if (command.command.empty() || (command.job_file.empty() && command.settings.empty())) {
    return Fail(absl::InvalidArgumentError(
        "submit: too little given; must have a job file or flags, then -- and the scheduler's "
        "command"));
  }
  const absl::StatusOr<v1::AdmissionDecision> decision = Decide(command, "warn");
  if (!decision.ok()) return Fail(decision.status());
  if (!decision->problem().empty()) Say("submit: " + Clean(decision->problem()));
  if (decision->cause() == v1::CAUSE_UNREACHABLE) return ExitCode::kOutOfReach;
  Say(decision->message().empty() ? NeedWords(*decision) : decision->message());
  if (decision->cause() == v1::CAUSE_BAD_WORDS) return ExitCode::kBadInput;
  return Obey(command, *decision);
}

}  // namespace plimsoll
