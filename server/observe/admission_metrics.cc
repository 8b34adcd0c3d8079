#include "server/observe/admission_metrics.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "server/admit/decide.h"
#include "server/admit/policy.h"

namespace plimsoll {
namespace {

// "CAUSE_DOES_NOT_FIT" is "does-not-fit".
std::string Label(const std::string& name) {
  return absl::AsciiStrToLower(absl::StrReplaceAll(name.substr(name.find('_') + 1), {{"_", "-"}}));
}

}  // namespace

AdmissionMetrics::AdmissionMetrics(prometheus::Registry* registry) {
  auto& family = prometheus::BuildCounter()
                     .Name("plimsoll_admissions_total")
                     .Help("Decisions on submissions, and what mode enforce would have done.")
                     .Register(*registry);
  for (const std::string& mode : AdmissionModes()) Add(mode, &family);
}

void AdmissionMetrics::Add(const std::string& mode,
                           prometheus::Family<prometheus::Counter>* family) {
  v1::AdmissionRules rules;
  rules.set_mode(mode);
  for (int cause = v1::CAUSE_NOT_ASKED; cause <= v1::Cause_MAX; ++cause) {
    for (int enforced = v1::DECISION_ADMIT; enforced <= v1::Decision_MAX; ++enforced) {
      const auto would = static_cast<v1::Decision>(enforced);
      const auto why = static_cast<v1::Cause>(cause);
      decisions_[{mode, why, would}] =
          &family->Add({{"mode", mode},
                        {"cause", Label(v1::Cause_Name(why))},
                        {"decision", Label(v1::Decision_Name(InMode(would, rules)))},
                        {"enforced", Label(v1::Decision_Name(would))}});
    }
  }
}

void AdmissionMetrics::Admitted(const v1::AdmissionDecision& decision) {
  decisions_.at({decision.mode(), decision.cause(), decision.enforced()})->Increment();
}

}  // namespace plimsoll
