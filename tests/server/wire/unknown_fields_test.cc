// Field numbers that are not known are found wherever they stand.
#include "server/wire/unknown_fields.h"

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plimsoll/v1/planner.pb.h"
#include "server/convert/convert.h"
#include "tests/testing/random_message.h"

namespace plimsoll {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using testing::ElementsAre;
using testing::IsEmpty;
using Path = std::vector<const FieldDescriptor*>;

// The way to each message of a type and below it, the type's own included.
void FindPaths(const google::protobuf::Descriptor& type, const Path& path,
               std::vector<Path>* paths) {
  paths->push_back(path);
  if (&type == google::protobuf::Struct::descriptor()) return;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* const field = type.field(i);
    if (field->message_type() == nullptr || field->is_map()) continue;
    Path below = path;
    below.push_back(field);
    FindPaths(*field->message_type(), below, paths);
  }
}

Message* Below(const Path& path, Message* message) {
  for (const FieldDescriptor* const field : path) {
    message = message->GetReflection()->MutableMessage(message, field);
  }
  return message;
}

std::string NameOf(const Path& path) {
  std::string name;
  for (const FieldDescriptor* const field : path) {
    absl::StrAppend(&name, name.empty() ? "" : ".", field->name());
  }
  return name.empty() ? "request" : name;
}

std::vector<Path> Paths() {
  std::vector<Path> paths;
  FindPaths(*v1::EstimateMemoryRequest::descriptor(), {}, &paths);
  return paths;
}

std::vector<std::string> Lines(const Violations& violations) {
  std::vector<std::string> lines;
  for (const Violation& violation : violations) lines.push_back(ToText(violation));
  return lines;
}

TEST(UnknownFieldsTest, AreFoundInEveryMessageOfARequest) {
  EXPECT_GE(Paths().size(), 14u);
  for (const Path& path : Paths()) {
    v1::EstimateMemoryRequest request;
    Message* const message = Below(path, &request);
    message->GetReflection()->MutableUnknownFields(message)->AddVarint(999, 1);
    EXPECT_TRUE(MayHaveUnknownFields(request)) << NameOf(path);
    EXPECT_THAT(
        Lines(FindUnknownFields(request, "request")),
        ElementsAre(absl::StrCat(NameOf(path), ": field number 999; not known to version 0.1.0")));
  }
}

TEST(UnknownFieldsTest, AreNowhereInWhatIsKnown) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    v1::EstimateMemoryRequest request;
    FillAtRandom(random, &request);
    EXPECT_THAT(FindUnknownFields(request, "request"), IsEmpty());
    request.mutable_job()->mutable_model()->clear_hf_config();
    EXPECT_FALSE(MayHaveUnknownFields(request));
  }
}

TEST(UnknownFieldsTest, AreToldOncePerNumberAndElement) {
  v1::BatchEstimateMemoryRequest batch;
  batch.add_requests();
  Message* const second = batch.add_requests();
  auto* const unknown = second->GetReflection()->MutableUnknownFields(second);
  for (const int number : {70, 60, 70}) unknown->AddVarint(number, 1);
  EXPECT_THAT(Lines(FindUnknownFields(batch, "request")),
              ElementsAre("requests[1]: field number 60; not known to version 0.1.0",
                          "requests[1]: field number 70; not known to version 0.1.0"));
}

TEST(UnknownFieldsTest, OfManyAreSomeHundreds) {
  v1::EstimateMemoryRequest request;
  auto* const unknown = request.GetReflection()->MutableUnknownFields(&request);
  for (int number = 1000; number < 21000; ++number) unknown->AddVarint(number, 1);
  EXPECT_EQ(FindUnknownFields(request, "request").size(), 256u);
}

}  // namespace
}  // namespace plimsoll
