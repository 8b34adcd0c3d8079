// Files that are read anew when they change.
#ifndef PLIMSOLL_SERVER_RUN_RELOADER_H_
#define PLIMSOLL_SERVER_RUN_RELOADER_H_

#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "server/observe/log.h"
#include "server/observe/metrics.h"

namespace plimsoll {

// Looks every second at what it watches, on a thread of its own.
class Reloader {
 public:
  // Something that files hold. `reload` keeps the old where the new is bad.
  struct Watched {
    Setting what;
    std::function<std::vector<std::string>()> files;
    std::function<absl::Status()> reload;
  };

  // `metrics` and `log` outlive it, and what is watched does.
  Reloader(std::vector<Watched> watched, Metrics* metrics, const Log* log);
  ~Reloader();
  Reloader(const Reloader&) = delete;
  Reloader& operator=(const Reloader&) = delete;

  // Looks now. Any thread may call.
  void Look();

 private:
  struct State {
    Watched watched;
    std::string seen;     // of its files: which, when changed, how large
    absl::Status status;  // of the last reload
  };

  void Run();

  Metrics* const metrics_;
  const Log* const log_;
  absl::Notification ends_;
  std::mutex mutex_;
  std::vector<State> states_;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_RUN_RELOADER_H_
