#include "client/show/explain.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/io/text.h"
#include "client/show/role_style.h"
#include "client/show/story_lines.h"
#include "client/show/timeline_words.h"
#include "server/wire/shorten.h"

namespace plimsoll {
namespace {

using Align = Columns::Align;

int64_t TotalBytes(const v1::LedgerEntry& entry) { return entry.bytes() * entry.count(); }

// Shape, passes and lifetime: what a line has after its figures.
std::string Story(const v1::LedgerEntry& entry) {
  std::vector<std::string> parts;
  const std::string shape = Clean(entry.shape());  // none where bytes are all that is known
  const std::string extents = Clean(entry.extents());
  if (!shape.empty()) {
    const bool same = extents.empty() || extents == shape;
    parts.push_back(same ? shape : absl::StrCat(shape, " = ", extents));
  }
  if (entry.shrunk_by_size() > 0) {
    parts.push_back(absl::StrCat("shrunk by ", Clean(absl::StrJoin(entry.shrunk_by(), ", "))));
  }
  if (!entry.lifetime().empty()) parts.push_back(Clean(entry.lifetime()));
  return absl::StrJoin(parts, "; ");
}

using Entries = std::vector<const v1::LedgerEntry*>;

void AddEntries(const Entries& entries, const Terminal& terminal, std::string* out) {
  StoryLines lines({Align::kRight, Align::kRight, Align::kLeft, Align::kLeft});
  for (const v1::LedgerEntry* entry : entries) {
    lines.Add(
        {FormatBytes(TotalBytes(*entry)),
         absl::StrCat("= ", entry->count(), " x ", FormatBytes(entry->bytes())),
         Clean(entry->dtype()), absl::StrCat(Clean(entry->block()), " ", Clean(entry->tensor()))},
        Story(*entry));
  }
  out->append(lines.ToText(terminal));
}

}  // namespace

std::string ExplainLedger(const v1::EstimateMemoryResponse& response, const Terminal& terminal) {
  std::map<v1::Role, Entries> roles;
  for (const v1::LedgerEntry& entry : response.ledger()) roles[entry.role()].push_back(&entry);
  std::string out;
  for (auto& [role, entries] : roles) {
    int64_t total_bytes = 0;
    for (const v1::LedgerEntry* entry : entries) total_bytes += TotalBytes(*entry);
    std::stable_sort(entries.begin(), entries.end(),
                     [](const v1::LedgerEntry* a, const v1::LedgerEntry* b) {
                       return TotalBytes(*a) > TotalBytes(*b);
                     });
    absl::StrAppend(&out, "\n", RoleCell(role, terminal), " ", RoleName(role), ", ",
                    FormatBytes(total_bytes), "\n");
    AddEntries(entries, terminal, &out);
  }
  return out;
}

std::string ExplainPeak(const v1::EstimateMemoryResponse& response, const Terminal& terminal) {
  if (response.timeline().largest_size() == 0) return "";
  const v1::TimelinePoint& peak = PeakPoint(response.timeline());
  std::string out =
      absl::StrCat("\nThe largest at the peak of a steady step, ",
                   FormatBytes(peak.allocated_bytes()), " in ", PhaseName(peak.phase()), "\n");
  StoryLines lines({Align::kRight, Align::kRight, Align::kLeft});
  for (const v1::PeakStorage& storage : response.timeline().largest()) {
    const std::string owners = StorageOwners(storage);
    lines.Add({FormatBytes(storage.bytes() * storage.count()),
               absl::StrCat("= ", storage.count(), " x ", FormatBytes(storage.bytes())),
               Clean(storage.name())},
              absl::StrCat(Clean(storage.made()), "; ", Clean(storage.alive()),
                           owners.empty() ? "" : "; ", Clean(owners)));
  }
  return out + lines.ToText(terminal);
}

std::string ExplainTrace(const v1::EstimateMemoryResponse& response, const Terminal& terminal) {
  if (response.trace_size() == 0) return "";
  Columns columns({Align::kLeft, Align::kRight, Align::kRight});
  columns.Add({"", "states", "one micro-batch"});
  for (const v1::TraceEntry& entry : response.trace()) {
    columns.Add({Clean(entry.pass()), FormatBytes(entry.state_bytes()),
                 FormatBytes(entry.activation_bytes())});
  }
  return absl::StrCat("\nWhat each pass left on the fullest GPU\n",
                      columns.ToText(1, terminal.width));
}

}  // namespace plimsoll
