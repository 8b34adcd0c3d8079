// Reads YAML (and so JSON) into a protobuf message. The message's descriptor
// decides what a scalar means, so `torch: 2.10` stays the text "2.10".
#ifndef PLIMSOLL_SERVER_WORDS_YAML_MESSAGE_H_
#define PLIMSOLL_SERVER_WORDS_YAML_MESSAGE_H_

#include <google/protobuf/message.h>
#include <google/protobuf/struct.pb.h>
#include <yaml-cpp/yaml.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/wire/field_names.h"

namespace plimsoll {

// Of one document, aliases followed.
inline constexpr int kMaxYamlValues = 100'000;

// Merges YAML into messages and collects everything that is wrong. Aliases and merge keys (`<<`)
// are followed, over at most kMaxYamlValues values and 32 levels.
class YamlReader {
 public:
  // A scalar where a google.protobuf.Struct is due names a JSON file; a
  // relative name is read from `folder`. Without one, no file is read.
  explicit YamlReader(std::optional<std::string> folder) : folder_(std::move(folder)) {}

  // Merges `node` into `message`; `path` is the message's own, as "job".
  void Read(const YAML::Node& node, const std::string& path, google::protobuf::Message* message);

  // Sets one field, as `training.sequence_length`, to what `text` says in YAML.
  // `path` is the message's own.
  void Set(absl::string_view field, const std::string& text, const std::string& path,
           google::protobuf::Message* message);

  const Violations& violations() const { return violations_; }

 private:
  struct Entry {
    std::string name;
    YAML::Node value;
  };

  void Violate(const std::string& path, absl::string_view value, absl::string_view rule,
               ViolationCode code = ViolationCode::kMalformed);
  void ViolateUnknown(const std::string& at, absl::string_view value, UnknownName unknown);
  void ViolateAs(const std::string& path, const absl::Status& problem);
  bool Enter(const std::string& path);
  std::vector<Entry> Entries(const YAML::Node& node, const std::string& path);
  void Merge(const YAML::Node& node, const std::string& path, std::set<std::string>* names,
             std::vector<Entry>* entries);
  void SetField(const std::string& text, const std::string& path,
                const google::protobuf::FieldDescriptor* field, google::protobuf::Message* message);
  void ReadMessage(const YAML::Node& node, const std::string& path,
                   google::protobuf::Message* message);
  void ReadField(const YAML::Node& node, const std::string& path,
                 const google::protobuf::FieldDescriptor* field,
                 google::protobuf::Message* message);
  void ReadOne(const YAML::Node& node, const std::string& path,
               const google::protobuf::FieldDescriptor* field, google::protobuf::Message* message);
  void ReadList(const YAML::Node& node, const std::string& path,
                const google::protobuf::FieldDescriptor* field, google::protobuf::Message* message);
  void ReadMap(const YAML::Node& node, const std::string& path,
               const google::protobuf::FieldDescriptor* field, google::protobuf::Message* message);
  void ReadScalar(const YAML::Node& node, const std::string& path,
                  const google::protobuf::FieldDescriptor* field,
                  google::protobuf::Message* message);
  void ReadStruct(const YAML::Node& node, const std::string& path,
                  google::protobuf::Struct* object);
  void ReadStructFile(const std::string& name, const std::string& path,
                      google::protobuf::Struct* object);
  void ReadValue(const YAML::Node& node, const std::string& path, google::protobuf::Value* value);

  std::optional<std::string> folder_;
  const google::protobuf::Descriptor* root_ = nullptr;  // where names are looked for
  std::string root_path_;
  Violations violations_;
  int value_count_ = 0;
  int depth_ = 0;
};

// Reads a file of YAML or JSON into `message`, whose own path is `path`; no file that it
// names is read. Returns what is wrong with its fields.
//
// Errors: ReadDocument's and ParseYaml's.
absl::StatusOr<Violations> ReadYamlFile(const std::string& file, const std::string& path,
                                        google::protobuf::Message* message);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_WORDS_YAML_MESSAGE_H_
