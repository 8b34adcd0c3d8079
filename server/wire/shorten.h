// Makes what callers sent fit to be repeated to them and in logs.
#ifndef PLIMSOLL_SERVER_WIRE_SHORTEN_H_
#define PLIMSOLL_SERVER_WIRE_SHORTEN_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace plimsoll {

// So much of a name or of a value that a caller sent is repeated to it.
inline constexpr size_t kMaxShownBytes = 64;

bool IsUtf8(absl::string_view text);

// Returns `text` as valid UTF-8 of at most `max_bytes`, cut between characters;
// an ellipsis stands for what is left out. Bytes that are not UTF-8 become '?'.
std::string Shorten(absl::string_view text, size_t max_bytes);

// `text` without control characters, so that what a server or a file says
// cannot steer a terminal.
std::string Clean(absl::string_view text);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_WIRE_SHORTEN_H_
