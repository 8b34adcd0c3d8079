// Writes a message's bytes straight from values. An answer has hundreds of
// small messages: to build each one first, and then to size it, takes longer
// than the estimate.
#ifndef PLIMSOLL_SERVER_WIRE_WIRE_WRITER_H_
#define PLIMSOLL_SERVER_WIRE_WIRE_WRITER_H_

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/string_view.h"

namespace plimsoll {

// Fields are written as proto3 has them, those without presence: what is zero
// or empty is left out. The bytes are those of the library's own serializer
// where fields are written by number.
//
// Source: protobuf.dev/programming-guides/encoding
class WireWriter {
  enum WireType { kVarint = 0, kFixed64 = 1, kLength = 2 };
  static constexpr size_t kMaxVarint = 10;

  static constexpr uint32_t Tag(int field, WireType type) {
    return static_cast<uint32_t>(field) << 3 | type;
  }

 public:
  WireWriter() = default;
  WireWriter(const WireWriter&) = delete;
  WireWriter& operator=(const WireWriter&) = delete;

  // An integer, a bool or an enum.
  template <typename Int>
  void Number(int field, Int value) {
    if (value == 0) return;
    Reserve(2 * kMaxVarint);
    at_ = Put(static_cast<uint64_t>(value), Put(Tag(field, kVarint), at_));
  }

  void Double(int field, double value) {
    const auto bits = std::bit_cast<uint64_t>(value);
    if (bits == 0) return;
    Reserve(kMaxVarint + sizeof bits);
    at_ = Put(Tag(field, kFixed64), at_);
    std::memcpy(at_, &bits, sizeof bits);
    at_ += sizeof bits;
  }

  void Text(int field, absl::string_view text) {
    if (!text.empty()) Bytes(field, text);
  }

  // An element of a repeated text, which may be empty.
  void Bytes(int field, absl::string_view bytes) {
    Reserve(2 * kMaxVarint + bytes.size());
    at_ = Put(bytes.size(), Put(Tag(field, kLength), at_));
    at_ = std::copy(bytes.begin(), bytes.end(), at_);
  }

  // A text of two parts.
  void Bytes(int field, absl::string_view first, absl::string_view second) {
    Reserve(2 * kMaxVarint + first.size() + second.size());
    at_ = Put(first.size() + second.size(), Put(Tag(field, kLength), at_));
    at_ = std::copy(second.begin(), second.end(), std::copy(first.begin(), first.end(), at_));
  }

  // A repeated number, packed; none is left out.
  template <typename Iterator>
  void Numbers(int field, Iterator begin, Iterator end) {
    if (begin == end) return;
    Message(field, [&] {
      for (; begin != end; ++begin) {
        Reserve(kMaxVarint);
        at_ = Put(static_cast<uint64_t>(*begin), at_);
      }
    });
  }

  // A message that is set: `fill` writes its fields, in `length_bytes` of length
  // if all goes well.
  template <typename Fill>
  void Message(int field, const Fill& fill, size_t length_bytes = 1) {
    Reserve(2 * kMaxVarint);
    at_ = Put(Tag(field, kLength), at_) + length_bytes;
    const size_t begin = size();
    fill();
    SetLength(begin, length_bytes);
  }

  // A number and its field.
  struct NumberField {
    template <typename Int>
    NumberField(int number, Int value)
        : tag(static_cast<char>(Tag(number, kVarint))), value(static_cast<uint64_t>(value)) {
      assert(number < 16);
    }

    char tag;
    uint64_t value;
  };

  // A message that is set and holds nothing but numbers, of fields below 16, and
  // so few that its length takes one byte. Most of an answer is these: where the
  // next byte goes stays in a register, which bytes written would else evict.
  template <size_t n>
  void Message(int field, const NumberField (&numbers)[n]) {
    static_assert(n * (1 + kMaxVarint) < 0x80);
    Reserve(2 * kMaxVarint + n * (1 + kMaxVarint));
    char* const begin = Put(Tag(field, kLength), at_) + 1;
    char* at = begin;
    [&]<size_t... i>(std::index_sequence<i...>) { ((at = PutField(numbers[i], at)), ...); }
    (std::make_index_sequence<n>());
    begin[-1] = static_cast<char>(at - begin);
    at_ = at;
  }

  // Valid until more is written.
  absl::string_view bytes() const { return {buffer_.get(), size()}; }

  // Gives the buffer away, of which bytes() are the first; nothing more can be
  // written.
  std::unique_ptr<char[]> Release() { return std::move(buffer_); }

 private:
  static char* PutField(const NumberField& from, char* to) {
    if (from.value == 0) return to;
    *to = from.tag;
    return Put(from.value, to + 1);
  }

  static char* Put(uint64_t value, char* to) {
    if (value >= 0x80) return PutLong(value, to);
    *to = static_cast<char>(value);
    return to + 1;
  }

  // Spreads groups of seven bits over eight bytes at once: a half, a quarter and
  // an eighth of them move up by 4, 2 and 1 bits, as x + (2^n - 1) x = 2^n x. All
  // but the last byte say that there is more.
  static char* PutLong(uint64_t value, char* to) {
    static_assert(std::endian::native == std::endian::little);
    for (; value >> 56 != 0; value >>= 7) *to++ = static_cast<char>(value | 0x80);
    value += (value & 0x00fffffff0000000) * 15;
    value += (value & 0x0fffc0000fffc000) * 3;
    value += value & 0x3f803f803f803f80;
    // Leading zero bytes, as trailing ones: for these there is an instruction on
    // every machine.
    const int unused = std::countr_zero(__builtin_bswap64(value)) / 8;
    value |= uint64_t{0x0080808080808080} >> 8 * unused;
    std::memcpy(to, &value, sizeof value);
    return to + 8 - unused;
  }

  // Sets the length of what begins at `begin`, for which `kept` bytes before it
  // are kept; what needs more or fewer moves.
  void SetLength(size_t begin, size_t kept) {
    const size_t length = size() - begin;
    Reserve(kMaxVarint);
    char* const message = buffer_.get() + begin;
    char bytes[kMaxVarint];
    const auto count = static_cast<size_t>(Put(length, bytes) - bytes);
    if (count != kept) {
      std::memmove(message - kept + count, message, length);
      at_ = message - kept + count + length;
    }
    std::memcpy(message - kept, bytes, count);
  }

  size_t size() const { return static_cast<size_t>(at_ - buffer_.get()); }

  void Reserve(size_t bytes) {
    if (static_cast<size_t>(end_ - at_) < bytes) Grow(bytes);
  }

  void Grow(size_t bytes) {
    const size_t used = size();
    const size_t capacity = 2 * static_cast<size_t>(end_ - buffer_.get()) + bytes;
    std::unique_ptr<char[]> larger(new char[capacity]);
    std::memcpy(larger.get(), buffer_.get(), used);
    buffer_ = std::move(larger);
    at_ = buffer_.get() + used;
    end_ = buffer_.get() + capacity;
  }

  static constexpr size_t kCapacity = 8192;  // holds most answers
  std::unique_ptr<char[]> buffer_{new char[kCapacity]};
  char* at_ = buffer_.get();
  char* end_ = at_ + kCapacity;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_WIRE_WIRE_WRITER_H_
