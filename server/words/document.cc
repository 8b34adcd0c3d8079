#include "server/words/document.h"

#include <fcntl.h>
#include <unistd.h>
#include <yaml-cpp/eventhandler.h>

#include <cerrno>
#include <cstring>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "server/wire/shorten.h"
#include "server/words/refusal.h"

namespace plimsoll {
namespace {

absl::Status Unreadable(const std::string& name) {
  return Invalid({{name, std::strerror(errno), "must be a readable file"}});
}

absl::StatusOr<std::string> ReadAll(int file, const std::string& name) {
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t count = read(file, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Unreadable(name);
    if (count == 0) return text;
    text.append(buffer, static_cast<size_t>(count));
    if (text.size() > kMaxDocumentBytes) {
      return Invalid(
          {{name, "too large", absl::StrCat("must be at most ", kMaxDocumentBytes, " bytes"),
            ViolationCode::kTooLarge}});
    }
  }
}

// Counts the documents of a text, and forgets them.
class DocumentCounter : public YAML::EventHandler {
 public:
  int count() const { return count_; }

  void OnDocumentStart(const YAML::Mark& /*at*/) override { ++count_; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& /*at*/, YAML::anchor_t /*anchor*/) override {}
  void OnAlias(const YAML::Mark& /*at*/, YAML::anchor_t /*anchor*/) override {}
  void OnScalar(const YAML::Mark& /*at*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                const std::string& /*value*/) override {}
  void OnSequenceStart(const YAML::Mark& /*at*/, const std::string& /*tag*/,
                       YAML::anchor_t /*anchor*/, YAML::EmitterStyle::value /*style*/) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& /*at*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                  YAML::EmitterStyle::value /*style*/) override {}
  void OnMapEnd() override {}

 private:
  int count_ = 0;
};

// Whether there is a second document. YAML::LoadAll would read them all, which yaml-cpp
// 0.7 does for ever where a document is a comma: it takes that for an empty one, and
// stays where it is.
bool HasSecondDocument(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentCounter counter;
  while (counter.count() < 2 && parser.HandleNextDocument(counter)) {
  }
  return counter.count() > 1;
}

}  // namespace

absl::StatusOr<std::string> ReadDocument(const std::string& name) {
  if (name == "-") return ReadAll(STDIN_FILENO, "standard input");
  const int file = open(name.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return Unreadable(name);
  absl::StatusOr<std::string> text = ReadAll(file, name);
  close(file);
  return text;
}

absl::StatusOr<YAML::Node> ParseYaml(const std::string& text, const std::string& name) {
  try {
    if (!IsUtf8(text)) {
      return Invalid({{name, "in another encoding", "must be UTF-8", ViolationCode::kMalformed}});
    }
    if (HasSecondDocument(text)) {
      return Invalid(
          {{name, "several documents", "must hold one document", ViolationCode::kMalformed}});
    }
    const YAML::Node document = YAML::Load(text);
    if (document.IsNull()) {
      return Invalid({{name, "empty", "must hold one document", ViolationCode::kMalformed}});
    }
    return document;
  } catch (const YAML::Exception& error) {
    const std::string place = error.mark.is_null() ? name
                                                   : absl::StrCat(name, ":", error.mark.line + 1,
                                                                  ":", error.mark.column + 1);
    return Invalid({{place, error.msg, "must be YAML or JSON", ViolationCode::kMalformed}});
  }
}

}  // namespace plimsoll
