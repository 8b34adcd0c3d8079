// A line on a terminal that says that an answer is on its way.
#ifndef PLIMSOLL_CLIENT_IO_PROGRESS_H_
#define PLIMSOLL_CLIENT_IO_PROGRESS_H_

#include <string>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace plimsoll {

// Shows itself on standard error where that is a terminal that can erase a line,
// and only when it has lived for a second; leaves nothing behind.
class Progress {
 public:
  // "<what>, 3 s of at most <limit>".
  Progress(std::string what, std::string limit);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

 private:
  void Show();

  const std::string what_;
  const std::string limit_;
  absl::Mutex mutex_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // none where there is nothing to show
};

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_IO_PROGRESS_H_
