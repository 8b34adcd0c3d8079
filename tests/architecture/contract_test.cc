// plimsoll.v1 only grows: every promise of the committed descriptor
// (proto/plimsoll/v1/descriptor.txt) is still kept.
//
// After an addition, record it:
//   UPDATE_DESCRIPTOR=1 build/tests/architecture/contract_test
// That adds lines and takes none away, but that a field may gain presence. A promise may only be
// broken by hand, with a new package version (plimsoll.v2) as the better way.
#include "tests/architecture/contract.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kDescriptor[] = PLIMSOLL_PROTO_DIR "/plimsoll/v1/descriptor.txt";

std::vector<std::string> CommittedContract() {
  std::ifstream file(kDescriptor);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

TEST(ContractTest, KeepsEveryPromise) {
  const Schema schema = Schema::OfRepository();
  ASSERT_EQ(schema.errors(), "");
  ASSERT_FALSE(CommittedContract().empty());
  EXPECT_THAT(Lost(CommittedContract(), ContractOf(schema)), IsEmpty());
}

TEST(ContractTest, RecordsEveryAddition) {
  const std::vector<std::string> contract = ContractOf(Schema::OfRepository());
  const std::vector<std::string> added = Missing(contract, CommittedContract());
  if (added.empty()) return;
  if (std::getenv("UPDATE_DESCRIPTOR") != nullptr) {
    ASSERT_THAT(Lost(CommittedContract(), contract), IsEmpty());
    std::ofstream(kDescriptor) << absl::StrJoin(contract, "\n") << "\n";
    return;
  }
  ADD_FAILURE() << "plimsoll.v1 has grown, and what is not recorded may be lost again; record it:\n"
                << "  UPDATE_DESCRIPTOR=1 build/tests/architecture/contract_test\n"
                << absl::StrJoin(added, "\n");
}

constexpr char kBefore[] = R"(syntax = "proto3"; package a.v1;
service S { rpc Get(M) returns (M); rpc Put(M) returns (M); }
enum E { E_UNSPECIFIED = 0; E_ON = 1; }
message M {
  int64 x_bytes = 1;
  optional string name = 2;
  oneof kind { E e = 3; M m = 4; }
  repeated int64 layout = 5;
  map<string, double> rates = 6;
})";

std::vector<std::string> ContractOfText(const std::string& text) {
  const Schema schema = Schema::OfText({{"a.proto", text}});
  EXPECT_EQ(schema.errors(), "");
  return ContractOf(schema);
}

TEST(ContractTest, IsOnePromiseALine) {
  EXPECT_THAT(ContractOfText(kBefore),
              ElementsAre("rpc a.v1.S.Get(a.v1.M) returns (a.v1.M)",
                          "rpc a.v1.S.Put(a.v1.M) returns (a.v1.M)",
                          "value a.v1.E.E_UNSPECIFIED = 0", "value a.v1.E.E_ON = 1",
                          "message a.v1.M", "field a.v1.M.x_bytes = 1: int64, json xBytes",
                          "field a.v1.M.name = 2: optional string, json name",
                          "field a.v1.M.e = 3: oneof kind a.v1.E, json e",
                          "field a.v1.M.m = 4: oneof kind a.v1.M, json m",
                          "field a.v1.M.layout = 5: repeated int64, json layout",
                          "field a.v1.M.rates = 6: map<string, double>, json rates"));
}

struct Change {
  const char* name;
  const char* from;
  const char* to;
  const char* lost;  // the promise that is broken; empty where none is
};

const Change kChanges[] = {
    // Broken promises.
    {"field removed", "int64 x_bytes = 1;", "reserved 1;",
     "field a.v1.M.x_bytes = 1: int64, json xBytes"},
    {"field renumbered", "x_bytes = 1", "x_bytes = 9",
     "field a.v1.M.x_bytes = 1: int64, json xBytes"},
    {"field retyped", "int64 x_bytes", "string x_bytes",
     "field a.v1.M.x_bytes = 1: int64, json xBytes"},
    {"field renamed", "x_bytes = 1", "y_bytes = 1", "field a.v1.M.x_bytes = 1: int64, json xBytes"},
    {"JSON name changed", "x_bytes = 1", "x_bytes = 1 [json_name = \"x\"]",
     "field a.v1.M.x_bytes = 1: int64, json xBytes"},
    {"presence lost", "optional string", "string",
     "field a.v1.M.name = 2: optional string, json name"},
    {"made repeated", "int64 x_bytes", "repeated int64 x_bytes",
     "field a.v1.M.x_bytes = 1: int64, json xBytes"},
    {"oneof renamed", "oneof kind { E e = 3; M m = 4; }", "oneof kind { E e = 3; } M m = 4;",
     "field a.v1.M.m = 4: oneof kind a.v1.M, json m"},
    {"map value retyped", "map<string, double>", "map<string, int64>",
     "field a.v1.M.rates = 6: map<string, double>, json rates"},
    {"enum value removed", " E_ON = 1;", "", "value a.v1.E.E_ON = 1"},
    {"enum value renumbered", "E_ON = 1", "E_ON = 2", "value a.v1.E.E_ON = 1"},
    {"method removed", " rpc Put(M) returns (M);", "", "rpc a.v1.S.Put(a.v1.M) returns (a.v1.M)"},
    {"method made streaming", "rpc Put(M) returns (M)", "rpc Put(M) returns (stream M)",
     "rpc a.v1.S.Put(a.v1.M) returns (a.v1.M)"},
    // Additions.
    {"field added", "int64 x_bytes = 1;", "int64 x_bytes = 1; bool z = 7;", ""},
    {"enum value added", "E_ON = 1;", "E_ON = 1; E_OFF = 2;", ""},
    {"method added", "service S {", "service S { rpc List(M) returns (M);", ""},
    {"presence gained", "int64 x_bytes", "optional int64 x_bytes", ""},
    {"comment added", "int64 x_bytes", "// Bytes.\n  int64 x_bytes", ""},
};

TEST(ContractTest, NoticesEachBrokenPromise) {
  for (const Change& change : kChanges) {
    SCOPED_TRACE(change.name);
    const std::string after = absl::StrReplaceAll(kBefore, {{change.from, change.to}});
    ASSERT_NE(after, kBefore);
    EXPECT_EQ(absl::StrJoin(Lost(ContractOfText(kBefore), ContractOfText(after)), "\n"),
              change.lost);
  }
}

}  // namespace
}  // namespace plimsoll
