#include "server/admit/message.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "server/admit/job_environment.h"
#include "server/wire/shorten.h"
#include "server/words/change_words.h"

namespace plimsoll {
namespace {

// Violations that are shown; the rest are counted.
constexpr size_t kMostLines = 8;
constexpr size_t kMostLineBytes = 240;

// Each character that is not ASCII is a '?'.
std::string Ascii(absl::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) out += c;
    if (byte >= 0xc0) out += '?';  // the first of its bytes
  }
  return out;
}

std::string GibWords(int64_t bytes) { return absl::StrFormat("%.1f", Gib(bytes)); }

std::string GpuName(const v1::Job& job) {
  return job.cluster().has_gpu() ? Clean(job.cluster().gpu()) : "which";
}

// "needs 145.6 GiB on each GPU (up to 173.3), h100-80gb-sxm has 79.2".
std::string Need(const v1::Gauge& device, int64_t usable_bytes, const v1::Job& job) {
  return absl::StrCat("needs ", GibWords(device.expected_bytes()), " GiB on each GPU (up to ",
                      GibWords(device.bound_bytes()), "), ", GpuName(job), " has ",
                      GibWords(usable_bytes));
}

// "TP 1 -> 4, sequence parallel would need 51.0 GiB (up to 62.4), 11 % slower".
std::string FixWords(const char* verb, const v1::Candidate& fix, double asked_seconds) {
  std::string words =
      absl::StrCat(ChangeWords(fix, Glyphs::kAscii), verb, GibWords(fix.device().expected_bytes()),
                   " GiB (up to ", GibWords(fix.device().bound_bytes()), ")");
  if (asked_seconds > 0) {
    absl::StrAppend(&words, ", ", PaceWords(fix.step_time().seconds(), asked_seconds));
  }
  return words;
}

// Why no change fits, and what else would. The nearest may be none that is left: where
// nothing is legal.
std::string NoFixWords(const v1::RecommendConfigResponse& search) {
  std::string words = "no change that is allowed fits";
  if (!search.has_obstacle()) return words;
  absl::StrAppend(&words, ": the nearest, ",
                  ChangeWords(search.obstacle().nearest(), Glyphs::kAscii), ", misses by ",
                  GibWords(search.obstacle().missing_bytes()), " GiB");
  if (search.obstacle().remedies_size() > 0) {
    absl::StrAppend(&words, "; ", ChangeWords(search.obstacle().remedies(0), Glyphs::kAscii),
                    " would fit");
  }
  return words;
}

// Why there is no word of a fix.
std::string CutShortWords(v1::Decision decision) {
  return absl::StrCat(
      "truncated: time ran out before it was known whether a change would fit",
      decision == v1::DECISION_REJECT ? ", and this partition takes no job without an answer" : "",
      "; plimsoll recommend takes the time");
}

// What is wrong, a line each.
void AddProblem(const absl::Status& problem, std::vector<std::string>* lines) {
  const std::vector<std::string> all =
      absl::StrSplit(absl::string_view(problem.message()), '\n', absl::SkipEmpty());
  for (size_t i = 0; i < all.size() && i < kMostLines; ++i) {
    lines->push_back("  " + Clean(all[i].substr(0, kMostLineBytes)));
  }
  if (all.size() > kMostLines) {
    lines->push_back(absl::StrCat("  and ", all.size() - kMostLines, " more"));
  }
}

// "Plimsoll: the job now asks for tres_per_node=gres:gpu:8, min_nodes=2".
void AddRequestChanges(const Told& told, std::vector<std::string>* lines) {
  if (told.scheduler_changes == nullptr || told.scheduler_changes->empty()) return;
  std::vector<std::string> fields;
  for (const v1::SchedulerChange& change : *told.scheduler_changes) {
    fields.push_back(absl::StrCat(change.field(), "=", Clean(change.value())));
  }
  lines->push_back("Plimsoll: the job now asks for " + absl::StrJoin(fields, ", "));
}

void AddFit(const Told& told, std::vector<std::string>* lines) {
  const char* const risk = told.cause == v1::CAUSE_AT_RISK ? "may run out of memory: " : "";
  lines->push_back(absl::StrCat(
      "Plimsoll: ", risk,
      Need(LimitingRank(*told.answer).device(), told.answer->usable_bytes(), *told.job)));
  const bool truncated = told.search != nullptr && told.search->truncated();
  if (told.cut_short || (truncated && told.fix == nullptr)) {
    lines->push_back("Plimsoll: " + CutShortWords(told.decision));
    return;
  }
  if (told.search == nullptr) return;
  if (told.fix == nullptr) {
    lines->push_back("Plimsoll: " + NoFixWords(*told.search));
    return;
  }
  const double asked = told.search->requested().step_time().seconds();
  if (told.decision == v1::DECISION_RESIZE) {
    lines->push_back("Plimsoll: resized: " + FixWords(" needs ", *told.fix, asked));
    AddRequestChanges(told, lines);
  } else {
    lines->push_back(absl::StrCat("Plimsoll: ", FixWords(" would need ", *told.fix, asked),
                                  truncated ? "; truncated: there may be a smaller change" : ""));
    if (told.policy_resizes) {
      lines->push_back(
          "Plimsoll: a job that reads PLIMSOLL_ variables is changed so itself: it says "
          "#PLIMSOLL resize=allowed");
    }
  }
}

}  // namespace

std::string NeedWords(const v1::AdmissionDecision& decision) {
  return absl::StrCat("Plimsoll: ",
                      Need(decision.device(), decision.usable_bytes(), decision.job()));
}

std::string DecisionMessage(const Told& told) {
  std::vector<std::string> lines;
  switch (told.cause) {
    case v1::CAUSE_AT_RISK:
    case v1::CAUSE_DOES_NOT_FIT:
      AddFit(told, &lines);
      break;
    case v1::CAUSE_BAD_WORDS:
      lines.push_back("Plimsoll: can't read what the job says:");
      AddProblem(told.problem, &lines);
      break;
    case v1::CAUSE_NOT_MODELLED:
      lines.push_back("Plimsoll: can't judge this job yet:");
      AddProblem(told.problem, &lines);
      break;
    case v1::CAUSE_UNREACHABLE:
      lines.push_back(told.decision == v1::DECISION_REJECT
                          ? "Plimsoll: no answer in time, and this partition takes no job without "
                            "one; try again"
                          : "Plimsoll: no answer in time: the job is queued unchecked");
      break;
    default:
      break;
  }
  return Ascii(absl::StrJoin(lines, "\n"));
}

}  // namespace plimsoll
