#include "client/draw/timeline_html.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/draw/timeline_svg.h"
#include "client/format/json_writer.h"
#include "client/format/xml_writer.h"
#include "client/io/text.h"
#include "client/show/role_style.h"
#include "client/show/timeline_words.h"

namespace plimsoll {
namespace {

constexpr char kPageStyle[] = R"(
:root{color-scheme:light dark}
body{margin:0;font:14px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;
background:#fff;color:#1b2027}
main{width:1120px;margin:auto;position:relative}
h2{font-size:16px;margin:18px 24px 8px}
table{border-collapse:collapse;margin:0 24px 40px;width:1072px}
th,td{text-align:left;padding:4px 12px 4px 0;border-bottom:1px solid #dfe3e8;vertical-align:top}
.number{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
.name{white-space:nowrap}
.swatch{display:inline-block;width:11px;height:11px;border-radius:2px;margin-right:7px}
#cursor{position:absolute;width:1px;background:#59626d;pointer-events:none}
#figures{position:absolute;padding:8px 11px;border-radius:5px;background:#1b2027;color:#fff;
pointer-events:none;white-space:pre;font-size:12.5px;line-height:1.45;
font-variant-numeric:tabular-nums}
@media (prefers-color-scheme:dark){body{background:#14171b;color:#e8ebef}
th,td{border-color:#2d333b}#figures{background:#e8ebef;color:#14171b}}
)";

// Shows the figures of the point left of the cursor, of several in its pixel those of the highest.
constexpr char kScript[] = R"(
const timeline = JSON.parse(document.getElementById('timeline').textContent);
const svg = document.querySelector('svg');
const cursor = document.getElementById('cursor');
const figures = document.getElementById('figures');
const xs = svg.dataset.x.split(' ').map(Number);
const roles = svg.dataset.roles.split('|');
const words = name => name.replace('PHASE_', '').replaceAll('_', ' ').toLowerCase();
const gib = bytes => (Number(bytes) / 2 ** 30).toFixed(2).padStart(8) + ' GiB  ';
svg.addEventListener('mousemove', event => {
  const box = svg.getBoundingClientRect();
  const x = event.clientX - box.left;
  let low = 0, high = xs.length;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= x) low = middle; else high = middle;
  }
  const allocated = i => Number(timeline.points[i].allocatedBytes);
  for (let i = low + 1; i < xs.length && xs[i] < x + 1; ++i) {
    if (allocated(i) > allocated(low)) low = i;
  }
  const point = timeline.points[low];
  const lines = [words(point.phase) + ', event ' + point.event,
                 gib(point.reservedBytes) + 'reserved', gib(point.allocatedBytes) + 'allocated'];
  roles.forEach((role, i) => {
    if (Number(point.roleBytes[i]) > 0) lines.push(gib(point.roleBytes[i]) + role);
  });
  figures.textContent = lines.join('\n');
  figures.hidden = cursor.hidden = false;
  const right = x + 240 > box.width;
  figures.style.left = (right ? x - figures.offsetWidth - 14 : x + 14) + 'px';
  figures.style.top = '130px';
  cursor.style.left = x + 'px';
  cursor.style.top = svg.dataset.top + 'px';
  cursor.style.height = svg.dataset.height + 'px';
});
svg.addEventListener('mouseleave', () => { figures.hidden = cursor.hidden = true; });
)";

void Row(const v1::PeakStorage& storage, XmlWriter* xml) {
  xml->Open("tr");
  xml->Leaf("td", {{"class", "number"}}, FormatBytes(storage.bytes() * storage.count()));
  xml->Leaf("td", {{"class", "number"}},
            absl::StrCat(storage.count(), " × ", FormatBytes(storage.bytes())));
  xml->Open("td", {{"class", "name"}});
  xml->Leaf("span",
            {{"class", "swatch"},
             {"style", absl::StrCat("background:", RoleColor(storage.role()))},
             {"title", RoleName(storage.role())}},
            "");
  xml->Text(storage.name());
  xml->Close();
  xml->Leaf("td", {}, StorageOwners(storage));
  xml->Leaf("td", {}, storage.made());
  xml->Leaf("td", {}, storage.alive());
  xml->Close();
}

void Largest(const v1::EstimateMemoryResponse& response, XmlWriter* xml) {
  const v1::TimelinePoint& peak = PeakPoint(response.timeline());
  xml->Leaf("h2", {},
            absl::StrCat("The largest at the peak of ", FormatBytes(peak.allocated_bytes()), " in ",
                         PhaseName(peak.phase())));
  xml->Open("table");
  xml->Open("tr");
  for (const char* heading : {"in all", "each", "what", "of", "made in", "still alive"}) {
    xml->Leaf("th", {}, heading);
  }
  xml->Close();
  for (const v1::PeakStorage& storage : response.timeline().largest()) Row(storage, xml);
  xml->Close();
}

}  // namespace

std::string TimelineHtml(const v1::EstimateMemoryResponse& response, const v1::Job& job) {
  std::string json;
  AppendJson(response.timeline(), &json);
  XmlWriter xml;
  xml.Raw("<!DOCTYPE html>\n");
  xml.Open("html", {{"lang", "en"}});
  xml.Open("head");
  xml.Empty("meta", {{"charset", "utf-8"}});
  xml.Leaf("title", {},
           absl::StrCat(VerdictName(response.verdict()), ": ", JobTitle(response, job)));
  xml.Open("style");
  xml.Raw(kPageStyle);
  xml.Close();
  xml.Close();
  xml.Open("body");
  xml.Open("main");
  WriteTimelineSvg(response, job, &xml);
  xml.Leaf("div", {{"id", "cursor"}, {"hidden", ""}}, "");
  xml.Leaf("div", {{"id", "figures"}, {"hidden", ""}}, "");
  Largest(response, &xml);
  xml.Close();
  xml.Open("script", {{"type", "application/json"}, {"id", "timeline"}});
  xml.Raw(absl::StrReplaceAll(json, {{"<", "\\u003c"}}));
  xml.Close();
  xml.Open("script");
  xml.Raw(kScript);
  xml.Close();
  xml.Close();
  xml.Close();
  return std::move(xml).Take();
}

}  // namespace plimsoll
