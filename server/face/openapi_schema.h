// Protobuf types as JSON Schema 2020-12, the way ProtoJSON prints them: lowerCamelCase,
// int64 as strings, enums by name. Comments become descriptions.
#ifndef PLIMSOLL_SERVER_FACE_OPENAPI_SCHEMA_H_
#define PLIMSOLL_SERVER_FACE_OPENAPI_SCHEMA_H_

#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "server/wire/json_out.h"

namespace plimsoll {

// Returns a comment with each paragraph in one line.
std::string JoinedLines(absl::string_view comment);

// Returns the comment before a declaration; empty where its file came without comments.
template <typename Descriptor>
std::string CommentOf(const Descriptor& declared) {
  google::protobuf::SourceLocation location;
  return declared.GetSourceLocation(&location) ? JoinedLines(location.leading_comments) : "";
}

// Returns a reference to a message's schema, as JSON. What every ProtoJSON reader knows, as
// google.protobuf.Struct, is spelled out instead.
std::string ReferenceTo(const google::protobuf::Descriptor& message);

// Types that a document defines: messages, and all that they refer to.
class SchemaTypes {
 public:
  void Add(const google::protobuf::Descriptor& message);

  // Writes their schemas as members of an object, by name: that of plimsoll.v1 without the
  // package, others whole.
  void Write(JsonOut* to) const;

 private:
  std::map<std::string, const google::protobuf::Descriptor*> messages_;
  std::map<std::string, const google::protobuf::EnumDescriptor*> enums_;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_FACE_OPENAPI_SCHEMA_H_
