// The answer to read: the verdict first, then the peaks of each step, then what is alive.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/io/text.h"
#include "client/measure/measure_answer.h"
#include "client/show/role_style.h"
#include "server/wire/shorten.h"

namespace plimsoll {
namespace {

using Align = Columns::Align;

constexpr size_t kGroups = 12;

std::string Verdict(const MeasureAnswer& answer, const Terminal& terminal) {
  return VerdictWord(VerdictOf(answer), terminal);
}

std::string When(int64_t step) { return step == 0 ? "the run" : absl::StrCat("step ", step); }

// "59.9 of 79.2 GiB on h100-80gb-sxm, bound 68.1": with NCCL, which a phantom has none of.
std::string EstimateWords(const v1::EstimateMemoryResponse& estimate, const MeasuredGpu& gpu) {
  const v1::Gauge& device = estimate.ranks(static_cast<int>(estimate.limiting_rank())).device();
  return absl::StrCat(FormatInGib(device.expected_bytes()), " of ",
                      FormatInGib(estimate.usable_bytes()), " GiB on ", gpu.id, ", ",
                      FormatInGib(estimate.headroom().expected_bytes()), " free; bound ",
                      FormatInGib(device.bound_bytes()));
}

std::string Headline(const MeasureAnswer& answer, const Terminal& terminal) {
  const Measurement& measurement = answer.measurement;
  const MeasuredGpu& gpu = answer.gpu;
  std::string text = absl::StrCat(Verdict(answer, terminal), "  ");
  if (const auto& failed = measurement.out_of_memory) {
    absl::StrAppend(&text, "out of memory in ", When(failed->step), ": asked for ",
                    FormatBytes(failed->requested_bytes), " more with ",
                    FormatBytes(failed->reserved_bytes), " reserved of ",
                    FormatBytes(gpu.usable_bytes), " on ", gpu.id);
  } else if (answer.estimate.has_value()) {
    absl::StrAppend(&text, EstimateWords(*answer.estimate, gpu));
  } else {
    const int64_t device_bytes = DeviceBytes(measurement.whole, gpu);
    absl::StrAppend(&text, FormatInGib(device_bytes), " of ", FormatInGib(gpu.usable_bytes),
                    " GiB on ", gpu.id, ", ", FormatInGib(gpu.usable_bytes - device_bytes),
                    " free");
  }
  const std::string second =
      absl::StrCat("By a phantom of that GPU: torch ", Clean(measurement.torch), " ran as rank ",
                   measurement.rank, " of ", measurement.rank_count, ", and nothing was computed");
  return absl::StrCat(Wrap(text, terminal.width, 2), "\n", Wrap(second, terminal.width, 2), "\n");
}

void AddPeaks(const std::string& name, const Peaks& peaks, const MeasuredGpu& gpu,
              Columns& columns) {
  columns.Add({absl::StrCat(" ", name), FormatInGib(peaks.allocated_bytes),
               FormatInGib(peaks.requested_bytes), FormatInGib(peaks.reserved_bytes),
               FormatInGib(DeviceBytes(peaks, gpu))});
}

std::string PeakTable(const Measurement& measurement, const MeasuredGpu& gpu, int width) {
  Columns columns({Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kRight});
  columns.Add({"Peaks, GiB", "allocated", "requested", "reserved", "device"});
  for (const Peaks& peaks : measurement.steps) {
    const char* const which = peaks.step == 1                        ? ", with what comes before"
                              : peaks.step == measurement.step_count ? ", the last"
                                                                     : "";
    AddPeaks(absl::StrCat("step ", peaks.step, which), peaks, gpu, columns);
  }
  AddPeaks("the whole run", measurement.whole, gpu, columns);
  return columns.ToText(0, width);
}

int64_t SumOf(const std::map<std::string, int64_t>& counts) {
  int64_t sum = 0;
  for (const auto& [dtype, count] : counts) sum += count;
  return sum;
}

// "1.24 B parameters, 0.62 B of them here as fp32: 2.30 GiB, with 4.60 GiB of optimizer states"
std::string HoldWords(const RunProfile& profile, int width) {
  std::vector<std::string> dtypes;
  for (const auto& [dtype, count] : profile.shard_parameter_counts) dtypes.push_back(Clean(dtype));
  const int64_t whole = SumOf(profile.parameter_counts);
  const int64_t shard = SumOf(profile.shard_parameter_counts);
  const std::string here =
      whole == shard ? "" : absl::StrCat(", ", FormatCount(shard), " of them on this rank");
  return absl::StrCat(
      Wrap(absl::StrCat("Held between steps: ", FormatCount(whole), " parameters", here, ", ",
                        absl::StrJoin(dtypes, " and "), ", ", FormatBytes(profile.weight_bytes),
                        "; optimizer states ", FormatBytes(profile.optimizer_state_bytes),
                        ". Kept from forward for backward: ", FormatBytes(profile.activation_bytes),
                        " a micro-batch."),
           width, 2),
      "\n");
}

// Peaks of the first step beside those of any later one.
std::string PhaseTable(const RunProfile& profile, int width) {
  Columns columns({Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kRight});
  columns.Add({"By phase, GiB", "step 1, allocated", "reserved", "later, allocated", "reserved"});
  const std::pair<const char*, const char*> phases[] = {{"forward", "forward"},
                                                        {"backward", "backward"},
                                                        {"gradient_reduction", "clipping"},
                                                        {"optimizer", "optimizer"}};
  for (const auto& [phase, name] : phases) {
    std::vector<std::string> row = {absl::StrCat(" ", name)};
    for (const PhasePeaks* step : {&profile.first_step, &profile.steady_step}) {
      const auto found = step->find(phase);
      const bool seen = found != step->end();
      row.push_back(seen ? FormatInGib(found->second.allocated_bytes) : "");
      row.push_back(seen ? FormatInGib(found->second.reserved_bytes) : "");
    }
    columns.Add(row);
  }
  return absl::StrCat("\n", columns.ToText(0, width), "\n", HoldWords(profile, width));
}

std::string AliveTable(const Measurement& measurement, int width) {
  Columns columns({Align::kRight, Align::kRight, Align::kLeft});
  columns.Add({"GiB", "blocks", "made by"});
  int64_t shown_bytes = 0;
  for (size_t i = 0; i < std::min(kGroups, measurement.alive.size()); ++i) {
    const AliveGroup& group = measurement.alive[i];
    const std::string within =
        group.within.empty() ? "" : absl::StrCat(", at ", Clean(group.within));
    columns.Add({FormatInGib(group.bytes), absl::StrCat(group.count),
                 absl::StrCat(Clean(group.line), within)});
    shown_bytes += group.bytes;
  }
  const int64_t rest_bytes = measurement.alive_bytes - shown_bytes;
  if (rest_bytes > 0) columns.Add({FormatInGib(rest_bytes), "", "others"});
  return columns.ToText(1, width);
}

// What the verdict counts of NCCL; 0 where there is none.
int64_t NcclBytes(const MeasureAnswer& answer) {
  if (!answer.estimate.has_value()) return 0;
  const v1::EstimateMemoryResponse& estimate = *answer.estimate;
  for (const v1::RoleBytes& part :
       estimate.ranks(static_cast<int>(estimate.limiting_rank())).breakdown()) {
    if (part.role() == v1::ROLE_NCCL) return part.bytes();
  }
  return 0;
}

// What the reader should know of the run.
std::string Notes(const MeasureAnswer& answer, int width) {
  const Measurement& measurement = answer.measurement;
  const MeasuredGpu& gpu = answer.gpu;
  std::string notes;
  const auto add = [&](const std::string& note) {
    absl::StrAppend(&notes, Wrap(note, width, 2), "\n");
  };
  if (measurement.step_count == 0) add("No step of an optimizer was seen.");
  if (measurement.step_count > static_cast<int64_t>(measurement.steps.size())) {
    add(absl::StrCat(measurement.step_count, " steps ran; the first ones and the last are shown."));
  }
  if (measurement.retry_count > 0 && !measurement.out_of_memory.has_value()) {
    add(absl::StrCat("The allocator gave back its cache to get memory, ", measurement.retry_count,
                     measurement.retry_count == 1 ? " time" : " times",
                     ": that makes a step slow on a GPU."));
  }
  if (const int64_t nccl_bytes = NcclBytes(answer); nccl_bytes > 0) {
    add(absl::StrCat("The verdict counts ", FormatInGib(nccl_bytes),
                     " GiB of NCCL more than the device of the table, which has none."));
  }
  if (gpu.context_bytes == 0) add("What the GPU's context takes is not known, and not counted.");
  add(absl::StrCat("Not known to a phantom: ", absl::StrJoin(UnknownToPhantoms(), "; "), "."));
  return notes;
}

}  // namespace

v1::Verdict VerdictOf(const MeasureAnswer& answer) {
  if (answer.measurement.out_of_memory.has_value()) return v1::VERDICT_DOES_NOT_FIT;
  return answer.estimate.has_value() ? answer.estimate->verdict() : v1::VERDICT_FITS;
}

std::string ToTable(const MeasureAnswer& answer, const Terminal& terminal) {
  const Measurement& measurement = answer.measurement;
  const char* const moment = measurement.out_of_memory.has_value() ? "Alive when memory ran out in "
                                                                   : "Alive at the peak of ";
  const std::string phases =
      measurement.profile.has_value() ? PhaseTable(*measurement.profile, terminal.width) : "";
  return absl::StrCat(Headline(answer, terminal), "\n",
                      PeakTable(measurement, answer.gpu, terminal.width), phases, "\n", moment,
                      When(measurement.alive_step), ", as requested\n",
                      AliveTable(measurement, terminal.width), "\n", Notes(answer, terminal.width));
}

}  // namespace plimsoll
