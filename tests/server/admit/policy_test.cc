// Policy files, and the rules of a submission.
#include "server/admit/policy.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/client/process.h"

namespace plimsoll {
namespace {

constexpr char kDefaults[] =
    "mode: \"warn\" risk: 0.01 at_risk: \"warn\" bad_words: \"reject\" unreachable: \"admit\" "
    "resize: \"never\"";

v1::AdmissionPolicy Read(const std::string& text) {
  const TemporaryFile file(text, "policy.yaml");
  const absl::StatusOr<v1::AdmissionPolicy> policy = ReadPolicy(file.path());
  EXPECT_TRUE(policy.ok()) << policy.status();
  return policy.value_or(v1::AdmissionPolicy());
}

std::string ErrorOf(const std::string& text) {
  const TemporaryFile file(text, "policy.yaml");
  return std::string(ReadPolicy(file.path()).status().message());
}

TEST(PolicyTest, HasDefaultsWithoutAFile) {
  const absl::StatusOr<v1::AdmissionPolicy> policy = ReadPolicy("");
  ASSERT_TRUE(policy.ok());
  EXPECT_EQ(RulesFor(*policy, "any", "").ShortDebugString(),
            std::string(kDefaults) + " detail: \"replay\"");
}

TEST(PolicyTest, TakesTheNamespacesRulesBeforeThePartitionsBeforeItsOwn) {
  const v1::AdmissionPolicy policy = Read(R"(
rules: {mode: shadow, risk: 0.05, gpu_types: {hopper: h100-80gb-sxm},
        allowed_changes: [cluster.gpu_count, parallelism], gpu_counts: 8..64}
partitions:
  h100: {mode: enforce, gpu: h100-80gb-sxm, resize: allowed}
  a100: {allowed_changes: [training.recompute], gpu_types: {ampere: a100-40gb-sxm}}
namespaces:
  research: {mode: "off", gpus_per_node: 4}
)");
  const v1::AdmissionRules own = RulesFor(policy, "", "");
  EXPECT_EQ(own.mode(), "shadow");
  EXPECT_EQ(own.gpu_counts(), "8..64");
  const v1::AdmissionRules h100 = RulesFor(policy, "h100,a100", "");
  EXPECT_EQ(h100.mode(), "enforce");
  EXPECT_EQ(h100.risk(), 0.05);
  EXPECT_EQ(h100.gpu(), "h100-80gb-sxm");
  EXPECT_EQ(h100.resize(), "allowed");
  EXPECT_EQ(h100.allowed_changes_size(), 2);
  // Lists and maps are taken whole.
  const v1::AdmissionRules a100 = RulesFor(policy, "a100", "");
  EXPECT_THAT(a100.allowed_changes(), testing::ElementsAre("training.recompute"));
  EXPECT_FALSE(a100.has_gpu_counts());
  EXPECT_EQ(a100.gpu_types().size(), 1);
  const v1::AdmissionRules research = RulesFor(policy, "h100", "research");
  EXPECT_EQ(research.mode(), "off");
  EXPECT_EQ(research.gpu(), "h100-80gb-sxm");
  EXPECT_EQ(research.gpus_per_node(), 4);
}

// A job may land in any of its partitions.
TEST(PolicyTest, TakesTheStrictestOfSeveralPartitions) {
  const v1::AdmissionPolicy policy = Read(R"(
rules: {mode: shadow}
partitions:
  open: {mode: "off"}
  h100: {mode: enforce, gpu: h100-80gb-sxm}
  a100: {mode: enforce, gpu: a100-80gb-sxm}
)");
  EXPECT_EQ(RulesFor(policy, "open,h100", "").gpu(), "h100-80gb-sxm");
  EXPECT_EQ(RulesFor(policy, ",a100,h100,", "").gpu(), "a100-80gb-sxm");
  EXPECT_EQ(RulesFor(policy, "open,other", "").mode(), "shadow");
  EXPECT_EQ(RulesFor(policy, "open", "").mode(), "off");
}

TEST(PolicyTest, NamesOneGpuEach) {
  EXPECT_EQ(ErrorOf("rules: {gpu: h100-80gb-sxm, gpu_types: {a100: a100-40gb-sxm, x: h200}}"), "");
  EXPECT_EQ(ErrorOf("rules: {gpu: a100-80gb}\n"
                    "partitions: {p: {gpu_types: {v100: V100, h100: h100-80gb-sxm}}}"),
            "policy.partitions.p.gpu_types.v100: V100; must be one of v100-16gb-pcie, "
            "v100-16gb-sxm, v100-32gb-pcie, v100-32gb-sxm: it may be any\n"
            "policy.rules.gpu: a100-80gb; must be one of a100-80gb-pcie, a100-80gb-sxm: it may be "
            "any");
}

// Leave to change the number of GPUs may be the policy's, the numbers a partition's.
TEST(PolicyTest, ChecksRulesWithThoseBelow) {
  EXPECT_EQ(ErrorOf("rules: {allowed_changes: [cluster.gpu_count]}\n"
                    "partitions: {a: {gpu_counts: 8..64}}"),
            "");
}

TEST(PolicyTest, SaysAllThatIsWrong) {
  EXPECT_EQ(ErrorOf(R"(
rules: {mode: enforced, risk: 0.9, resize: yes, unreachable: warn}
partitions:
  a: {at_risk: admit, bad_words: admit, detail: fast, gpus_per_node: 0}
  b: {allowed_changes: [cluster.gpu, parallelism.data_parallel_size], gpu_counts: 8..x,
      reserved_for_others_bytes: -1}
  "d,e": {mode: "", gpus_per_node: 1, gpu_counts: 1..256, allowed_changes: [cluster.gpu_count]}
namespaces:
  c: {gpu_counts: 8..64}
)"),
            "policy.namespaces.c.gpu_counts: 8..64; needs cluster.gpu_count among allowed_changes\n"
            "policy.partitions.a.at_risk: admit; must be one of warn, reject\n"
            "policy.partitions.a.bad_words: admit; must be one of warn, reject\n"
            "policy.partitions.a.detail: fast; must be one of summary, replay\n"
            "policy.partitions.a.gpus_per_node: 0; must be from 1 to 1024\n"
            "policy.partitions.b.allowed_changes: cluster.gpu; must name fields: the type of GPU "
            "is never changed\n"
            "policy.partitions.b.allowed_changes: parallelism.data_parallel_size; follows from "
            "other fields, allow these\n"
            "policy.partitions.b.gpu_counts: 8..x; must be as 8..64 or 8,16,64, of whole nodes\n"
            "policy.partitions.b.gpu_counts: 8..x; needs cluster.gpu_count among allowed_changes\n"
            "policy.partitions.b.reserved_for_others_bytes: -1; must be 0 or more\n"
            "policy.partitions.d,e.gpu_counts: 256 numbers; must be fewer than 256\n"
            "policy.partitions.d,e.mode: ; must be one of off, shadow, warn, enforce\n"
            "policy.partitions.d,e: d,e; must be the name of one partition\n"
            "policy.rules.mode: enforced; must be one of off, shadow, warn, enforce\n"
            "policy.rules.resize: yes; must be one of allowed, never\n"
            "policy.rules.risk: 0.9; must be from 0.0001 to 0.5\n"
            "policy.rules.unreachable: warn; must be one of admit, reject");
  EXPECT_THAT(ErrorOf("rules: {allowed_changes: [parallelism.zero_stag]}"),
              testing::StrEq("policy.rules.allowed_changes: parallelism.zero_stag; is not known; "
                             "nearest: parallelism.zero_stage"));
  EXPECT_THAT(ErrorOf("rules: {moed: warn}"), testing::HasSubstr("policy.rules.moed: warn; "));
  EXPECT_THAT(ErrorOf("partitions: [a]"),
              testing::HasSubstr("policy.partitions: a list; must be a mapping"));
  EXPECT_THAT(ErrorOf("partitions: {a: enforce}"),
              testing::HasSubstr("policy.partitions.a: enforce; must be a mapping"));
  EXPECT_THAT(std::string(ReadPolicy("/no/such/policy").status().message()),
              testing::HasSubstr("/no/such/policy: No such file or directory; must be"));
}

}  // namespace
}  // namespace plimsoll
