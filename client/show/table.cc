#include "client/show/table.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "client/io/text.h"
#include "client/show/bar.h"
#include "client/show/explain.h"
#include "client/show/role_style.h"
#include "client/show/warning_lines.h"
#include "server/admit/job_environment.h"
#include "server/wire/shorten.h"

namespace plimsoll {
namespace {

using Align = Columns::Align;

constexpr int kMinBarCells = 20;

bool Alike(v1::RankMemory a, v1::RankMemory b) {
  for (v1::RankMemory* rank : {&a, &b}) {
    rank->clear_pipeline_stage();
    rank->clear_gpu_count();
    rank->clear_in_flight_count();
  }
  return google::protobuf::util::MessageDifferencer::Equals(a, b);
}

int64_t GpuCount(const v1::EstimateMemoryResponse& response) {
  int64_t count = 0;
  for (const v1::RankMemory& rank : response.ranks()) count += rank.gpu_count();
  return count;
}

std::string Gpus(int64_t count) { return absl::StrCat(count, count == 1 ? " GPU" : " GPUs"); }

// "stage 0" or "stages 1-6"; "each GPU" where there is one class alone.
std::string StageName(const RankRange& range, bool only) {
  const int64_t first = range.rank->pipeline_stage();
  if (only) return "each GPU";
  if (first == range.last_stage) return absl::StrCat("stage ", first);
  return absl::StrCat("stages ", first, "-", range.last_stage);
}

// The same with the number of GPUs.
std::string RangeName(const RankRange& range, bool only) {
  if (only) return Gpus(range.gpu_count);
  return absl::StrCat(StageName(range, only), ", ", Gpus(range.gpu_count));
}

// "17.9 GiB free", or by how much it is over.
std::string Room(int64_t headroom_bytes) {
  return headroom_bytes >= 0 ? absl::StrCat(FormatBytes(headroom_bytes), " free")
                             : absl::StrCat(FormatBytes(-headroom_bytes), " too much");
}

// "62.1 of 79.2 GiB", or with two units where they differ.
std::string Share(int64_t bytes, int64_t whole_bytes) {
  std::string part = FormatBytes(bytes);
  const std::string whole = FormatBytes(whole_bytes);
  if (part.substr(part.find(' ')) == whole.substr(whole.find(' '))) part.resize(part.find(' '));
  return absl::StrCat(part, " of ", whole);
}

// "46.7 B parameters, 12.9 B active".
std::string Parameters(const v1::EstimateMemoryResponse& response) {
  std::string all = absl::StrCat(FormatCount(response.parameter_count()), " parameters");
  const int64_t active = response.active_parameter_count();
  if (active == 0 || active == response.parameter_count()) return all;  // 0: of an older server
  return absl::StrCat(all, ", ", FormatCount(active), " active,");
}

std::string Headline(const v1::EstimateMemoryResponse& response, absl::string_view gpu,
                     const Terminal& terminal) {
  const v1::Gauge& device = LimitingRank(response).device();
  const std::string name = gpu.empty() ? "GPU" : Clean(gpu);
  const std::string which = response.ranks_size() > 1 ? "the fullest " : "each ";
  const std::string first =
      absl::StrCat(VerdictWord(response.verdict(), terminal), "  ",
                   Share(device.expected_bytes(), response.usable_bytes()), " on ", which, name,
                   ", bound ", FormatBytes(device.bound_bytes()));
  const std::string second = absl::StrCat(Parameters(response), " on ", Gpus(GpuCount(response)),
                                          "; ", Room(response.headroom().expected_bytes()), ", ",
                                          Room(response.headroom().bound_bytes()), " at the bound");
  return absl::StrCat(Wrap(first, terminal.width, 2), "\n", Wrap(second, terminal.width, 2), "\n");
}

BarScale ScaleOf(const v1::EstimateMemoryResponse& response, int cell_count) {
  int64_t full_bytes = std::max<int64_t>(response.usable_bytes(), 1);
  for (const v1::RankMemory& rank : response.ranks()) {
    full_bytes = std::max(full_bytes, rank.device().bound_bytes());
    full_bytes = std::max(full_bytes, rank.device().expected_bytes());
  }
  return {.cell_count = cell_count,
          .full_bytes = full_bytes,
          .capacity_bytes = std::max<int64_t>(response.usable_bytes(), 0)};
}

std::string Bars(const v1::EstimateMemoryResponse& response, const std::vector<RankRange>& ranges,
                 const Terminal& terminal) {
  int name_width = 0;
  for (const RankRange& range : ranges) {
    name_width = std::max(name_width, DisplayWidth(RangeName(range, ranges.size() == 1)));
  }
  const BarScale scale =
      ScaleOf(response, std::max(kMinBarCells, terminal.width - name_width - 12));
  std::string out = absl::StrCat(PadRight("", name_width + 3), DrawRuler(scale), "\n");
  for (const RankRange& range : ranges) {
    const std::string figure = PadLeft(FormatInGib(range.rank->device().expected_bytes()), 7);
    absl::StrAppend(&out, " ", PadRight(RangeName(range, ranges.size() == 1), name_width), "  ",
                    DrawBar(*range.rank, scale, terminal), " ",
                    range.limiting ? Bold(figure, kWhite, terminal) : figure, "\n");
  }
  absl::StrAppend(&out, PadRight("", name_width + 3), BoundMark(terminal), " upper bound   ",
                  CapacityMark(terminal), " what the GPU has\n");
  return out;
}

// What the cells of the bars mean, with the figures of the fullest GPU, in two
// columns where the terminal is wide enough.
std::string Legend(const v1::EstimateMemoryResponse& response, const std::vector<RankRange>& ranges,
                   const Terminal& terminal) {
  const v1::RankMemory& rank = LimitingRank(response);
  const double whole = static_cast<double>(std::max<int64_t>(rank.device().expected_bytes(), 1));
  std::vector<std::vector<std::string>> items;
  for (const v1::RoleBytes& part : rank.breakdown()) {
    if (part.bytes() == 0) continue;
    const int64_t percent = std::lround(static_cast<double>(part.bytes()) / whole * 100);
    items.push_back({absl::StrCat(RoleCell(part.role(), terminal), " ", RoleName(part.role())),
                     FormatInGib(part.bytes()), absl::StrCat(percent, "%")});
  }
  const bool two = terminal.width >= 72;
  const size_t height = two ? (items.size() + 1) / 2 : items.size();
  std::vector<Align> aligns = {Align::kLeft, Align::kRight, Align::kRight};
  if (two) aligns.insert(aligns.end(), {Align::kLeft, Align::kLeft, Align::kRight, Align::kRight});
  Columns columns(aligns);
  for (size_t i = 0; i < height; ++i) {
    std::vector<std::string> row = items[i];
    if (two && i + height < items.size()) {
      row.push_back("");
      row.insert(row.end(), items[i + height].begin(), items[i + height].end());
    }
    columns.Add(row);
  }
  const std::string where =
      ranges.size() == 1 ? "each GPU" : absl::StrCat("a GPU of stage ", rank.pipeline_stage());
  const std::string heading = absl::StrCat("Where it goes, in GiB, on ", where, " at its peak in ",
                                           PhaseName(rank.peak_phase()));
  return absl::StrCat(Wrap(heading, terminal.width, 2), "\n", columns.ToText(1, terminal.width));
}

std::string Gauges(const std::vector<RankRange>& ranges, const Terminal& terminal) {
  Columns columns({Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kRight,
                   Align::kRight, Align::kRight});
  columns.Add({"GiB", "allocated", "bound", "reserved", "bound", "device", "bound"});
  for (const RankRange& range : ranges) {
    const v1::RankMemory& rank = *range.rank;
    std::vector<std::string> row = {StageName(range, ranges.size() == 1)};
    for (const v1::Gauge* gauge : {&rank.allocated(), &rank.reserved(), &rank.device()}) {
      row.push_back(FormatInGib(gauge->expected_bytes()));
      row.push_back(FormatInGib(gauge->bound_bytes()));
    }
    columns.Add(row);
  }
  return columns.ToText(1, terminal.width);
}

std::string Notices(const v1::EstimateMemoryResponse& response, const Terminal& terminal) {
  std::string out = AssumedLines(response.assumptions(), terminal);
  out += WarningLines(response.warnings(), terminal);
  const absl::string_view by = response.calibrated() == "phantom" ? " (calibrated: phantom)" : "";
  absl::StrAppend(
      &out, "\n",
      Wrap(absl::StrCat("Estimator ", Clean(response.estimator_version()), ", calibration ",
                        Clean(response.calibration_id()), by, ", ", Clean(response.detail())),
           terminal.width, 2),
      "\n");
  return out;
}

}  // namespace

std::vector<RankRange> MergeAlike(const v1::EstimateMemoryResponse& response) {
  std::vector<RankRange> ranges;
  for (int i = 0; i < response.ranks_size(); ++i) {
    const v1::RankMemory& rank = response.ranks(i);
    const bool limiting = i == response.limiting_rank();
    if (!ranges.empty() && rank.pipeline_stage() == ranges.back().last_stage + 1 &&
        Alike(*ranges.back().rank, rank)) {
      ranges.back().last_stage = rank.pipeline_stage();
      ranges.back().gpu_count += rank.gpu_count();
      ranges.back().limiting = ranges.back().limiting || limiting;
    } else {
      ranges.push_back({&rank, rank.pipeline_stage(), rank.gpu_count(), limiting});
    }
  }
  return ranges;
}

std::string ToTable(const v1::EstimateMemoryResponse& response, absl::string_view gpu,
                    const Terminal& terminal) {
  const std::vector<RankRange> ranges = MergeAlike(response);
  std::string out = Headline(response, gpu, terminal);
  if (!ranges.empty()) {
    absl::StrAppend(&out, "\n", Bars(response, ranges, terminal), "\n",
                    Legend(response, ranges, terminal), "\n", Gauges(ranges, terminal));
  }
  return absl::StrCat(out, ExplainPeak(response, terminal), ExplainLedger(response, terminal),
                      ExplainTrace(response, terminal), Notices(response, terminal));
}

}  // namespace plimsoll
