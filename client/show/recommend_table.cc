#include "client/show/recommend_table.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/io/text.h"
#include "client/show/recommend_words.h"
#include "client/show/role_style.h"
#include "client/show/step_bars.h"
#include "client/show/story_lines.h"
#include "client/show/warning_lines.h"
#include "server/wire/shorten.h"

namespace plimsoll {
namespace {

using Align = Columns::Align;

constexpr int kRoomForBoth = 100;   // columns for tokens per second and cost
constexpr int kRoomForStory = 120;  // as StoryLines has it
constexpr char kSpecOnly[] = "spec-only";

Glyphs GlyphsOf(const Terminal& terminal) {
  return terminal.unicode ? Glyphs::kUnicode : Glyphs::kAscii;
}

bool IsSpecOnly(const v1::Candidate& candidate) {
  return candidate.step_time().basis() == kSpecOnly;
}

// A mark before each time that no measured job stands behind.
std::string StepWords(const v1::Candidate& candidate) {
  return absl::StrCat(IsSpecOnly(candidate) ? "~" : "",
                      FormatSeconds(candidate.step_time().seconds()));
}

// What was assumed for the field; null where the request says it.
const std::string* FindAssumed(const v1::RecommendConfigResponse& response,
                               absl::string_view field) {
  for (const v1::Assumption& assumption : response.assumptions()) {
    if (assumption.field() == field) return &assumption.value();
  }
  return nullptr;
}

std::string ObjectiveWord(const v1::RecommendConfigRequest& request,
                          const v1::RecommendConfigResponse& response) {
  const std::string* const assumed = FindAssumed(response, "objective");
  const std::string& objective = assumed != nullptr ? *assumed : request.objective();
  if (objective == "fewest-gpus") return "Fewest GPUs";
  if (objective == "cheapest") return "Cheapest";
  return objective == "smallest-change" ? "Smallest change" : "Fastest";
}

// "30 % less time", where there is a time to compare with.
std::string Pace(const v1::Candidate& candidate, const v1::Candidate& asked) {
  const double seconds = asked.step_time().seconds();
  if (seconds <= 0) return "";
  return absl::StrCat(", ", PaceWords(candidate.step_time().seconds(), seconds));
}

// A job that leaves the number of GPUs open was taken on one of those considered. (What a
// job says in other words is among the assumptions too.)
bool IsTaken(const v1::RecommendConfigRequest& request,
             const v1::RecommendConfigResponse& response) {
  return !request.job().cluster().has_gpu_count() &&
         FindAssumed(response, "job.cluster.gpu_count") != nullptr;
}

std::string AskedLine(const v1::RecommendConfigRequest& request,
                      const v1::RecommendConfigResponse& response, const Terminal& terminal) {
  const v1::Candidate& asked = response.requested();
  return absl::StrCat(VerdictWord(asked.verdict(), terminal), "  ", ModelWords(asked.job().model()),
                      " on ", GpuWords(asked.job(), GlyphsOf(terminal)),
                      IsTaken(request, response) ? " as taken: " : " as asked: ",
                      MemoryWords(asked.device().expected_bytes(), asked), " each, bound ",
                      FormatBytes(asked.device().bound_bytes()), ", ", StepWords(asked), " a step");
}

std::string BestLine(const v1::RecommendConfigRequest& request,
                     const v1::RecommendConfigResponse& response, const Terminal& terminal) {
  const v1::Candidate& best = response.candidates(0);
  return absl::StrCat(Bold(ObjectiveWord(request, response), kGreen, terminal), ": ",
                      ChangeWords(best, GlyphsOf(terminal)), "; ",
                      MemoryWords(best.device().expected_bytes(), best),
                      best.changes().empty() ? "" : Pace(best, response.requested()));
}

// Why nothing fits, and what holds most.
std::string ObstacleLines(const v1::Obstacle& obstacle, const Terminal& terminal) {
  const std::string nearest =
      absl::StrCat(Bold("Nothing fits", kRed, terminal), ": the nearest misses by ",
                   FormatBytes(obstacle.missing_bytes()), ", bound ",
                   MemoryWords(obstacle.nearest().device().bound_bytes(), obstacle.nearest()),
                   " each; it is ", ChangeWords(obstacle.nearest(), GlyphsOf(terminal)));
  return absl::StrCat(Wrap(nearest, terminal.width, 2), "\n",
                      Wrap(absl::StrCat("Its largest part: ", RoleName(obstacle.largest_role()),
                                        ", ", FormatBytes(obstacle.largest_role_bytes())),
                           terminal.width, 2),
                      "\n");
}

std::string CostWords(const v1::StepTime& time) {
  return absl::StrFormat("%.2f", time.cost_per_billion_tokens());
}

// Candidates under one heading, as figures with what changes beside or below.
class CandidateLines {
 public:
  CandidateLines(const v1::Candidate& asked, bool cost, const Terminal& terminal)
      : asked_(asked),
        cost_(cost),
        rate_(!cost || terminal.width >= kRoomForBoth),
        terminal_(terminal),
        lines_(Aligns(cost, rate_)) {
    std::vector<std::string> heading = {"", "GPUs", "GiB, bound", "step", "+/-"};
    if (rate_) heading.push_back("tokens/s");
    heading.push_back("MFU");
    if (cost_) heading.push_back("cost");
    lines_.Add(heading, terminal.width >= kRoomForStory ? "what changes" : "");
  }

  void AddAsked() { Add("asked", asked_, ""); }

  void Add(const std::string& rank, const v1::Candidate& candidate, const std::string& story) {
    const v1::StepTime& time = candidate.step_time();
    const int64_t bound_bytes = candidate.device().bound_bytes();
    const std::string memory =
        absl::StrFormat("%.1f of %.1f", Gib(bound_bytes), Gib(candidate.usable_bytes()));
    const double asked = asked_.step_time().seconds();
    std::vector<std::string> row = {
        rank, GpuWords(candidate.job(), GlyphsOf(terminal_)),
        bound_bytes > candidate.usable_bytes() ? Paint(memory, kRed, terminal_) : memory,
        StepWords(candidate),
        &candidate == &asked_ || asked <= 0 ? "" : PacePercent(time.seconds(), asked)};
    if (rate_) row.push_back(FormatGrouped(std::llround(time.tokens_per_second())));
    row.push_back(absl::StrFormat("%.0f%%", time.model_flops_utilization() * 100));
    if (cost_) row.push_back(time.has_cost_per_billion_tokens() ? CostWords(time) : "-");
    lines_.Add(std::move(row), story);
  }

  std::string ToText() const { return lines_.ToText(terminal_); }

 private:
  static std::vector<Align> Aligns(bool cost, bool rate) {
    std::vector<Align> aligns(6 + (cost ? 1 : 0) + (rate ? 1 : 0), Align::kRight);
    aligns[0] = aligns[1] = Align::kLeft;
    return aligns;
  }

  const v1::Candidate& asked_;
  const bool cost_;
  const bool rate_;
  const Terminal& terminal_;
  StoryLines lines_;
};

// What changes, and of a remedy why it helps.
std::string StoryOf(const v1::Candidate& candidate, const Terminal& terminal) {
  return absl::StrCat(ChangeWords(candidate, GlyphsOf(terminal)),
                      candidate.reason().empty() ? "" : "; ", Clean(candidate.reason()));
}

// What fits; or the nearest of what does not, and what would.
std::string Candidates(const v1::RecommendConfigRequest& request,
                       const v1::RecommendConfigResponse& response, const Terminal& terminal) {
  const bool fits = response.candidates_size() > 0;
  const auto& candidates = fits ? response.candidates() : response.obstacle().remedies();
  CandidateLines lines(response.requested(), request.gpu_hour_prices_size() > 0, terminal);
  const bool among = std::any_of(candidates.begin(), candidates.end(),
                                 [](const v1::Candidate& c) { return c.changes().empty(); });
  if (!among) lines.AddAsked();
  const auto add = [&](const std::string& rank, const v1::Candidate& candidate) {
    lines.Add(rank, candidate, StoryOf(candidate, terminal));
  };
  if (!fits && response.obstacle().has_nearest()) add("nearest", response.obstacle().nearest());
  int rank = 0;
  for (const v1::Candidate& candidate : candidates) add(absl::StrCat(++rank), candidate);
  return lines.ToText();
}

// How far the time of the best is known, and what it costs.
std::string BestTime(const v1::StepTime& time) {
  const std::string cost = time.has_cost_per_billion_tokens()
                               ? absl::StrCat(", ", CostWords(time), " by the prices given,")
                               : "";
  return absl::StrCat("The best: of ten such steps nine take ", FormatSeconds(time.low_seconds()),
                      " to ", FormatSeconds(time.high_seconds()), "; ",
                      FormatGrouped(std::llround(time.gpu_hours_per_billion_tokens())),
                      " GPU-hours", cost, " for 1e9 tokens");
}

// That, and how much was searched.
std::string Footing(const v1::RecommendConfigResponse& response, const Terminal& terminal) {
  std::string out;
  if (response.candidates_size() > 0) {
    const std::string best = BestTime(response.candidates(0).step_time());
    out = Wrap(best, terminal.width, 2) + "\n";
  }
  return absl::StrCat(out, Wrap(CountWords(response), terminal.width, 2), "\n");
}

// Times without a measured job behind them that the service's warnings leave out.
bool AnySpecOnly(const v1::RecommendConfigResponse& response) {
  for (const v1::Warning& warning : response.warnings()) {
    if (warning.code() == kSpecOnly) return false;
  }
  const auto& candidates = response.candidates();
  return IsSpecOnly(response.requested()) ||
         std::any_of(candidates.begin(), candidates.end(), IsSpecOnly);
}

std::string Notices(const v1::RecommendConfigResponse& response, const Terminal& terminal) {
  std::string out = AssumedLines(response.assumptions(), terminal);
  if (response.truncated()) {
    out += WarningLine("truncated",
                       "the deadline ended the search, there may be better; --timeout moves it",
                       terminal);
  }
  if (AnySpecOnly(response)) {
    out += WarningLine(kSpecOnly,
                       "times with ~ rest on the GPU's data sheet: no job was measured there",
                       terminal);
  }
  out += WarningLines(response.warnings(), terminal);
  const std::string versions =
      absl::StrCat("Estimator ", Clean(response.estimator_version()), ", calibration ",
                   Clean(response.calibration_id()), ", speed ", Clean(response.speed_id()));
  return absl::StrCat(out, "\n", Wrap(versions, terminal.width, 2), "\n");
}

// Each field by its path, as a job file has it.
std::string Paths(const char* name, const v1::Candidate& candidate, const Terminal& terminal) {
  if (candidate.changes().empty()) return "";
  Columns columns({Align::kLeft, Align::kLeft, Align::kLeft, Align::kLeft});
  for (const v1::Change& change : candidate.changes()) {
    columns.Add({Clean(change.field()), change.from().empty() ? "unset" : Clean(change.from()),
                 terminal.unicode ? "→" : "->",
                 change.to().empty() ? "unset" : Clean(change.to())});
  }
  return absl::StrCat("\nWhat the ", name, " changes in the job\n",
                      columns.ToText(1, terminal.width));
}

std::string Explain(const v1::RecommendConfigResponse& response, const Terminal& terminal) {
  const bool fits = response.candidates_size() > 0;
  if (!fits && !response.obstacle().has_nearest()) return "";
  const char* const name = fits ? "best" : "nearest";
  const v1::Candidate& shown = fits ? response.candidates(0) : response.obstacle().nearest();
  return Paths(name, shown, terminal) +
         StepBars(name, shown.step_time(), response.requested().step_time(), terminal);
}

}  // namespace

std::string ToTable(const v1::RecommendConfigRequest& request,
                    const v1::RecommendConfigResponse& response, bool explain,
                    const Terminal& terminal) {
  std::string out = Wrap(AskedLine(request, response, terminal), terminal.width, 2) + "\n";
  if (response.candidates_size() > 0) {
    absl::StrAppend(&out, Wrap(BestLine(request, response, terminal), terminal.width, 2), "\n\n");
  } else if (response.has_obstacle()) {
    absl::StrAppend(&out, ObstacleLines(response.obstacle(), terminal), "\n",
                    response.obstacle().remedies_size() == 0
                        ? "No one thing beyond what may change would help\n"
                        : "What would help, each with one thing that was not to change\n");
  }
  absl::StrAppend(&out, Candidates(request, response, terminal), "\n", Footing(response, terminal));
  if (explain) out += Explain(response, terminal);
  return out + Notices(response, terminal);
}

std::string JobFileComment(const v1::RecommendConfigResponse& response) {
  const v1::Candidate& best = response.candidates(0);
  return absl::StrCat("# ", ChangeWords(best, Glyphs::kAscii), Pace(best, response.requested()),
                      "\n# ", GpuWords(best.job(), Glyphs::kAscii), ": ",
                      MemoryWords(best.device().expected_bytes(), best), " each, bound ",
                      FormatBytes(best.device().bound_bytes()), ", ", StepWords(best), " a step\n");
}

}  // namespace plimsoll
