// The OpenAPI document of a small contract, whole; what validates it, and whether the real
// one says the truth, is for openapi_test.py.
#include "server/face/openapi.h"

#include <google/rpc/status.pb.h>

#include <string>

#include "gmock/gmock.h"
#include "google/protobuf/descriptor.pb.h"
#include "gtest/gtest.h"
#include "rapidjson/document.h"
#include "rapidjson/prettywriter.h"
#include "server/face/openapi_schema.h"
#include "tests/testing/schema.h"

namespace plimsoll {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr char kProto[] = R"(
syntax = "proto3";
package a.v1;
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/struct.proto";
// Serves foo. Says
// more.
//
// And more.
service FooService {
  // Gets a foo. Or not.
  rpc GetFoo(GetFooRequest) returns (GetFooResponse);
  // Is not asked for.
  rpc Forget(ForgetRequest) returns (ForgetRequest);
}
// Asks.
message GetFooRequest {
  // How many.
  optional int64 the_count = 1;
  repeated double shares = 2;
  map<string, Kind> kinds = 3;
  // Where from.
  oneof source {
    // By name.
    string name = 4;
    google.protobuf.Struct config = 5;
    Nested nested = 6;
  }
  // Inside.
  message Nested { bool deep = 1; GetFooRequest again = 2; }
}
// A kind.
enum Kind {
  // None.
  KIND_UNSPECIFIED = 0;
  // Good.
  KIND_GOOD = 1;
}
// Answers.
message GetFooResponse {
  int32 code = 1;
  google.protobuf.Duration time = 2;
  repeated google.protobuf.Any details = 3;
  bytes raw = 4;
}
// Never mentioned.
message ForgetRequest {}
)";

const Schema& SmallSchema() {
  static const auto* const kSchema = new Schema(Schema::OfText({{"a/v1/a.proto", kProto}}));
  return *kSchema;
}

std::string Pretty(const std::string& json) {
  rapidjson::Document document;
  document.Parse(json.c_str());
  EXPECT_FALSE(document.HasParseError()) << json;
  rapidjson::StringBuffer buffer;
  rapidjson::PrettyWriter<rapidjson::StringBuffer> writer(buffer);
  writer.SetIndent(' ', 1);
  writer.SetFormatOptions(rapidjson::kFormatSingleLineArray);
  document.Accept(writer);
  return buffer.GetString();
}

std::string SmallSchemas() {
  const auto& file = *SmallSchema().files()[0];
  SchemaTypes types;
  types.Add(*file.FindMessageTypeByName("GetFooRequest"));
  types.Add(*file.FindMessageTypeByName("GetFooResponse"));
  JsonOut out;
  out.Object([&] { types.Write(&out); });
  return Pretty(out.Take());
}

TEST(OpenApiSchemaTest, SchemasAreWhatProtoJsonPrints) {
  ASSERT_EQ(SmallSchema().errors(), "");
  EXPECT_EQ(SmallSchemas(), R"({
 "a.v1.Kind": {
  "type": "string",
  "description": "A kind.\n\n* `KIND_UNSPECIFIED`: None.\n* `KIND_GOOD`: Good.",
  "enum": ["KIND_UNSPECIFIED", "KIND_GOOD"]
 },
 "a.v1.GetFooRequest": {
  "type": "object",
  "description": "Asks.\n\nAt most one of `name`, `config`, `nested`: Where from.",
  "properties": {
   "theCount": {
    "description": "How many.",
    "type": "string",
    "format": "int64",
    "pattern": "^-?[0-9]+$"
   },
   "shares": {
    "type": "array",
    "items": {
     "type": "number",
     "format": "double"
    }
   },
   "kinds": {
    "type": "object",
    "additionalProperties": {
     "$ref": "#/components/schemas/a.v1.Kind"
    }
   },
   "name": {
    "description": "By name.",
    "type": "string"
   },
   "config": {
    "allOf": [{
      "type": "object"
     }]
   },
   "nested": {
    "$ref": "#/components/schemas/a.v1.GetFooRequest.Nested"
   }
  },
  "not": {
   "anyOf": [{
     "required": ["name", "config"]
    }, {
     "required": ["name", "nested"]
    }, {
     "required": ["config", "nested"]
    }]
  }
 },
 "a.v1.GetFooRequest.Nested": {
  "type": "object",
  "description": "Inside.",
  "properties": {
   "deep": {
    "type": "boolean"
   },
   "again": {
    "$ref": "#/components/schemas/a.v1.GetFooRequest"
   }
  }
 },
 "a.v1.GetFooResponse": {
  "type": "object",
  "description": "Answers.",
  "properties": {
   "code": {
    "type": "integer",
    "format": "int32"
   },
   "time": {
    "allOf": [{
      "type": "string",
      "pattern": "^-?[0-9]+(\\.[0-9]+)?s$"
     }]
   },
   "details": {
    "type": "array",
    "items": {
     "type": "object",
     "required": ["@type"],
     "properties": {
      "@type": {
       "type": "string"
      }
     }
    }
   },
   "raw": {
    "type": "string",
    "format": "byte"
   }
  }
 }
})");
}

TEST(OpenApiSchemaTest, ParagraphsOfACommentAreLines) {
  EXPECT_EQ(JoinedLines(" One\n two.\n\n\n Three.\n"), "One two.\n\nThree.");
  EXPECT_EQ(JoinedLines(""), "");
}

// A method is documented as soon as the table has it, with or without an example.
TEST(OpenApiTest, HasThePathsOfItsMethods) {
  const auto& file = *SmallSchema().files()[0];
  const std::string document =
      WriteOpenApi({.service = file.FindServiceByName("FooService"),
                    .methods = {{"GetFoo", "/v1:getFoo"}},
                    .version = "1.2.3",
                    .status = google::rpc::Status::descriptor(),
                    .details = {file.FindMessageTypeByName("GetFooResponse")}});
  EXPECT_THAT(document, HasSubstr(R"("version":"1.2.3","description":"Serves foo. Says more.)"
                                  R"(\n\nAnd more.\n\nNames of fields)"));
  EXPECT_THAT(
      document,
      HasSubstr(
          R"("/v1:getFoo":{"post":{"operationId":"GetFoo","summary":"Gets a foo.",)"
          R"("description":"Gets a foo. Or not.","requestBody":{"required":true,"content":)"
          R"({"application/json":{"schema":{"$ref":"#/components/schemas/a.v1.GetFooRequest"}}}})"));
  EXPECT_THAT(document, HasSubstr(R"("const":"type.googleapis.com/a.v1.GetFooResponse")"));
  EXPECT_THAT(document, Not(HasSubstr("Forget")));
}

TEST(OpenApiTest, TheEmbeddedContractIsTheOneInUse) {
  google::protobuf::FileDescriptorSet files;
  const absl::string_view bytes = EmbeddedDescriptors();
  ASSERT_TRUE(files.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
  int seen = 0;
  for (const auto& file : files.file()) {
    const auto* const linked =
        google::protobuf::DescriptorPool::generated_pool()->FindFileByName(file.name());
    if (linked == nullptr) continue;  // not in this test
    google::protobuf::FileDescriptorProto expected;
    linked->CopyTo(&expected);
    linked->CopyJsonNameTo(&expected);
    google::protobuf::FileDescriptorProto embedded = file;
    embedded.clear_source_code_info();
    EXPECT_EQ(embedded.SerializeAsString(), expected.SerializeAsString()) << file.name();
    ++seen;
  }
  EXPECT_GE(seen, 3);
}

}  // namespace
}  // namespace plimsoll
