#include "client/admit/policy.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/document.h"
#include "client/gpu_counts.h"
#include "client/yaml_message.h"

namespace plimsoll {
namespace {

constexpr char kRoot[] = "policy";
constexpr int64_t kUsualGpusPerNode = 8;
constexpr double kLeastRisk = 0.0001;
constexpr double kMostRisk = 0.5;
constexpr int64_t kMostGpusPerNode = 1024;

// Collects what is wrong with one set of rules.
class RulesCheck {
 public:
  RulesCheck(std::string path, const v1::AdmissionRules& rules, std::vector<std::string>* wrong)
      : path_(std::move(path)), rules_(rules), wrong_(*wrong) {}

  void Check() {
    Word("mode", rules_.mode(), {"off", "shadow", "warn", "enforce"});
    Word("at_risk", rules_.at_risk(), {"warn", "reject"});
    Word("bad_words", rules_.bad_words(), {"warn", "reject"});
    Word("unreachable", rules_.unreachable(), {"admit", "reject"});
    Word("resize", rules_.resize(), {"allowed", "never"});
    Word("detail", rules_.detail(), {"summary", "replay"});
    if (rules_.has_risk() && !(rules_.risk() >= kLeastRisk && rules_.risk() <= kMostRisk)) {
      Fail("risk", absl::StrCat(rules_.risk()), "must be from 0.0001 to 0.5");
    }
    if (rules_.has_gpus_per_node() &&
        (rules_.gpus_per_node() < 1 || rules_.gpus_per_node() > kMostGpusPerNode)) {
      Fail("gpus_per_node", absl::StrCat(rules_.gpus_per_node()),
           absl::StrCat("must be from 1 to ", kMostGpusPerNode));
    }
    if (rules_.reserved_for_others_bytes() < 0) {
      Fail("reserved_for_others_bytes", absl::StrCat(rules_.reserved_for_others_bytes()),
           "must be 0 or more");
    }
    CheckChanges();
  }

 private:
  void Fail(absl::string_view field, absl::string_view value, absl::string_view rule) {
    wrong_.push_back(absl::StrCat(path_, ".", field, ": ", value, "; ", rule));
  }

  // A word that is given; empty where it is not.
  void Word(absl::string_view field, const std::string& word,
            const std::vector<std::string>& words) {
    if (word.empty() || std::find(words.begin(), words.end(), word) != words.end()) return;
    Fail(field, word, absl::StrCat("must be one of ", absl::StrJoin(words, ", ")));
  }

  void CheckChanges() {
    bool count_may_change = false;
    for (const std::string& field : rules_.allowed_changes()) {
      count_may_change |= field == "cluster.gpu_count" || field == "cluster";
      if (field != "cluster.gpu" && field != "cluster" && field != "*") continue;
      Fail("allowed_changes", field, "must name fields: the type of GPU is never changed");
    }
    if (!rules_.has_gpu_counts()) return;
    const auto counts = ReadGpuCounts(rules_.gpu_counts(), kUsualGpusPerNode);
    if (!counts.ok()) Fail("gpu_counts", rules_.gpu_counts(), "must be as 8..64 or 8,16,64");
    if (counts.ok() && !count_may_change) {
      Fail("gpu_counts", rules_.gpu_counts(), "needs cluster.gpu_count among allowed_changes");
    }
  }

  const std::string path_;
  const v1::AdmissionRules& rules_;
  std::vector<std::string>& wrong_;
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

absl::StatusOr<v1::AdmissionPolicy> ReadPolicy(const std::string& file) {
  v1::AdmissionPolicy policy;
  if (file.empty()) return policy;
  const absl::StatusOr<std::string> text = ReadDocument(file);
  if (!text.ok()) return text.status();
  const absl::StatusOr<YAML::Node> node = ParseYaml(*text, file);
  if (!node.ok()) return node.status();
  YamlReader reader(std::nullopt);
  reader.Read(*node, kRoot, &policy);
  std::vector<std::string> wrong = reader.violations();
  RulesCheck(absl::StrCat(kRoot, ".rules"), policy.rules(), &wrong).Check();
  for (const auto& [name, rules] : policy.partitions()) {
    RulesCheck(absl::StrCat(kRoot, ".partitions.", name), rules, &wrong).Check();
  }
  for (const auto& [name, rules] : policy.namespaces()) {
    RulesCheck(absl::StrCat(kRoot, ".namespaces.", name), rules, &wrong).Check();
  }
  std::sort(wrong.begin(), wrong.end());  // maps have no order
  if (!wrong.empty()) return absl::InvalidArgumentError(absl::StrJoin(wrong, "\n"));
  return policy;
}

v1::AdmissionRules RulesFor(const v1::AdmissionPolicy& policy, const std::string& partition,
                            const std::string& name_space) {
  v1::AdmissionRules rules = Defaults();
  Override(policy.rules(), &rules);
  const auto of_partition = policy.partitions().find(partition.substr(0, partition.find(',')));
  if (of_partition != policy.partitions().end()) Override(of_partition->second, &rules);
  const auto of_namespace = policy.namespaces().find(name_space);
  if (of_namespace != policy.namespaces().end()) Override(of_namespace->second, &rules);
  return rules;
}

}  // namespace plimsoll
