// Frames of HTTP/2, as an attacker writes them.
#ifndef PLIMSOLL_TESTS_SERVER_HTTP2_FRAMES_H_
#define PLIMSOLL_TESTS_SERVER_HTTP2_FRAMES_H_

#include <string>

namespace plimsoll {

// A frame of HTTP/2. Source: RFC 9113, 4.1.
inline std::string Frame(char type, char flags, char stream, const std::string& payload) {
  const size_t size = payload.size();
  std::string frame = {static_cast<char>(size >> 16),
                       static_cast<char>(size >> 8),
                       static_cast<char>(size),
                       type,
                       flags,
                       0,
                       0,
                       0,
                       stream};
  return frame + payload;
}

inline constexpr char kSettings = 4, kHeaders = 1, kContinuation = 9;

inline std::string Preface() {
  return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(kSettings, 0, 0, "");
}

// A field "x" whose value has 1 GiB and goes on in the frames that follow. Source: RFC 7541, 5
// and 6.2.2.
inline std::string EndlessHead() {
  const std::string gib = {0x7f, '\x81', '\xff', '\xff', '\xff', 0x03};
  return Preface() + Frame(kHeaders, 0, 1, std::string{0, 1, 'x'} + gib);
}

}  // namespace plimsoll

#endif  // PLIMSOLL_TESTS_SERVER_HTTP2_FRAMES_H_
