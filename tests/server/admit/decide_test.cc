// The whole table of decisions.
#include "server/admit/decide.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/ascii.h"

namespace plimsoll {
namespace {

std::string Word(v1::Decision decision) {
  return absl::AsciiStrToLower(v1::Decision_Name(decision).substr(sizeof "DECISION"));
}

v1::AdmissionRules Rules(const char* mode, bool strict) {
  v1::AdmissionRules rules;
  rules.set_mode(mode);
  rules.set_at_risk(strict ? "reject" : "warn");
  rules.set_bad_words(strict ? "reject" : "warn");
  rules.set_unreachable(strict ? "reject" : "admit");
  return rules;
}

TEST(DecideTest, FollowsTheTable) {
  // `lenient` and `strict`: what at_risk, bad_words and unreachable ask for.
  const struct {
    v1::Cause cause;
    bool can_resize;
    const char* lenient;
    const char* strict;
    bool cut_short = false;
  } kCases[] = {
      {v1::CAUSE_NOT_ASKED, false, "admit", "admit"},
      {v1::CAUSE_FITS, false, "admit", "admit"},
      {v1::CAUSE_AT_RISK, false, "warn", "reject"},
      {v1::CAUSE_AT_RISK, true, "warn", "resize"},
      {v1::CAUSE_DOES_NOT_FIT, false, "reject", "reject"},
      {v1::CAUSE_DOES_NOT_FIT, true, "resize", "resize"},
      {v1::CAUSE_AT_RISK, false, "warn", "reject", true},
      {v1::CAUSE_DOES_NOT_FIT, false, "warn", "reject", true},
      {v1::CAUSE_DOES_NOT_FIT, true, "resize", "resize", true},
      {v1::CAUSE_BAD_WORDS, false, "warn", "reject"},
      {v1::CAUSE_NOT_MODELLED, false, "warn", "warn"},
      {v1::CAUSE_UNREACHABLE, false, "admit", "reject"},
  };
  for (const auto& row : kCases) {
    for (const bool strict : {false, true}) {
      const std::string expected = strict ? row.strict : row.lenient;
      const Findings findings = {
          .cause = row.cause, .can_resize = row.can_resize, .cut_short = row.cut_short};
      for (const char* mode : {"off", "shadow", "warn", "enforce"}) {
        const v1::AdmissionRules rules = Rules(mode, strict);
        const v1::Decision enforced = Enforced(findings, rules);
        EXPECT_EQ(Word(enforced), expected) << v1::Cause_Name(row.cause);
        const std::string done = mode == std::string("enforce")                       ? expected
                                 : mode == std::string("warn") && expected != "admit" ? "warn"
                                                                                      : "admit";
        EXPECT_EQ(Word(InMode(enforced, rules)), done) << v1::Cause_Name(row.cause) << " " << mode;
      }
    }
  }
}

}  // namespace
}  // namespace plimsoll
