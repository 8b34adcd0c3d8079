// Schema, over protobuf's own parser.
#include "tests/testing/schema.h"

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"

namespace plimsoll {

namespace compiler = google::protobuf::compiler;
namespace io = google::protobuf::io;

// The texts given, before the repository's files, before protobuf's own.
class Schema::Texts : public compiler::SourceTree {
 public:
  explicit Texts(std::map<std::string, std::string> texts) : texts_(std::move(texts)) {
    disk_.MapPath("", PLIMSOLL_PROTO_DIR);
    disk_.MapPath("", PLIMSOLL_PROTOBUF_INCLUDE_DIR);
  }

  io::ZeroCopyInputStream* Open(const std::string& name) override {
    const auto text = texts_.find(name);
    if (text == texts_.end()) return disk_.Open(name);
    return new io::ArrayInputStream(text->second.data(), static_cast<int>(text->second.size()));
  }

 private:
  std::map<std::string, std::string> texts_;
  compiler::DiskSourceTree disk_;
};

class Schema::Errors : public compiler::MultiFileErrorCollector {
 public:
  void AddError(const std::string& file, int line, int /*column*/,
                const std::string& message) override {
    absl::StrAppend(&text, file, ":", line + 1, ": ", message, "\n");
  }

  std::string text;
};

Schema::Schema(const std::map<std::string, std::string>& texts,
               const std::vector<std::string>& names)
    : errors_(std::make_shared<Errors>()),
      texts_(std::make_shared<Texts>(texts)),
      importer_(std::make_shared<compiler::Importer>(texts_.get(), errors_.get())) {
  for (const std::string& name : names) {
    if (const auto* file = importer_->Import(name)) files_.push_back(file);
  }
}

Schema Schema::OfRepository() {
  std::vector<std::string> names;
  const std::filesystem::path root = PLIMSOLL_PROTO_DIR;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root / "plimsoll")) {
    if (entry.path().extension() == ".proto") {
      names.push_back(std::filesystem::relative(entry.path(), root).string());
    }
  }
  std::sort(names.begin(), names.end());
  return Schema({}, names);
}

Schema Schema::OfText(const std::map<std::string, std::string>& texts) {
  std::vector<std::string> names;
  for (const auto& [name, text] : texts) names.push_back(name);
  return Schema(texts, names);
}

const std::string& Schema::errors() const { return errors_->text; }

}  // namespace plimsoll
