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

constexpr int kGreen = 77;
constexpr int kRed = 203;
constexpr size_t kGroups = 12;

std::string Verdict(const Measurement& measurement, const Terminal& terminal) {
  const bool fits = !measurement.out_of_memory.has_value();
  return Bold(VerdictName(fits ? v1::VERDICT_FITS : v1::VERDICT_DOES_NOT_FIT), fits ? kGreen : kRed,
              terminal);
}

std::string When(int64_t step) { return step == 0 ? "the run" : absl::StrCat("step ", step); }

std::string Headline(const Measurement& measurement, const MeasuredGpu& gpu,
                     const Terminal& terminal) {
  std::string text = absl::StrCat(Verdict(measurement, terminal), "  ");
  if (const auto& failed = measurement.out_of_memory) {
    absl::StrAppend(&text, "out of memory in ", When(failed->step), ": asked for ",
                    FormatBytes(failed->requested_bytes), " more with ",
                    FormatBytes(failed->reserved_bytes), " reserved of ",
                    FormatBytes(gpu.usable_bytes), " on ", gpu.id);
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

// What the reader should know of the run.
std::string Notes(const Measurement& measurement, const MeasuredGpu& gpu, int width) {
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
  if (gpu.context_bytes == 0) add("What the GPU's context takes is not known, and not counted.");
  add(absl::StrCat("Not known to a phantom: ", absl::StrJoin(UnknownToPhantoms(), "; "), "."));
  return notes;
}

}  // namespace

std::string ToTable(const Measurement& measurement, const MeasuredGpu& gpu,
                    const Terminal& terminal) {
  const char* const moment = measurement.out_of_memory.has_value() ? "Alive when memory ran out in "
                                                                   : "Alive at the peak of ";
  return absl::StrCat(
      Headline(measurement, gpu, terminal), "\n", PeakTable(measurement, gpu, terminal.width), "\n",
      moment, When(measurement.alive_step), ", as requested\n",
      AliveTable(measurement, terminal.width), "\n", Notes(measurement, gpu, terminal.width));
}

}  // namespace plimsoll
