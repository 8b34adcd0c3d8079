// The style of plimsoll.v1: buf's STANDARD and COMMENTS rules, and our words
// for units.
#ifndef PLIMSOLL_TESTS_ARCHITECTURE_PROTO_STYLE_H_
#define PLIMSOLL_TESTS_ARCHITECTURE_PROTO_STYLE_H_

#include <string>
#include <vector>

#include "tests/testing/schema.h"

namespace plimsoll {

// What is not as it should be, as "<full name>: <value seen>; <rule>".
//
//   package    a.b.v1, in folder a/b/v1; proto3
//   options    go_package, java_package and those of C#, Objective-C, PHP and
//              Ruby: each what follows from the package (proto_style.cc)
//   messages   PascalCase; fields and oneofs lower_snake_case
//   integers   int64 only; `_bytes`, `_size`, `_count`, or a name of the list
//              in proto_style.cc, where each says what it is
//   others     double, bool, string, enums and messages
//   enums      PascalCase; values PREFIX_LIKE_THIS, 0 is `_UNSPECIFIED`
//   services   end in `Service`; method Foo takes FooRequest, returns
//              FooResponse
//   comments   on every message, field, oneof, enum, value, service, method
std::vector<std::string> StyleViolations(const Schema& schema);

}  // namespace plimsoll

#endif  // PLIMSOLL_TESTS_ARCHITECTURE_PROTO_STYLE_H_
