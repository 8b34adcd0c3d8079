#include "client/io/line_reader.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace plimsoll {
namespace {

constexpr size_t kReadBytes = 1 << 18;

}  // namespace

LineReader::Result LineReader::Next(absl::string_view* line) {
  const size_t feed = buffer_.find('\n', std::max(scanned_, start_));
  const bool complete = feed != std::string::npos;
  scanned_ = buffer_.size();
  if (!complete && !end_) {
    if (buffer_.size() - start_ > max_line_bytes_) {
      skipping_ = true;
      start_ = buffer_.size();
    }
    return Result::kWait;
  }
  if (!complete && start_ == buffer_.size() && !skipping_) return Result::kEnd;
  const size_t end = complete ? feed : buffer_.size();
  *line = absl::string_view(buffer_).substr(start_, end - start_);
  start_ = complete ? feed + 1 : end;
  scanned_ = start_;
  const bool too_long = skipping_ || line->size() > max_line_bytes_;
  skipping_ = false;
  return too_long ? Result::kTooLong : Result::kLine;
}

bool LineReader::Fill() {
  buffer_.erase(0, start_);
  scanned_ -= std::min(scanned_, start_);
  start_ = 0;
  const size_t size = buffer_.size();
  buffer_.resize(size + kReadBytes);
  ssize_t count = 0;
  do {
    count = read(file_, buffer_.data() + size, kReadBytes);
  } while (count < 0 && errno == EINTR);
  buffer_.resize(size + static_cast<size_t>(std::max<ssize_t>(count, 0)));
  end_ = count == 0;
  return count >= 0;
}

}  // namespace plimsoll
