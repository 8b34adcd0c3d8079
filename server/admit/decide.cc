#include "server/admit/decide.h"

#include <string>

namespace plimsoll {
namespace {

v1::Decision ToDecision(const std::string& word) {
  if (word == "admit") return v1::DECISION_ADMIT;
  return word == "warn" ? v1::DECISION_WARN : v1::DECISION_REJECT;
}

}  // namespace

bool Unfit(v1::Cause cause, const v1::AdmissionRules& rules) {
  return cause == v1::CAUSE_DOES_NOT_FIT ||
         (cause == v1::CAUSE_AT_RISK && rules.at_risk() == "reject");
}

v1::Decision Enforced(const Findings& findings, const v1::AdmissionRules& rules) {
  if (Unfit(findings.cause, rules)) {
    if (findings.can_resize) return v1::DECISION_RESIZE;
    // Time that ran out is no reason to refuse a job, unless the rules have it so.
    const bool rejects = !findings.cut_short || rules.unreachable() == "reject";
    return rejects ? v1::DECISION_REJECT : v1::DECISION_WARN;
  }
  switch (findings.cause) {
    case v1::CAUSE_AT_RISK:
    case v1::CAUSE_NOT_MODELLED:
      return v1::DECISION_WARN;
    case v1::CAUSE_BAD_WORDS:
      return ToDecision(rules.bad_words());
    case v1::CAUSE_UNREACHABLE:
      return ToDecision(rules.unreachable());
    default:
      return v1::DECISION_ADMIT;
  }
}

v1::Decision InMode(v1::Decision enforced, const v1::AdmissionRules& rules) {
  if (rules.mode() == "enforce") return enforced;
  const bool warns = rules.mode() == "warn" && enforced != v1::DECISION_ADMIT;
  return warns ? v1::DECISION_WARN : v1::DECISION_ADMIT;
}

}  // namespace plimsoll
