// The names of fields as the caller of a JSON request wrote them: the proto has them in
// snake_case, ProtoJSON takes them in both spellings.
#ifndef PLIMSOLL_SERVER_WIRE_CALLER_NAMES_H_
#define PLIMSOLL_SERVER_WIRE_CALLER_NAMES_H_

#include <string>

#include "estimator/base/violation.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/struct.pb.h"

namespace plimsoll {

// A name that the request has is as it stands there; in both spellings: snake_case. One that
// it lacks is in lowerCamelCase, or in snake_case where any name of the request has an
// underscore.
class CallerNames {
 public:
  // `request` should be a message of this type; whatever of it is not, is left aside.
  CallerNames(const google::protobuf::Descriptor& type, google::protobuf::Value request);

  // Returns a path of the proto, as "job.training.sequence_length", in the caller's names.
  // What is no field of a message, as the keys of a map, stays as it is.
  std::string Path(const std::string& path) const;

  // Returns the violation with its field, and those that its rule speaks of, in the caller's
  // names. Words of a rule that name no field of `others` or `meant` stay.
  Violation InCallersNames(Violation violation) const;
  Violations InCallersNames(Violations violations) const;

 private:
  const google::protobuf::Descriptor& type_;
  const google::protobuf::Value request_;
  const bool snake_case_;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_WIRE_CALLER_NAMES_H_
