// Documents that a user hands over: read whole, bounded, parsed as YAML, of
// which JSON is a part.
#ifndef PLIMSOLL_SERVER_WORDS_DOCUMENT_H_
#define PLIMSOLL_SERVER_WORDS_DOCUMENT_H_

#include <yaml-cpp/yaml.h>

#include <string>

#include "absl/status/statusor.h"

namespace plimsoll {

// The largest document that is read.
inline constexpr size_t kMaxDocumentBytes = 1 << 20;

// Reads a whole file, or standard input where `name` is "-".
//
// Errors: INVALID_ARGUMENT, "<name>: <what the system said>; must be a readable
//         file" or "<name>: too large; must be at most 1048576 bytes".
absl::StatusOr<std::string> ReadDocument(const std::string& name);

// Parses text that holds exactly one document. `name` is for messages.
//
// Errors: INVALID_ARGUMENT, "<name>:<line>:<column>: <what is wrong>; must be
//         YAML or JSON", and one for no document or several, or for one that is not UTF-8.
absl::StatusOr<YAML::Node> ParseYaml(const std::string& text, const std::string& name);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_WORDS_DOCUMENT_H_
