#include "server/observe/line_writer.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <utility>

namespace plimsoll {

LineWriter::LineWriter(int fd, size_t max_bytes, std::function<std::string(int64_t dropped)> note)
    : fd_(fd),
      max_bytes_(max_bytes),
      note_(std::move(note)),
      ended_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { Run(); }) {}

LineWriter::~LineWriter() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    end_ = true;
  }
  eventfd_write(ended_, 1);
  changed_.notify_all();
  thread_.join();
  close(ended_);
}

void LineWriter::Write(std::string line) {
  const std::lock_guard<std::mutex> lock(mutex_);
  full_ = full_ || bytes_ + line.size() > max_bytes_;
  if (full_) {
    ++dropped_;
    return;
  }
  bytes_ += line.size();
  lines_.push_back(std::move(line));
  changed_.notify_all();
}

bool LineWriter::Flush(std::chrono::milliseconds time) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_for(lock, time, [this] { return lines_.empty() && !writing_ && !full_; });
}

int64_t LineWriter::dropped() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return dropped_;
}

std::string LineWriter::Next() {
  std::unique_lock<std::mutex> lock(mutex_);
  writing_ = false;
  changed_.notify_all();
  changed_.wait(lock, [this] { return end_ || full_ || !lines_.empty(); });
  if (end_) return "";
  writing_ = true;
  if (lines_.empty()) {
    full_ = false;
    return note_(dropped_ - std::exchange(told_, dropped_));
  }
  std::string line = std::move(lines_.front());
  lines_.pop_front();
  bytes_ -= line.size();
  return line;
}

void LineWriter::Run() {
  sigset_t all;  // a reader that is gone is no reason to end, and others take the rest
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  for (std::string line = Next(); !line.empty(); line = Next()) {
    if (Put(line)) continue;
    const std::lock_guard<std::mutex> lock(mutex_);
    ++dropped_;
    ++told_;  // there is nobody to tell
  }
}

// Returns false where this ends.
bool LineWriter::WaitForRoom() const {
  pollfd watched[] = {{.fd = fd_, .events = POLLOUT, .revents = 0},
                      {.fd = ended_, .events = POLLIN, .revents = 0}};
  while (poll(watched, std::size(watched), -1) < 0 && errno == EINTR) {
  }
  return watched[1].revents == 0;
}

// What has room takes as much as is written to a pipe in one piece, without waiting.
bool LineWriter::Put(const std::string& text) const {
  for (size_t begin = 0; begin < text.size();) {
    if (!WaitForRoom()) return false;
    const size_t size = std::min<size_t>(text.size() - begin, PIPE_BUF);
    const ssize_t count = write(fd_, text.data() + begin, size);
    if (count < 0 && errno != EINTR && errno != EAGAIN) return false;
    begin += static_cast<size_t>(std::max<ssize_t>(count, 0));
  }
  return true;
}

}  // namespace plimsoll
