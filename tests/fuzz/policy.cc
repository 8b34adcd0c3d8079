// An admission policy, as an operator's file has it.
#include "server/admit/policy.h"

#include <algorithm>

#include "tests/fuzz/fuzzer.h"
#include "tests/fuzz/service.h"

namespace plimsoll {
namespace {

void CheckRules(const v1::AdmissionRules& rules) {
  const auto& modes = AdmissionModes();
  Promise(std::find(modes.begin(), modes.end(), rules.mode()) != modes.end(), "a mode is known");
  Promise(rules.risk() > 0 && rules.risk() < 1, "a risk is a chance");
  Promise(rules.has_at_risk() && rules.has_bad_words() && rules.has_unreachable() &&
              rules.has_resize() && rules.has_detail(),
          "what has a default has a value");
}

// The policy comes as part of a request too.
void Decide(const v1::AdmissionPolicy& policy, const std::string& partition) {
  v1::AdmitRequest request;
  *request.mutable_policy() = policy;
  v1::SchedulerRequest& submission = *request.mutable_scheduler_request();
  submission.set_scheduler("slurm");
  submission.set_partition(partition);
  submission.set_tres_per_node("gres:gpu:h100:1");
  submission.set_environment_words("model=gpt2 sequence_length=1k resize=allowed");
  WireWriter written;
  v1::AdmitResponse answer;
  CheckAnswer(Service().planner.Admit(request, {}, EnoughSoon(), &written), written, &answer);
  Promise(answer.decision().decision() != v1::DECISION_UNSPECIFIED,
          "a policy that is read decides");
}

}  // namespace

void FuzzPolicy(absl::string_view input) {
  const absl::StatusOr<v1::AdmissionPolicy> policy = ReadPolicy(FileWith(input));
  if (!policy.ok()) return Promise(!policy.status().message().empty(), "a refusal has words");
  Promise(CheckPolicy(*policy).empty(), "a policy that is read is right");
  std::string partitions;
  for (const auto& [name, rules] : policy->partitions()) {
    CheckRules(RulesFor(*policy, name, ""));
    partitions = name;
  }
  for (const auto& [name, rules] : policy->namespaces()) {
    CheckRules(RulesFor(*policy, partitions, name));
  }
  Decide(*policy, partitions);
}

}  // namespace plimsoll
