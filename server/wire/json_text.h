// JSON as text, token by token, on one line or indented by two.
#ifndef PLIMSOLL_SERVER_WIRE_JSON_TEXT_H_
#define PLIMSOLL_SERVER_WIRE_JSON_TEXT_H_

#include <rapidjson/internal/itoa.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/string_view.h"

namespace plimsoll {

// Returns the text between quotation marks, escaped.
std::string QuotedJson(absl::string_view text);

// Appends to a string. Whoever calls keeps keys, values and brackets in order.
class JsonText {
 public:
  // `out` outlives the object, and holds the text once that is gone.
  JsonText(bool pretty, std::string* out) : pretty_(pretty), out_(*out) { SetRoom(out->size()); }
  JsonText(const JsonText&) = delete;
  JsonText& operator=(const JsonText&) = delete;
  ~JsonText() { out_.resize(Size()); }

  // '{' or '[', and its counterpart.
  void Open(char bracket) {
    Put(bracket);
    ++depth_;
    empty_ = true;
  }
  void Close(char bracket) {
    --depth_;
    if (!empty_ && pretty_) NewLine();
    Put(bracket);
    empty_ = false;
  }

  // Comes before each element of a list; before the whole it does nothing.
  void Next() {
    if (!empty_) Put(',');
    empty_ = false;
    if (pretty_ && depth_ > 0) NewLine();
  }

  // `quoted` is the key as QuotedJson returns it, and a colon.
  void Key(const std::string& quoted) {
    Next();
    Raw(quoted);
    if (pretty_) Put(' ');
  }

  void Text(absl::string_view text);
  // As ProtoJSON has it, 64-bit integers are strings.
  void QuotedNumber(int64_t value) {
    Reserve(kMaxDigits + 2);
    *at_ = '"';
    char* const end = rapidjson::internal::i64toa(value, at_ + 1);
    *end = '"';
    at_ = end + 1;
  }
  void Number(int64_t value) {
    Reserve(kMaxDigits);
    at_ = rapidjson::internal::i64toa(value, at_);
  }
  // A whole number without a point; what JSON has no number for is a string.
  void Number(double value);
  // A whole number with a point.
  //
  // Requires: value is finite
  void Double(double value);
  // JSON that is there already, or a word such as `true`.
  void Raw(absl::string_view json) {
    Reserve(json.size());
    at_ = Copy(json, at_);
  }

  // All that is in the string by now.
  absl::string_view text() const { return {out_.data(), Size()}; }

 private:
  static constexpr size_t kMaxDigits = 20;

  // Keys are short: a call for each takes longer than the copying.
  static char* Copy(absl::string_view from, char* to) {
    const size_t size = from.size();
    if (size >= 16 && size <= 32) {
      std::memcpy(to, from.data(), 16);
      std::memcpy(to + size - 16, from.data() + size - 16, 16);
    } else if (size >= 8 && size < 16) {
      std::memcpy(to, from.data(), 8);
      std::memcpy(to + size - 8, from.data() + size - 8, 8);
    } else {
      std::copy(from.begin(), from.end(), to);
    }
    return to + size;
  }

  void Put(char c) {
    Reserve(1);
    *at_++ = c;
  }

  void NewLine();

  size_t Size() const { return static_cast<size_t>(at_ - out_.data()); }

  // The string is longer than the text by then: appending to it piece by piece
  // takes twice as long.
  void Reserve(size_t bytes) {
    if (static_cast<size_t>(end_ - at_) < bytes) Grow(bytes);
  }
  void Grow(size_t bytes);
  void SetRoom(size_t used) {
    at_ = out_.data() + used;
    end_ = out_.data() + out_.size();
  }

  const bool pretty_;
  std::string& out_;
  char* at_;
  char* end_;
  size_t depth_ = 0;
  bool empty_ = true;  // nothing yet between the brackets
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_WIRE_JSON_TEXT_H_
