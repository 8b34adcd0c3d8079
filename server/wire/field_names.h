// Says what a caller may have meant by a field name that does not exist, and which
// fields a search may change.
#ifndef PLIMSOLL_SERVER_WIRE_FIELD_NAMES_H_
#define PLIMSOLL_SERVER_WIRE_FIELD_NAMES_H_

#include <string>
#include <vector>

#include "estimator/base/violation.h"
#include "estimator/job/synonyms.h"
#include "google/protobuf/descriptor.h"

namespace plimsoll {

// Returns the field by its snake_case or lowerCamelCase name, or null.
const google::protobuf::FieldDescriptor* FindField(const google::protobuf::Descriptor& type,
                                                   const std::string& name);

// A field name that does not exist.
struct UnknownName {
  // The rule of a RefusedWord, as "not modelled yet: ..."; "no such field here, it is <path>"
  // for one that stands elsewhere, or is called otherwise by others; "no such field, did
  // you mean <name>" where one is near; else "no such field".
  std::string rule;
  ViolationCode code = ViolationCode::kUnknownField;  // or the RefusedWord's
  std::string meant = {};  // the path of the field that the rule names, or empty
};

// Returns what is to be said of `name` in `type`, which stands at `path` of `root`; that is at
// `root_path` itself, where it is not the whole of a request.
UnknownName ExplainUnknownName(const google::protobuf::Descriptor& type, const std::string& path,
                               const google::protobuf::Descriptor& root, const std::string& name,
                               const std::string& root_path = "");

// Returns the one of `names` that is nearest to `name`; empty where none is near.
std::string NearestOf(const std::string& name, const std::vector<std::string>& names);

// Returns the rule that `path` breaks among allowed_changes; empty where a search may be
// allowed to change that field of a job.
std::string NotAllowedRule(const std::string& path);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_WIRE_FIELD_NAMES_H_
