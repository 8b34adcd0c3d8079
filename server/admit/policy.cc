#include "server/admit/policy.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "server/catalog/gpu_names.h"
#include "server/wire/field_names.h"
#include "server/wire/shorten.h"
#include "server/words/gpu_counts.h"
#include "server/words/refusal.h"
#include "server/words/yaml_message.h"

namespace plimsoll {
namespace {

constexpr char kRoot[] = "policy";
constexpr double kLeastRisk = 0.0001;
constexpr double kMostRisk = 0.5;
constexpr int64_t kMostGpusPerNode = 1024;
constexpr size_t kMostGpuCounts = 256;  // RecommendConfigRequest.gpu_counts

// Collects what is wrong with one set of rules.
class RulesCheck {
 public:
  RulesCheck(std::string path, const v1::AdmissionRules& rules, Violations* wrong)
      : path_(std::move(path)), rules_(rules), wrong_(*wrong) {}

  void Check() {
    if (rules_.has_mode()) Word("mode", rules_.mode(), AdmissionModes());
    if (rules_.has_at_risk()) Word("at_risk", rules_.at_risk(), {"warn", "reject"});
    if (rules_.has_bad_words()) Word("bad_words", rules_.bad_words(), {"warn", "reject"});
    if (rules_.has_unreachable()) Word("unreachable", rules_.unreachable(), {"admit", "reject"});
    if (rules_.has_resize()) Word("resize", rules_.resize(), {"allowed", "never"});
    if (rules_.has_detail()) Word("detail", rules_.detail(), {"summary", "replay"});
    if (rules_.has_risk() && !(rules_.risk() >= kLeastRisk && rules_.risk() <= kMostRisk)) {
      Fail("risk", absl::StrCat(rules_.risk()), "must be from 0.0001 to 0.5",
           ViolationCode::kOutOfRange);
    }
    if (rules_.has_gpus_per_node() &&
        (rules_.gpus_per_node() < 1 || rules_.gpus_per_node() > kMostGpusPerNode)) {
      Fail("gpus_per_node", absl::StrCat(rules_.gpus_per_node()),
           absl::StrCat("must be from 1 to ", kMostGpusPerNode), ViolationCode::kOutOfRange);
    }
    if (rules_.reserved_for_others_bytes() < 0) {
      Fail("reserved_for_others_bytes", absl::StrCat(rules_.reserved_for_others_bytes()),
           "must be 0 or more", ViolationCode::kOutOfRange);
    }
    if (rules_.has_gpu()) OneGpu("gpu", rules_.gpu());
    for (const auto& [type, gpu] : rules_.gpu_types()) {
      OneGpu(absl::StrCat("gpu_types.", type), gpu);
    }
    CheckChanges();
  }

 private:
  void Fail(absl::string_view field, absl::string_view value, absl::string_view rule,
            ViolationCode code) {
    wrong_.push_back({absl::StrCat(path_, ".", field), Clean(value), std::string(rule), code});
  }

  void Word(absl::string_view field, const std::string& word,
            const std::vector<std::string>& words) {
    if (std::find(words.begin(), words.end(), word) != words.end()) return;
    Fail(field, word, absl::StrCat("must be one of ", absl::StrJoin(words, ", ")),
         ViolationCode::kUnknownName);
  }

  // An operator says exactly which GPU it is.
  void OneGpu(const std::string& field, const std::string& name) {
    const std::vector<std::string> ids = GpusCalled(name);
    if (ids.size() < 2) return;
    Fail(field, name, absl::StrCat("must be one of ", absl::StrJoin(ids, ", "), ": it may be any"),
         ViolationCode::kAmbiguousName);
  }

  void CheckChanges() {
    for (const std::string& field : rules_.allowed_changes()) {
      const bool any_gpu = field == "cluster.gpu" || field == "cluster" || field == "*";
      const std::string rule =
          any_gpu ? "must name fields: the type of GPU is never changed" : NotAllowedRule(field);
      if (!rule.empty()) Fail("allowed_changes", field, rule, ViolationCode::kUnknownName);
    }
    if (!rules_.has_gpu_counts()) return;
    const auto counts =
        ReadGpuCounts(rules_.gpu_counts(),
                      rules_.has_gpus_per_node() ? rules_.gpus_per_node() : kUsualGpusPerNode);
    if (!counts.ok()) {
      Fail("gpu_counts", rules_.gpu_counts(), "must be as 8..64 or 8,16,64, of whole nodes",
           ViolationCode::kMalformed);
    } else if (counts->size() >= kMostGpuCounts) {
      Fail("gpu_counts", absl::StrCat(counts->size(), " numbers"),
           absl::StrCat("must be fewer than ", kMostGpuCounts), ViolationCode::kTooLarge);
    }
  }

  const std::string path_;
  const v1::AdmissionRules& rules_;
  Violations& wrong_;
};

// Sets in `rules` what `over` says.
void Override(const v1::AdmissionRules& over, v1::AdmissionRules* rules) {
  if (over.allowed_changes_size() > 0) {
    // They belong together: numbers of GPUs are considered where they may change.
    rules->clear_allowed_changes();
    rules->clear_gpu_counts();
  }
  if (!over.gpu_types().empty()) rules->clear_gpu_types();
  rules->MergeFrom(over);
}

// Numbers of GPUs need leave to be changed: the rules' own, or that of those below.
void CheckMerged(const std::string& path, const v1::AdmissionRules& own,
                 const v1::AdmissionRules& merged, Violations* wrong) {
  const auto& changes = merged.allowed_changes();
  if (!own.has_gpu_counts() ||
      std::find(changes.begin(), changes.end(), "cluster.gpu_count") != changes.end()) {
    return;
  }
  wrong->push_back({absl::StrCat(path, ".gpu_counts"), Clean(own.gpu_counts()),
                    "needs cluster.gpu_count among allowed_changes", ViolationCode::kConflict});
}

void CheckRules(const std::string& path, const v1::AdmissionRules& own,
                const v1::AdmissionRules& merged, Violations* wrong) {
  RulesCheck(path, own, wrong).Check();
  CheckMerged(path, own, merged, wrong);
}

v1::AdmissionRules Merged(v1::AdmissionRules rules, const v1::AdmissionRules& over) {
  Override(over, &rules);
  return rules;
}

// `rules` with those of `name` over them, where there are any.
v1::AdmissionRules Of(const google::protobuf::Map<std::string, v1::AdmissionRules>& all,
                      const std::string& name, const v1::AdmissionRules& rules) {
  const auto found = all.find(name);
  return found == all.end() ? rules : Merged(rules, found->second);
}

ptrdiff_t Strictness(const v1::AdmissionRules& rules) {
  const std::vector<std::string>& modes = AdmissionModes();
  return std::find(modes.begin(), modes.end(), rules.mode()) - modes.begin();
}

// Maps have no order.
Violations Sorted(Violations wrong) {
  std::stable_sort(wrong.begin(), wrong.end(),
                   [](const Violation& a, const Violation& b) { return ToText(a) < ToText(b); });
  return wrong;
}

v1::AdmissionRules Defaults() {
  v1::AdmissionRules rules;
  rules.set_mode("warn");
  rules.set_risk(0.01);
  rules.set_at_risk("warn");
  rules.set_bad_words("reject");
  rules.set_unreachable("admit");
  rules.set_resize("never");
  rules.set_detail("replay");
  return rules;
}

}  // namespace

const std::vector<std::string>& AdmissionModes() {
  static const auto* const kModes =
      new std::vector<std::string>{"off", "shadow", "warn", "enforce"};
  return *kModes;
}

Violations CheckPolicy(const v1::AdmissionPolicy& policy) {
  Violations wrong;
  CheckRules(absl::StrCat(kRoot, ".rules"), policy.rules(), policy.rules(), &wrong);
  for (const auto& [name, rules] : policy.partitions()) {
    const std::string path = absl::StrCat(kRoot, ".partitions.", Clean(name));
    if (name.empty() || name.find(',') != std::string::npos) {
      wrong.push_back(
          {path, Clean(name), "must be the name of one partition", ViolationCode::kMalformed});
    }
    CheckRules(path, rules, Merged(policy.rules(), rules), &wrong);
  }
  for (const auto& [name, rules] : policy.namespaces()) {
    CheckRules(absl::StrCat(kRoot, ".namespaces.", Clean(name)), rules,
               Merged(policy.rules(), rules), &wrong);
  }
  return Sorted(std::move(wrong));
}

absl::StatusOr<v1::AdmissionPolicy> ReadPolicy(const std::string& file) {
  v1::AdmissionPolicy policy;
  if (file.empty()) return policy;
  absl::StatusOr<Violations> wrong = ReadYamlFile(file, kRoot, &policy);
  if (!wrong.ok()) return wrong.status();
  for (Violation& violation : CheckPolicy(policy)) wrong->push_back(std::move(violation));
  if (!wrong->empty()) return Invalid(Sorted(*std::move(wrong)));
  return policy;
}

v1::AdmissionRules RulesFor(const v1::AdmissionPolicy& policy, const std::string& partition,
                            const std::string& name_space) {
  const v1::AdmissionRules own = Merged(Defaults(), policy.rules());
  v1::AdmissionRules strictest;
  std::vector<std::string> names = absl::StrSplit(partition, ',', absl::SkipEmpty());
  if (names.empty()) names.emplace_back();
  for (const std::string& name : names) {
    v1::AdmissionRules rules =
        Of(policy.namespaces(), name_space, Of(policy.partitions(), name, own));
    if (strictest.mode().empty() || Strictness(rules) > Strictness(strictest)) strictest = rules;
  }
  return strictest;
}

}  // namespace plimsoll
