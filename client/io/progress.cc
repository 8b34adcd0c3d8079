#include "client/io/progress.h"

#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"

namespace plimsoll {
namespace {

constexpr char kErase[] = "\r\x1b[K";

bool CanErase() {
  const char* const terminal = std::getenv("TERM");
  return isatty(STDERR_FILENO) && terminal != nullptr && std::string(terminal) != "dumb";
}

// A line that nobody gets to see is no failure.
void Put(const std::string& text) {
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) return;
}

}  // namespace

Progress::Progress(std::string what, std::string limit)
    : what_(std::move(what)), limit_(std::move(limit)) {
  if (CanErase()) thread_ = std::thread(&Progress::Show, this);
}

Progress::~Progress() {
  if (!thread_.joinable()) return;
  {
    absl::MutexLock lock(&mutex_);
    done_ = true;
  }
  thread_.join();
}

void Progress::Show() {
  absl::MutexLock lock(&mutex_);
  int seconds = 0;
  while (!mutex_.AwaitWithTimeout(absl::Condition(&done_), absl::Seconds(1))) {
    Put(absl::StrCat(kErase, what_, ", ", ++seconds, " s of at most ", limit_));
  }
  if (seconds > 0) Put(kErase);
}

}  // namespace plimsoll
