#include "server/run/reloader.h"

#include <sys/stat.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace plimsoll {
namespace {

constexpr absl::Duration kInterval = absl::Seconds(1);

// What changes with a file, whether it is written, replaced or a link is turned.
std::string StateOf(const std::vector<std::string>& files) {
  std::string state;
  for (const std::string& file : files) {
    struct stat found {};
    const bool is_there = stat(file.c_str(), &found) == 0;
    absl::StrAppend(&state, file, ":", is_there, ":", found.st_ino, ":", found.st_size, ":",
                    found.st_mtim.tv_sec, ".", found.st_mtim.tv_nsec, "\n");
  }
  return state;
}

}  // namespace

Reloader::Reloader(std::vector<Watched> watched, Metrics* metrics, const Log* log)
    : metrics_(metrics), log_(log) {
  for (Watched& one : watched) {
    std::string seen = StateOf(one.files());
    states_.push_back({std::move(one), std::move(seen), absl::OkStatus()});
  }
  if (!states_.empty()) thread_ = std::thread([this] { Run(); });
}

Reloader::~Reloader() {
  ends_.Notify();
  if (thread_.joinable()) thread_.join();
}

void Reloader::Look() {
  const std::lock_guard lock(mutex_);
  for (State& state : states_) {
    std::string now = StateOf(state.watched.files());
    const bool changed = now != state.seen;
    if (!changed && state.status.ok()) continue;  // what failed may have failed for a moment
    const absl::Status status = state.watched.reload();
    state.seen = std::move(now);  // what has changed since is for the next look, as are new files
    const bool is_news = changed || status != state.status;
    state.status = status;
    if (!is_news) continue;
    metrics_->Reloaded(state.watched.what, status.ok());
    const std::string name = NameOf(state.watched.what);
    if (status.ok()) {
      log_->Write(LogLevel::kInfo, "reloaded", {{"setting", name}});
    } else {
      log_->Write(LogLevel::kError, "not-reloaded",
                  {{"setting", name},
                   {"message", std::string(status.message().data(), status.message().size())}});
    }
  }
}

void Reloader::Run() {
  while (!ends_.WaitForNotificationWithTimeout(kInterval)) Look();
}

}  // namespace plimsoll
