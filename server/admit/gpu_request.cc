#include "server/admit/gpu_request.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/admit/job_words.h"
#include "server/wire/shorten.h"
#include "server/words/gpu_counts.h"

namespace plimsoll {
namespace {

constexpr char kRule[] = "must be gpu[:TYPE][:COUNT], as gres:gpu:h100:8";

// GPUs of one field of the request.
struct Amount {
  std::string type;
  int64_t count = 0;
  bool shares = false;
};

// Reads "8" or "2K". Returns nothing where it is neither, or too many.
std::optional<int64_t> ReadCount(absl::string_view text) {
  int64_t factor = 1;
  constexpr std::array<std::pair<char, int>, 3> kSuffixes = {{{'k', 10}, {'m', 20}, {'g', 30}}};
  for (const auto& [suffix, bits] : kSuffixes) {
    if (!text.empty() && absl::ascii_tolower(static_cast<unsigned char>(text.back())) == suffix) {
      text.remove_suffix(1);
      factor = int64_t{1} << bits;
      break;
    }
  }
  int64_t count = 0;
  const bool digits = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c));
  });
  if (!digits || !absl::SimpleAtoi(text, &count) || count > kMostGpus / factor) return std::nullopt;
  return count * factor;
}

bool LooksLikeCount(absl::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end() - 1,
                     [](char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }) &&
         absl::ascii_isalnum(static_cast<unsigned char>(text.back())) &&
         (text.size() > 1 || absl::ascii_isdigit(static_cast<unsigned char>(text.back())));
}

// Reads what comes after "gpu". Returns false where it is malformed.
bool ReadTypeAndCount(const std::vector<std::string>& parts, Amount* amount) {
  std::string type;
  int64_t count = 1;
  if (parts.size() > 3) return false;
  for (size_t i = 1; i < parts.size(); ++i) {
    const bool last = i + 1 == parts.size();
    if (last && LooksLikeCount(parts[i])) {
      const std::optional<int64_t> read = ReadCount(parts[i]);
      if (!read.has_value()) return false;
      count = *read;
    } else if (parts[i].empty() || i > 1 || !IsUtf8(parts[i])) {
      return false;
    } else {
      type = parts[i];
    }
  }
  const bool mixed = amount->count > 0 && count > 0 && amount->type != type;
  if (mixed || amount->count + count > kMostGpus) return false;
  if (count > 0) amount->type = type;
  amount->count += count;
  return true;
}

// Reads one field, as "gres:gpu:h100:8,gres:nic:1".
Amount ReadAmount(const char* field, const std::string& text, Violations* violations) {
  Amount amount;
  for (absl::string_view item : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    if (!absl::ConsumePrefix(&item, "gres:")) absl::ConsumePrefix(&item, "gres/");
    const std::vector<std::string> parts =
        absl::StrSplit(absl::StrReplaceAll(item, {{"=", ":"}}), ':');
    if (parts[0] == "shard" || parts[0] == "mps") {
      amount.shares = amount.shares || ReadCount(parts.back()) != std::optional<int64_t>(0);
    }
    if (parts[0] != "gpu" || ReadTypeAndCount(parts, &amount)) continue;
    violations->push_back({field, Clean(Shorten(text, kMostShownBytes)),
                           absl::StrCat(kRule, ", of one type"), ViolationCode::kMalformed});
    break;
  }
  return amount;
}

struct Amounts {
  Amount job, node, socket, task;

  std::array<const Amount*, 4> all() const { return {&job, &node, &socket, &task}; }
};

Amounts ReadAmounts(const v1::SchedulerRequest& request, Violations* violations) {
  return {.job = ReadAmount("tres_per_job", request.tres_per_job(), violations),
          .node = ReadAmount("tres_per_node", request.tres_per_node(), violations),
          .socket = ReadAmount("tres_per_socket", request.tres_per_socket(), violations),
          .task = ReadAmount("tres_per_task", request.tres_per_task(), violations)};
}

// How many of something; 0 where it is not said, or not sensibly.
int64_t Said(bool has, int64_t value) { return has && value > 0 ? std::min(value, kMostGpus) : 0; }

int64_t Nodes(const v1::SchedulerRequest& request) {
  return std::max<int64_t>(1, Said(request.has_min_nodes(), request.min_nodes()));
}

int64_t Tasks(const v1::SchedulerRequest& request) {
  const int64_t tasks = Said(request.has_task_count(), request.task_count());
  if (tasks > 0) return tasks;
  const int64_t per_node = Said(request.has_tasks_per_node(), request.tasks_per_node());
  return Nodes(request) * std::max<int64_t>(1, per_node);
}

// Multiplies without wrapping; more than kMostGpus is as bad as kMostGpus + 1.
int64_t Product(int64_t a, int64_t b) { return b > 0 && a > kMostGpus / b ? kMostGpus + 1 : a * b; }

// Sets the numbers of `gpus` from the first of the amounts that says one.
void Count(const v1::SchedulerRequest& request, const Amounts& amounts, GpuRequest* gpus) {
  const int64_t nodes = Nodes(request);
  if (amounts.node.count > 0) {
    gpus->per_node = amounts.node.count;
    gpus->count = Product(amounts.node.count, nodes);
  } else if (amounts.socket.count > 0) {
    gpus->per_node = Product(
        amounts.socket.count,
        std::max<int64_t>(1, Said(request.has_sockets_per_node(), request.sockets_per_node())));
    gpus->count = Product(gpus->per_node, nodes);
  } else if (amounts.task.count > 0) {
    gpus->count = Product(amounts.task.count, Tasks(request));
  }
  if (amounts.job.count > 0) gpus->count = amounts.job.count;
  const int64_t per_gpu = Said(request.has_tasks_per_gpu(), request.tasks_per_gpu());
  const int64_t tasks = Said(request.has_task_count(), request.task_count());
  if (gpus->count == 0 && per_gpu > 0) gpus->count = (tasks + per_gpu - 1) / per_gpu;
}

// `was` with another count: its first GPUs, in the form that they had.
std::string WithCount(const std::string& was, const std::string& type, int64_t count) {
  absl::string_view prefix;
  if (absl::StrContains(was, "gres:gpu")) prefix = "gres:";
  if (absl::StrContains(was, "gres/gpu")) prefix = "gres/";
  std::string text = absl::StrCat(prefix, "gpu", type.empty() ? "" : ":", type, ":", count);
  for (const absl::string_view item : absl::StrSplit(was, ',', absl::SkipEmpty())) {
    absl::string_view name = item;
    if (!absl::ConsumePrefix(&name, "gres:")) absl::ConsumePrefix(&name, "gres/");
    const bool gpu =
        name == "gpu" || absl::StartsWith(name, "gpu:") || absl::StartsWith(name, "gpu=");
    if (!gpu) absl::StrAppend(&text, ",", item);
  }
  return text;
}

// The least nodes that share `count` GPUs evenly.
int64_t FewestNodes(int64_t count, int64_t gpus_per_node) {
  int64_t nodes = (count + gpus_per_node - 1) / gpus_per_node;
  while (count % nodes != 0) ++nodes;
  return nodes;
}

// Collects what is to be set.
class Changes {
 public:
  void Set(const char* field, std::string value) {
    v1::SchedulerChange change;
    change.set_field(field);
    change.set_value(std::move(value));
    changes_.push_back(std::move(change));
  }
  void Set(const char* field, int64_t value) { Set(field, absl::StrCat(value)); }

  std::vector<v1::SchedulerChange> Take() { return std::move(changes_); }

 private:
  std::vector<v1::SchedulerChange> changes_;
};

// So many GPUs, on so many nodes; 0: left to the scheduler.
struct Room {
  int64_t count = 0;
  int64_t nodes = 0;
};

// The job's tasks there; 0 where none are stated. Nothing where it can't be told what they
// are of.
std::optional<int64_t> TasksIn(const Room& room, const v1::SchedulerRequest& request,
                               int64_t gpus_per_task, int64_t was_count) {
  const auto [count, nodes] = room;
  const int64_t tasks = Said(request.has_task_count(), request.task_count());
  const int64_t per_gpu = Said(request.has_tasks_per_gpu(), request.tasks_per_gpu());
  if (gpus_per_task > 0) {
    if (count % gpus_per_task != 0) return std::nullopt;
    return count / gpus_per_task;
  }
  if (per_gpu > 0) return tasks > 0 ? Product(count, per_gpu) : 0;
  const bool one_a_gpu = tasks > 1 && tasks == was_count;
  const bool one_a_node = nodes > 0 && tasks > 0 && tasks == Nodes(request);
  if (one_a_gpu && one_a_node && count != nodes) return std::nullopt;
  if (one_a_gpu) return count;
  if (one_a_node) return nodes;
  return tasks;
}

// Sets the tasks; false where Slurm would refuse them.
bool SetTasks(const v1::SchedulerRequest& request, const GpuRequest& was, int64_t gpus_per_task,
              const Room& room, Changes* changes) {
  const auto [count, nodes] = room;
  const auto tasks = TasksIn(room, request, gpus_per_task, was.count);
  if (!tasks.has_value() || (*tasks > 0 && *tasks < nodes)) return false;
  if (*tasks > 0 && *tasks != request.task_count()) changes->Set("task_count", *tasks);
  int64_t per_node = Said(request.has_tasks_per_node(), request.tasks_per_node());
  if (per_node == 0) return true;
  if (nodes == 0) return *tasks % per_node == 0;
  if (*tasks == 0) {
    if (per_node > 1 && per_node == was.per_node) per_node = count / nodes;
  } else {
    if (*tasks % nodes != 0) return false;
    per_node = *tasks / nodes;
  }
  if (per_node != request.tasks_per_node()) changes->Set("tasks_per_node", per_node);
  return true;
}

}  // namespace

GpuRequest ReadGpuRequest(const v1::SchedulerRequest& request, Violations* violations) {
  const Amounts amounts = ReadAmounts(request, violations);
  GpuRequest gpus;
  Count(request, amounts, &gpus);
  if (gpus.count > kMostGpus) {
    violations->push_back(
        {"cluster.gpu_count", absl::StrCat("more than ", kMostGpus, " GPUs asked for"),
         absl::StrCat("must be at most ", kMostGpus), ViolationCode::kOutOfRange});
    gpus.count = 0;
  }
  for (const Amount* const amount : amounts.all()) {
    gpus.shares = gpus.shares || amount->shares;
    if (amount->type.empty() || amount->type == gpus.type) continue;
    if (!gpus.type.empty()) {
      violations->push_back({"cluster.gpu",
                             absl::StrCat(Clean(gpus.type), " and ", Clean(amount->type)),
                             "must be of one type", ViolationCode::kConflict});
    }
    gpus.type = amount->type;
  }
  return gpus;
}

std::optional<std::vector<v1::SchedulerChange>> ChangeGpuCount(const v1::SchedulerRequest& request,
                                                               int64_t count,
                                                               int64_t gpus_per_node) {
  Violations violations;
  const Amounts amounts = ReadAmounts(request, &violations);
  const GpuRequest was = ReadGpuRequest(request, &violations);
  Changes changes;
  int64_t nodes = FewestNodes(count, gpus_per_node);
  bool set_nodes = request.has_min_nodes();
  if (amounts.job.count > 0) {
    changes.Set("tres_per_job", WithCount(request.tres_per_job(), amounts.job.type, count));
  }
  if (amounts.node.count > 0) {
    changes.Set("tres_per_node",
                WithCount(request.tres_per_node(), amounts.node.type, count / nodes));
    set_nodes = set_nodes || nodes != Nodes(request);
  } else if (amounts.socket.count > 0) {
    if (count % was.per_node != 0) return std::nullopt;
    nodes = count / was.per_node;
    set_nodes = true;
  }
  if (set_nodes) {
    changes.Set("min_nodes", nodes);
    changes.Set("max_nodes", nodes);
  } else if (amounts.node.count == 0) {
    nodes = 0;
  }
  if (!SetTasks(request, was, amounts.task.count, {count, nodes}, &changes)) return std::nullopt;
  return changes.Take();
}

}  // namespace plimsoll
