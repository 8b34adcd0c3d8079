// Lines of a file or pipe, handed out as soon as they are there.
#ifndef PLIMSOLL_CLIENT_IO_LINE_READER_H_
#define PLIMSOLL_CLIENT_IO_LINE_READER_H_

#include <string>

#include "absl/strings/string_view.h"

namespace plimsoll {

// Not thread-safe.
class LineReader {
 public:
  enum class Result {
    kLine,
    kTooLong,  // the line is skipped
    kWait,     // none is complete; a call of Fill may change that
    kEnd,
  };

  LineReader(int file, size_t max_line_bytes) : file_(file), max_line_bytes_(max_line_bytes) {}

  // The next line, without its line feed, from what has been read. It is valid
  // until the next call of Fill.
  Result Next(absl::string_view* line);

  // Reads more, and blocks until there is some. Returns false where reading
  // fails; errno says why.
  bool Fill();

 private:
  int file_;
  size_t max_line_bytes_;
  std::string buffer_;
  size_t start_ = 0;    // of the next line
  size_t scanned_ = 0;  // no line feed between start_ and here
  bool skipping_ = false;
  bool end_ = false;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_IO_LINE_READER_H_
