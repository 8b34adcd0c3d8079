// The HTTP face as an OpenAPI 3.1 document, made from the descriptors: a method of
// kMethodNames is in it without further ado.
#ifndef PLIMSOLL_SERVER_FACE_OPENAPI_H_
#define PLIMSOLL_SERVER_FACE_OPENAPI_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "server/wire/method.h"

namespace plimsoll {

// What a document is about.
struct OpenApiSource {
  const google::protobuf::ServiceDescriptor* service;
  std::vector<MethodName> methods;  // each is one of the service's
  std::string version;
  const google::protobuf::Descriptor* status;                // of a refusal
  std::vector<const google::protobuf::Descriptor*> details;  // that it may have
};

// Returns the document as JSON: each method and each page as a path, with the comments of
// the protos as descriptions, and an example where there is one.
std::string WriteOpenApi(const OpenApiSource& source);

// Returns that of this server. Any thread may call; made at the first call.
const std::string& OpenApiDocument();

// Returns a google.protobuf.FileDescriptorSet, serialized: the contract with its comments,
// which generated code lacks. Embedded at build time.
absl::string_view EmbeddedDescriptors();

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_FACE_OPENAPI_H_
