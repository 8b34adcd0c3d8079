// Lines on their way to a file descriptor whose reader may be slow, or read nothing at all:
// a pipe, a terminal, the socket of a journal.
#ifndef PLIMSOLL_SERVER_OBSERVE_LINE_WRITER_H_
#define PLIMSOLL_SERVER_OBSERVE_LINE_WRITER_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace plimsoll {

// Writes lines on a thread of its own. What is full drops all that comes, until what waits
// is written; then a line says how many were dropped, in their place. Any thread may call.
class LineWriter {
 public:
  // `max_bytes` may wait. `note` makes the line about those dropped. `fd` stays its
  // owner's, and as it is: others may share it.
  LineWriter(int fd, size_t max_bytes, std::function<std::string(int64_t dropped)> note);
  // What waits is lost.
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  // Takes a line, with its end. Never waits for the reader.
  void Write(std::string line);

  // Returns whether all lines are written, waiting at most so long.
  bool Flush(std::chrono::milliseconds time);

  // Lines dropped so far, and those that could not be written.
  int64_t dropped() const;

 private:
  void Run();
  // Returns the next line, or "" where this ends.
  std::string Next();
  // Returns whether it could.
  bool Put(const std::string& text) const;
  bool WaitForRoom() const;

  const int fd_;
  const size_t max_bytes_;
  const std::function<std::string(int64_t)> note_;
  const int ended_;  // an eventfd, written once
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> lines_;
  size_t bytes_ = 0;      // of lines_
  bool writing_ = false;  // a line that lines_ holds no more
  bool full_ = false;     // since a line was dropped
  int64_t dropped_ = 0;   // in all
  int64_t told_ = 0;      // of these in notes
  bool end_ = false;
  std::thread thread_;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_OBSERVE_LINE_WRITER_H_
