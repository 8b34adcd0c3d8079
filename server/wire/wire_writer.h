// Writes a message's bytes straight from values. An answer has hundreds of
// small messages: to build each one first, and then to size it, takes longer
// than the estimate.
#ifndef PLIMSOLL_SERVER_WIRE_WIRE_WRITER_H_
#define PLIMSOLL_SERVER_WIRE_WIRE_WRITER_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/string_view.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"

namespace plimsoll {

// Fields are written as proto3 has them, those without presence: what is zero
// or empty is left out. The bytes are those of the library's own serializer
// where fields are written by number.
class WireWriter {
  using Coded = google::protobuf::io::CodedOutputStream;
  using Format = google::protobuf::internal::WireFormatLite;
  static constexpr size_t kMaxVarint = 10;

 public:
  WireWriter() = default;
  WireWriter(const WireWriter&) = delete;
  WireWriter& operator=(const WireWriter&) = delete;

  // An integer, a bool or an enum.
  template <typename Int>
  void Number(int field, Int value) {
    if (value == 0) return;
    Reserve(2 * kMaxVarint);
    at_ = Format::WriteInt64ToArray(field, static_cast<int64_t>(value), at_);
  }

  void Double(int field, double value) {
    if (std::bit_cast<uint64_t>(value) == 0) return;
    Reserve(kMaxVarint + sizeof value);
    at_ = Format::WriteDoubleToArray(field, value, at_);
  }

  void Text(int field, absl::string_view text) {
    if (!text.empty()) Bytes(field, text);
  }

  // An element of a repeated text, which may be empty.
  void Bytes(int field, absl::string_view bytes) { Bytes(field, bytes, {}); }

  // A text of two parts.
  void Bytes(int field, absl::string_view first, absl::string_view second) {
    const size_t size = first.size() + second.size();
    Reserve(2 * kMaxVarint + size);
    at_ = Coded::WriteVarint64ToArray(size, PutTag(field));
    at_ = Put(second, Put(first, at_));
  }

  // A repeated number, packed; none is left out.
  template <typename Iterator>
  void Numbers(int field, Iterator begin, Iterator end) {
    if (begin == end) return;
    Message(field, [&] {
      for (; begin != end; ++begin) {
        Reserve(kMaxVarint);
        at_ = Coded::WriteVarint64ToArray(static_cast<uint64_t>(*begin), at_);
      }
    });
  }

  // A message that is set: `fill` writes its fields, in `length_bytes` of length
  // if all goes well.
  template <typename Fill>
  void Message(int field, const Fill& fill, size_t length_bytes = 1) {
    Reserve(2 * kMaxVarint);
    at_ = PutTag(field) + length_bytes;
    const size_t begin = size();
    fill();
    SetLength(begin, length_bytes);
  }

  // A number and its field.
  struct NumberField {
    template <typename Int>
    NumberField(int field, Int value) : field(field), value(static_cast<int64_t>(value)) {}

    int field;
    int64_t value;
  };

  // A message that is set and holds nothing but numbers, so few that its length takes one
  // byte. Most of an answer is these.
  template <size_t n>
  void Message(int field, const NumberField (&numbers)[n]) {
    static_assert(n * (2 + kMaxVarint) < 0x80);  // fields below 2048
    Reserve(2 * kMaxVarint + n * (2 + kMaxVarint));
    uint8_t* const begin = PutTag(field) + 1;
    uint8_t* at = begin;  // in a register, which bytes written would else evict
    for (const NumberField& number : numbers) {
      if (number.value != 0) at = Format::WriteInt64ToArray(number.field, number.value, at);
    }
    begin[-1] = static_cast<uint8_t>(at - begin);
    at_ = at;
  }

  // Valid until more is written.
  absl::string_view bytes() const { return {buffer_.get(), size()}; }

  // Gives the buffer away, of which bytes() are the first; nothing more can be
  // written.
  std::unique_ptr<char[]> Release() { return std::move(buffer_); }

 private:
  uint8_t* PutTag(int field) const {
    return Format::WriteTagToArray(field, Format::WIRETYPE_LENGTH_DELIMITED, at_);
  }

  static uint8_t* Put(absl::string_view bytes, uint8_t* to) {
    return std::copy(bytes.begin(), bytes.end(), to);  // what is empty may be null
  }

  // Sets the length of what begins at `begin`, for which `kept` bytes before it
  // are kept; what needs more or fewer moves.
  void SetLength(size_t begin, size_t kept) {
    const size_t length = size() - begin;
    const size_t count = Coded::VarintSize64(length);
    Reserve(kMaxVarint);
    uint8_t* const message = Bottom() + begin;
    if (count != kept) {
      std::memmove(message - kept + count, message, length);
      at_ = message - kept + count + length;
    }
    Coded::WriteVarint64ToArray(length, message - kept);
  }

  uint8_t* Bottom() const { return reinterpret_cast<uint8_t*>(buffer_.get()); }
  size_t size() const { return static_cast<size_t>(at_ - Bottom()); }

  void Reserve(size_t bytes) {
    if (static_cast<size_t>(end_ - at_) < bytes) Grow(bytes);
  }

  void Grow(size_t bytes) {
    const size_t used = size();
    const size_t capacity = 2 * static_cast<size_t>(end_ - Bottom()) + bytes;
    std::unique_ptr<char[]> larger(new char[capacity]);
    std::memcpy(larger.get(), buffer_.get(), used);
    buffer_ = std::move(larger);
    at_ = Bottom() + used;
    end_ = Bottom() + capacity;
  }

  static constexpr size_t kCapacity = 8192;  // holds most answers
  std::unique_ptr<char[]> buffer_{new char[kCapacity]};
  uint8_t* at_ = Bottom();
  uint8_t* end_ = at_ + kCapacity;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_WIRE_WIRE_WRITER_H_
