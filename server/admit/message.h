// What a user is told of a decision: a line or two that stand by themselves in a
// terminal, behind `sbatch: error:`. ASCII.
#ifndef PLIMSOLL_SERVER_ADMIT_MESSAGE_H_
#define PLIMSOLL_SERVER_ADMIT_MESSAGE_H_

#include <string>

#include "absl/status/status.h"
#include "plimsoll/v1/admission.pb.h"
#include "plimsoll/v1/planner.pb.h"

namespace plimsoll {

// What is known when the message is written.
struct Told {
  v1::Decision decision = v1::DECISION_UNSPECIFIED;
  v1::Cause cause = v1::CAUSE_UNSPECIFIED;
  const v1::Job* job = nullptr;                         // as asked
  const v1::EstimateMemoryResponse* answer = nullptr;   // of it; null: none
  const v1::RecommendConfigResponse* search = nullptr;  // null: none was made, or in time
  bool cut_short = false;                               // the search, without a fix
  const v1::Candidate* fix = nullptr;                   // the change that fits; null: none is known
  // What is set in the scheduler's request; null: nothing.
  const google::protobuf::RepeatedPtrField<v1::SchedulerChange>* scheduler_changes = nullptr;
  bool policy_resizes = false;  // the rules allow a resize
  absl::Status problem;         // why there is no answer
};

// Returns the message, in lines, none for a job that fits or says nothing. "Plimsoll: needs 145.6
// GiB on each GPU (up to 173.3), h100-80gb-sxm has 79.2".
std::string DecisionMessage(const Told& told);

// What the job of a decision needs: "Plimsoll: needs 36.5 GiB on each GPU (up to 43.4),
// h100-80gb-sxm has 79.2".
//
// Requires: decision.has_job()
std::string NeedWords(const v1::AdmissionDecision& decision);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_ADMIT_MESSAGE_H_
