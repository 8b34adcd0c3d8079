#include "server/wire/ordered_bytes.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/util/type_resolver.h"
#include "google/protobuf/util/type_resolver_util.h"

namespace plimsoll {
namespace {

namespace util = google::protobuf::util;

constexpr char kTypes[] = "type.googleapis.com";

}  // namespace

std::string SerializeInOrder(const google::protobuf::Message& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  message.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

std::string JsonInOrder(const google::protobuf::Message& message,
                        const util::JsonPrintOptions& options, const std::string& otherwise) {
  static util::TypeResolver* const resolver = util::NewTypeResolverForDescriptorPool(
      kTypes, google::protobuf::DescriptorPool::generated_pool());
  std::string text;
  const auto status = util::BinaryToJsonString(
      resolver, absl::StrCat(kTypes, "/", message.GetDescriptor()->full_name()),
      SerializeInOrder(message), &text, options);
  return status.ok() ? text : otherwise;
}

}  // namespace plimsoll
