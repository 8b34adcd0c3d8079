// plimsoll.v1 keeps its style, and each rule is shown to notice.
#include "tests/architecture/proto_style.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;

TEST(ProtoStyleTest, TheContractKeepsEveryRule) {
  const Schema schema = Schema::OfRepository();
  ASSERT_EQ(schema.errors(), "");
  ASSERT_FALSE(schema.files().empty());
  EXPECT_THAT(StyleViolations(schema), IsEmpty());
}

// What a file of package a.v1 says of itself in other languages.
constexpr char kOptions[] = R"(
option csharp_namespace = "A.V1";
option go_package = "a/v1;av1";
option java_multiple_files = true;
option java_outer_classname = "AProto";
option java_package = "a.v1";
option objc_class_prefix = "AXX";
option php_metadata_namespace = "A\\V1\\GPBMetadata";
option php_namespace = "A\\V1";
option ruby_package = "A::V1";
)";

struct Row {
  const char* name;
  const char* text;  // after the package and the options
  std::vector<std::string> violations;
};

const Row kRows[] = {
    {"as it should be",
     "// An M.\nmessage M {\n  // Bytes.\n  int64 x_bytes = 1;\n"
     "  // A rate per name.\n  map<string, double> rates = 2;\n}",
     {}},
    // Comments.
    {"bare message", "message M {}", {"a.v1.M: no comment; must say what it is"}},
    {"bare field",
     "// An M.\nmessage M { string s = 1; }",
     {"a.v1.M.s: no comment; must say what it is"}},
    {"bare oneof",
     "// An M.\nmessage M { oneof kind {\n// S.\nstring s = 1; } }",
     {"a.v1.M.kind: no comment; must say what it is"}},
    {"bare enum",
     "enum E {\n// None.\nE_UNSPECIFIED = 0; }",
     {"a.v1.E: no comment; must say what it is"}},
    {"bare value",
     "// An E.\nenum E { E_UNSPECIFIED = 0; }",
     {"a.v1.E_UNSPECIFIED: no comment; must say what it is"}},
    {"empty comment", "//\nmessage M {}", {"a.v1.M: no comment; must say what it is"}},
    {"bare service and method",
     "service FooService { rpc Get(GetRequest) returns (GetResponse); }\n"
     "// In.\nmessage GetRequest {}\n// Out.\nmessage GetResponse {}",
     {"a.v1.FooService: no comment; must say what it is",
      "a.v1.FooService.Get: no comment; must say what it is"}},
    // Names.
    {"message in snake case", "// An m.\nmessage my_m {}", {"a.v1.my_m: my_m; must be PascalCase"}},
    {"field in camel case",
     "// An M.\nmessage M {\n// S.\nstring myName = 1; }",
     {"a.v1.M.myName: myName; must be lower_snake_case"}},
    {"enum without prefix",
     "// An E.\nenum MyEnum {\n// None.\nMY_ENUM_UNSPECIFIED = 0;\n// On.\nON = 1; }",
     {"a.v1.ON: ON; must begin with MY_ENUM_"}},
    {"enum zero means something",
     "// An E.\nenum E {\n// On.\nE_ON = 0; }",
     {"a.v1.E_ON: E_ON; 0 must be E_UNSPECIFIED"}},
    {"service without Service",
     "// A planner.\nservice Planner {}",
     {"a.v1.Planner: Planner; must be PascalCase and end in Service"}},
    {"shared request",
     "// A service.\nservice FooService {\n// Gets.\nrpc Get(M) returns (M); }\n"
     "// An M.\nmessage M {}",
     {"a.v1.FooService.Get: M; must take GetRequest",
      "a.v1.FooService.Get: M; must return GetResponse"}},
    // Integers and units.
    {"int32",
     "// An M.\nmessage M {\n// N.\nint32 head_count = 1; }",
     {"a.v1.M.head_count: int32; must be int64, double, bool, string, an enum or a message"}},
    {"uint64",
     "// An M.\nmessage M {\n// N.\nuint64 x_bytes = 1; }",
     {"a.v1.M.x_bytes: uint64; must be int64, double, bool, string, an enum or a message"}},
    {"float",
     "// An M.\nmessage M {\n// N.\nfloat risk = 1; }",
     {"a.v1.M.risk: float; must be int64, double, bool, string, an enum or a message"}},
    {"gigabytes",
     "// An M.\nmessage M {\n// N.\nint64 memory_gb = 1; }",
     {"a.v1.M.memory_gb: memory_gb; must end in _bytes, _size or _count"}},
    {"nested message",
     "// An M.\nmessage M {\n// An N.\nmessage N {\n// N.\nint64 num_heads = 1; } }",
     {"a.v1.M.N.num_heads: num_heads; must end in _bytes, _size or _count"}},
};

TEST(ProtoStyleTest, NoticesEachBrokenRule) {
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.name);
    const std::string head = absl::StrCat("syntax = \"proto3\"; package a.v1;", kOptions);
    const Schema schema = Schema::OfText({{"a/v1/a.proto", head + row.text}});
    ASSERT_EQ(schema.errors(), "");
    EXPECT_THAT(StyleViolations(schema), ElementsAreArray(row.violations));
  }
}

// Each option in turn is left out, which is as wrong as another value.
TEST(ProtoStyleTest, NoticesEachOptionOfOtherLanguages) {
  const std::vector<std::string> violations = {
      "csharp_namespace \"\"; must be A.V1",
      "go_package \"\"; must be a/v1;av1",
      "java_multiple_files \"false\"; must be true",
      "java_outer_classname \"\"; must be AProto",
      "java_package \"\"; must be a.v1",
      "objc_class_prefix \"\"; must be AXX",
      "php_metadata_namespace \"\"; must be A\\V1\\GPBMetadata",
      "php_namespace \"\"; must be A\\V1",
      "ruby_package \"\"; must be A::V1",
  };
  const std::vector<std::string> lines = absl::StrSplit(kOptions, '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), violations.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    std::vector<std::string> others = lines;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    const Schema schema =
        Schema::OfText({{"a/v1/a.proto", absl::StrCat("syntax = \"proto3\"; package a.v1;\n",
                                                      absl::StrJoin(others, "\n"))}});
    ASSERT_EQ(schema.errors(), "");
    EXPECT_THAT(StyleViolations(schema),
                ElementsAreArray({absl::StrCat("a/v1/a.proto: ", violations[i])}));
  }
}

TEST(ProtoStyleTest, NamesOfLongerPackagesAndFilesFollow) {
  const Schema schema = Schema::OfText({{"training_jobs/gpu/v2/my_job.proto",
                                         "syntax = \"proto3\"; package training_jobs.gpu.v2;"}});
  EXPECT_THAT(StyleViolations(schema),
              IsSupersetOf({HasSubstr("; must be TrainingJobs.Gpu.V2"),
                            HasSubstr("; must be training_jobs/gpu/v2;training_jobsgpuv2"),
                            HasSubstr("; must be MyJobProto"), HasSubstr("; must be TGX")}));
}

TEST(ProtoStyleTest, NoticesFilesOutOfPlace) {
  const Schema schema = Schema::OfText({{"b/b.proto", "syntax = \"proto2\"; package a;"},
                                        {"c/c.proto", "syntax = \"proto3\"; package a.v1;"}});
  ASSERT_EQ(schema.errors(), "");
  EXPECT_THAT(StyleViolations(schema),
              IsSupersetOf({"b/b.proto: proto2; must be proto3",
                            "b/b.proto: a; package must end in a version such as .v1",
                            "b/b.proto: a; package must be the folder",
                            "c/c.proto: a.v1; package must be the folder"}));
}

}  // namespace
}  // namespace plimsoll
