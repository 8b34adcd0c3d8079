// Reads .proto files with their comments, from the repository or from memory.
#ifndef PLIMSOLL_TESTS_TESTING_SCHEMA_H_
#define PLIMSOLL_TESTS_TESTING_SCHEMA_H_

#include <google/protobuf/compiler/importer.h>
#include <google/protobuf/descriptor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace plimsoll {

// Parsed .proto files; owns their descriptors.
class Schema {
 public:
  // The files of plimsoll.v1, as the repository has them.
  static Schema OfRepository();

  // The files given, by name; what they import comes from the repository.
  static Schema OfText(const std::map<std::string, std::string>& texts);

  // In the order of their names.
  const std::vector<const google::protobuf::FileDescriptor*>& files() const { return files_; }

  // What the parser did not like, one a line.
  const std::string& errors() const;

 private:
  class Texts;
  class Errors;

  Schema(const std::map<std::string, std::string>& texts, const std::vector<std::string>& names);

  std::shared_ptr<Errors> errors_;
  std::shared_ptr<Texts> texts_;
  std::shared_ptr<google::protobuf::compiler::Importer> importer_;
  std::vector<const google::protobuf::FileDescriptor*> files_;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_TESTS_TESTING_SCHEMA_H_
