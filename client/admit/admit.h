// One decision: from what the scheduler and the user say to what is done, within a
// time.
#ifndef PLIMSOLL_CLIENT_ADMIT_ADMIT_H_
#define PLIMSOLL_CLIENT_ADMIT_ADMIT_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/admit/job_words.h"
#include "client/options.h"
#include "client/planner_client.h"
#include "plimsoll/v1/admission.pb.h"

namespace plimsoll {

// One submission and the rules that hold for it.
struct Submission {
  v1::SchedulerRequest request;
  JobWords words;                // of the request, or a job file
  Violations misread;            // what is wrong with the request and the words
  v1::AdmissionRules rules;      // as RulesFor returns them
  Files files = Files::kRefuse;  // whether job files that the words name are read
};

// Opens the service; called only for a job that has something to ask.
using OpenClient = absl::FunctionRef<absl::StatusOr<PlannerClient>()>;

// Decides. Every call to the service ends by `deadline`; what then is not known is
// unreachable, or a fix that was not found.
//
// The steps: words and GPUs of the request to a job; its estimate; where that does not
// fit, the smallest change that does; the table of decisions; the message.
v1::AdmissionDecision Admit(const Submission& submission, OpenClient open, absl::Time deadline);

// The same by the service of a connection, within its timeout from `start` on.
//
// Errors: those of CheckConnection.
absl::StatusOr<v1::AdmissionDecision> AdmitBy(const Connection& connection,
                                              const Submission& submission, absl::Time start);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_ADMIT_ADMIT_H_
