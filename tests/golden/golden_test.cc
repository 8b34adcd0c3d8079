// Whole answers as text: each cases/<name>.txtpb is a request, <name>.golden what it gets by
// the closed form and by a replay, <name>.program what that is found from: tensors, ops,
// states after all passes, plans. A change of any byte shows in review.
//
//   UPDATE_GOLDENS=1 golden_test    rewrites what differs
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "estimator/answer/estimate.h"
#include "estimator/passes/pass.h"
#include "estimator/program/describe.h"
#include "estimator/program/lower.h"
#include "estimator/step/plan.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "server/catalog/catalog.h"
#include "server/convert/convert.h"

namespace plimsoll {
namespace {

std::string Read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::filesystem::path> Cases() {
  std::vector<std::filesystem::path> cases;
  for (const auto& entry : std::filesystem::directory_iterator(PLIMSOLL_GOLDEN_FOLDER)) {
    if (entry.path().extension() == ".txtpb") cases.push_back(entry.path());
  }
  std::sort(cases.begin(), cases.end());
  return cases;
}

std::string Words(const Violations& violations) {
  std::string text = "refused\n";
  for (const Violation& violation : violations) {
    absl::StrAppend(&text, "  ", ToText(violation), "\n");
  }
  return text;
}

void Append(absl::string_view name, const Gauge& gauge, std::string& text) {
  absl::StrAppendFormat(&text, "  %-10s %15d .. %d\n", name, gauge.expected_bytes,
                        gauge.bound_bytes);
}

std::string Words(const RankMemory& rank) {
  std::string text = absl::StrFormat(
      "rank of stage %d: %d GPUs, %d layers, %d in flight, %d parameters, peak in %s\n",
      rank.pipeline_stage, rank.gpu_count, rank.layer_count, rank.in_flight_count,
      rank.parameter_count, Name(rank.peak_phase));
  Append("allocated", rank.allocated, text);
  Append("reserved", rank.reserved, text);
  Append("device", rank.device, text);
  for (size_t role = 0; role < kRoleCount; ++role) {
    if (rank.breakdown[role] == 0) continue;
    absl::StrAppendFormat(&text, "    %-16s %15d\n", Name(static_cast<Role>(role)),
                          rank.breakdown[role]);
  }
  for (const Moment& moment : rank.moments) {
    absl::StrAppendFormat(&text, "    %-6s %-18s %15d peak %15d after\n",
                          moment.first_step ? "first" : "later", Name(moment.phase),
                          moment.peak_allocated_bytes, moment.current_allocated_bytes);
  }
  return text;
}

std::string MemoryWords(const MemoryEstimate& estimate) {
  constexpr absl::string_view kVerdicts[] = {"fits", "at risk", "does not fit"};
  std::string text =
      absl::StrCat(kVerdicts[static_cast<size_t>(estimate.verdict)], ", ", estimate.usable_bytes,
                   " bytes usable, stage ", estimate.limiting_rank, " decides, ",
                   estimate.parameter_count, " parameters\n");
  for (const RankMemory& rank : estimate.ranks) absl::StrAppend(&text, Words(rank));
  return text;
}

std::string Words(const MemoryEstimate& estimate) {
  std::string text = MemoryWords(estimate);
  for (const TraceEntry& entry : estimate.trace) {
    absl::StrAppendFormat(&text, "trace %-18s states %15d activations %15d\n", entry.pass,
                          entry.state_bytes, entry.activation_bytes);
  }
  for (const Assumption& assumption : estimate.assumptions) {
    const std::string value =
        assumption.text.empty() ? absl::StrCat(assumption.number) : std::string(assumption.text);
    absl::StrAppend(&text, "assumed ", assumption.field, ": ", value, " (", assumption.reason,
                    ")\n");
  }
  for (const Warning& warning : estimate.warnings) {
    absl::StrAppend(&text, "warning ", warning.code, ": ", warning.text, "\n");
  }
  return text;
}

struct Answer {
  bool refused;
  std::string text;
  std::string program = "";
};

std::string ProgramOf(const JobSpec& spec) {
  const auto job = std::get<ValidJob>(Validate(spec, LoadCatalog()));
  Program program = Lower(job);
  for (const Pass& pass : kPasses) program = pass.apply(job, std::move(program));
  std::string text = Describe(program);
  const auto plan = [&](const Stage& stage, size_t chunk) {
    absl::StrAppend(&text, "\n", Describe(program, PlanPair(program, VirtualStage(stage, chunk))));
  };
  plan(program.stages.front(), 0);
  const Stage& last = program.stages.back();
  if (program.stages.size() > 1) plan(last, last.virtual_stages.size() - 1);
  return text;
}

Answer AnswerTo(const std::filesystem::path& path) {
  v1::EstimateMemoryRequest request;
  if (!google::protobuf::TextFormat::ParseFromString(Read(path), &request)) {
    return {false, "the case does not parse"};
  }
  const JobSpec job = FromProto(request);
  const auto summary = EstimateMemory(job, LoadCatalog(), {.trace = true});
  if (const auto* refused = std::get_if<Violations>(&summary)) return {true, Words(*refused)};
  const auto replayed = EstimateMemory(job, LoadCatalog(), {.detail = Detail::kReplay});
  return {false,
          absl::StrCat(Words(std::get<MemoryEstimate>(summary)),
                       "replayed: ", MemoryWords(std::get<MemoryEstimate>(replayed))),
          ProgramOf(job)};
}

void Compare(std::filesystem::path path, const char* extension, const std::string& text) {
  path.replace_extension(extension);
  const bool update = std::getenv("UPDATE_GOLDENS") != nullptr && Read(path) != text;
  if (update) std::ofstream(path, std::ios::binary) << text;
  EXPECT_EQ(Read(path), text) << "UPDATE_GOLDENS=1 rewrites it";
}

TEST(GoldenTest, EachCaseGetsItsAnswer) {
  for (const std::filesystem::path& path : Cases()) {
    SCOPED_TRACE(path.filename().string());
    const Answer answer = AnswerTo(path);
    Compare(path, ".golden", answer.text);
    if (!answer.refused) Compare(path, ".program", answer.program);
  }
}

TEST(GoldenTest, ThereAreCasesAndEachSaysWhyItExists) {
  const std::vector<std::filesystem::path> cases = Cases();
  EXPECT_GE(cases.size(), 12u);
  for (const std::filesystem::path& path : cases) {
    EXPECT_TRUE(absl::StartsWith(Read(path), "# ")) << path.filename();
  }
}

TEST(GoldenTest, WhatIsNamedFailIsRefusedAndNothingElse) {
  for (const std::filesystem::path& path : Cases()) {
    EXPECT_EQ(AnswerTo(path).refused, absl::StartsWith(path.filename().string(), "fail_"))
        << path.filename();
  }
}

// A golden without a case would never be read again.
TEST(GoldenTest, EachGoldenHasItsCase) {
  for (const auto& entry : std::filesystem::directory_iterator(PLIMSOLL_GOLDEN_FOLDER)) {
    std::filesystem::path path = entry.path();
    if (path.extension() == ".txtpb") continue;
    path.replace_extension(".txtpb");
    EXPECT_TRUE(std::filesystem::exists(path)) << path.filename();
  }
}

}  // namespace
}  // namespace plimsoll
