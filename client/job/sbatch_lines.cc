#include "client/job/sbatch_lines.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace plimsoll {
namespace {

using Request = v1::SchedulerRequest;

constexpr char kDirective[] = "#SBATCH";

// "gpu:h100:8,nic:1" as Slurm passes it on: "gres:gpu:h100:8,gres:nic:1".
std::string Gres(absl::string_view value) {
  std::vector<std::string> parts;
  for (const absl::string_view part : absl::StrSplit(value, ',', absl::SkipEmpty())) {
    parts.push_back(absl::StrCat("gres:", part));
  }
  return absl::StrJoin(parts, ",");
}

void SetNodes(absl::string_view value, Request* request) {
  const std::vector<absl::string_view> ends = absl::StrSplit(value, absl::MaxSplits('-', 1));
  int64_t least = 0;
  int64_t most = 0;
  if (!absl::SimpleAtoi(ends.front(), &least) || !absl::SimpleAtoi(ends.back(), &most)) return;
  request->set_min_nodes(least);
  request->set_max_nodes(most);
}

// An option of sbatch: its names, and what of the request it sets.
struct Option {
  const char* name;
  const char* letter;  // empty: it has none
  void (*set)(absl::string_view value, Request* request);
};

template <void (Request::*set)(int64_t)>
void SetNumber(absl::string_view value, Request* request) {
  int64_t number = 0;
  if (absl::SimpleAtoi(value, &number)) (request->*set)(number);
}

// Source: Slurm 22.05, sbatch(1).
constexpr Option kOptions[] = {
    {"--nodes", "-N", SetNodes},
    {"--ntasks", "-n", SetNumber<&Request::set_task_count>},
    {"--ntasks-per-node", "", SetNumber<&Request::set_tasks_per_node>},
    {"--ntasks-per-gpu", "", SetNumber<&Request::set_tasks_per_gpu>},
    {"--sockets-per-node", "", SetNumber<&Request::set_sockets_per_node>},
    {"--gres", "", [](absl::string_view v, Request* r) { r->set_tres_per_node(Gres(v)); }},
    {"--gpus", "-G",
     [](absl::string_view v, Request* r) { r->set_tres_per_job(absl::StrCat("gres:gpu:", v)); }},
    {"--gpus-per-node", "",
     [](absl::string_view v, Request* r) { r->set_tres_per_node(absl::StrCat("gres:gpu:", v)); }},
    {"--gpus-per-socket", "",
     [](absl::string_view v, Request* r) { r->set_tres_per_socket(absl::StrCat("gres:gpu:", v)); }},
    {"--gpus-per-task", "",
     [](absl::string_view v, Request* r) { r->set_tres_per_task(absl::StrCat("gres:gpu:", v)); }},
};

// Reads the option that `words` begin with; returns how many words it takes.
size_t ReadOption(const std::vector<absl::string_view>& words, size_t at, Request* request) {
  const absl::string_view word = words[at];
  for (const Option& option : kOptions) {
    const absl::string_view letter = option.letter;
    const bool alone = word == option.name || (!letter.empty() && word == letter);
    if (alone && at + 1 < words.size()) {
      option.set(words[at + 1], request);
      return 2;
    }
    absl::string_view value = word;
    const bool joined = absl::ConsumePrefix(&value, absl::StrCat(option.name, "=")) ||
                        (!letter.empty() && absl::ConsumePrefix(&value, letter));
    if (joined && !value.empty()) {
      option.set(value, request);
      return 1;
    }
  }
  return 1;
}

}  // namespace

v1::SchedulerRequest ReadSbatchLines(absl::string_view script) {
  v1::SchedulerRequest request;
  for (absl::string_view line : absl::StrSplit(script, '\n')) {
    const absl::string_view stripped = absl::StripAsciiWhitespace(line);
    if (!stripped.empty() && stripped[0] != '#') break;
    if (!absl::ConsumePrefix(&line, kDirective)) continue;
    const std::string unquoted =
        absl::StrReplaceAll(line.substr(0, line.find(" #")), {{"\"", ""}, {"'", ""}});
    const std::vector<absl::string_view> words =
        absl::StrSplit(unquoted, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    for (size_t at = 0; at < words.size();) at += ReadOption(words, at, &request);
  }
  return request;
}

}  // namespace plimsoll
