// The table of decisions: what is known of a submission, and the rules, to what is
// done with it. deploy/slurm/README.md shows it to operators.
#ifndef PLIMSOLL_SERVER_ADMIT_DECIDE_H_
#define PLIMSOLL_SERVER_ADMIT_DECIDE_H_

#include "plimsoll/v1/admission.pb.h"

namespace plimsoll {

// What is known of a submission.
struct Findings {
  v1::Cause cause = v1::CAUSE_UNSPECIFIED;
  // A change of it fits, the rules allow that change, the job says that it reads
  // Plimsoll's environment, and the scheduler's request can say it.
  bool can_resize = false;
  // Whether a change of it fits is not known: the search ended before it had found
  // one, or that none does.
  bool cut_short = false;
};

// What mode `enforce` does:
//   cause         enforce
//   not asked     admit
//   fits          admit
//   at risk       rules.at_risk: warn, or as does not fit
//   does not fit  resize where it can, else reject; where the search for a change was
//                 cut short, rules.unreachable: warn or reject
//   bad words     rules.bad_words: reject or warn
//   not modelled  warn
//   unreachable   rules.unreachable: admit or reject
//
// Requires: `rules` as RulesFor returns them.
v1::Decision Enforced(const Findings& findings, const v1::AdmissionRules& rules);

// What the mode makes of that: `enforce` does it, `warn` warns where it is not to
// admit, `shadow` and `off` admit.
v1::Decision InMode(v1::Decision enforced, const v1::AdmissionRules& rules);

// Whether nothing better than a change would let the job in under mode `enforce`.
bool Unfit(v1::Cause cause, const v1::AdmissionRules& rules);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_ADMIT_DECIDE_H_
