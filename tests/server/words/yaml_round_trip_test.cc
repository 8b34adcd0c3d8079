// Random messages of every type that the API has, written as YAML and read again.
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <random>
#include <string>

#include "plimsoll/v1/job.pb.h"
#include "plimsoll/v1/planner.pb.h"
#include "server/words/yaml_message.h"
#include "server/words/yaml_writer.h"
#include "tests/testing/random_message.h"

namespace plimsoll {
namespace {

using ::google::protobuf::Message;
using ::google::protobuf::util::MessageDifferencer;

// Returns what is wrong with reading `yaml` into `message`, or nothing.
std::string ReadInto(const std::string& yaml, Message* message) {
  YamlReader reader(std::nullopt);
  reader.Read(YAML::Load(yaml), "job", message);
  return ToText(reader.violations());
}

template <typename Type>
void ExpectReadsBack(const Type& written, const std::string& yaml) {
  Type read;
  ASSERT_EQ(ReadInto(yaml, &read), "") << yaml;
  EXPECT_TRUE(MessageDifferencer::Equals(read, written)) << yaml;
}

TEST(YamlRoundTripTest, Jobs) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 120; ++i) {
    v1::Job job;
    FillAtRandom(random, &job);
    ExpectReadsBack(job, ToYaml(job));
    // Of a job file lists with nothing in them are left out: they say nothing.
    v1::Job read;
    ASSERT_EQ(ReadInto(ToJobFile(job), &read), "");
    EXPECT_EQ(ToYaml(read), ToYaml(job));
  }
}

TEST(YamlRoundTripTest, WhatIsWrittenTwiceIsTheSame) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 40; ++i) {
    v1::Job job;
    FillAtRandom(random, &job);
    const std::string once = ToJobFile(job);
    v1::Job read;
    ASSERT_EQ(ReadInto(once, &read), "");
    EXPECT_EQ(ToJobFile(read), once);
  }
}

// Keys that YAML gives a meaning, or takes for no text.
TEST(YamlRoundTripTest, KeysStayTexts) {
  for (const char* key :
       {"<<", "~",  "null", "true", "2.10", "1e5", "",   " ", "a: b",       "- a", "#", "*x",
        "&x", "!x", "?",    "? a",  "[x]",  "{x}", "\"", "'", "two\nlines", "=",   "é"}) {
    v1::Job job;
    (*job.mutable_runtime()->mutable_versions())[key] = "1";
    auto& fields = *job.mutable_model()->mutable_hf_config()->mutable_fields();
    fields[key].set_number_value(2);
    (*fields["inside"].mutable_struct_value()->mutable_fields())[key].set_string_value("x");
    ExpectReadsBack(job, ToYaml(job));
  }
}

// Values without a schema: what looks like another kind is quoted.
TEST(YamlRoundTripTest, ValuesKeepTheirKind) {
  for (const char* text :
       {"<<",         "=",   "~",     "null",  "Null", "NULL",  "true", "True", "yes",   "No",
        "off",        "y",   "0",     "-1",    "+1",   "1.",    ".5",   "1e5",  "1e400", "-1e-400",
        "0x1F",       "0o7", "1_000", "12:30", ".inf", "-.Inf", ".nan", "nan",  "inf",   "infinity",
        "2026-11-24", "",    " 1",    "1 ",    "- 1",  "1\n",   "\t"}) {
    v1::Job job;
    auto& fields = *job.mutable_model()->mutable_hf_config()->mutable_fields();
    fields["text"].set_string_value(text);
    fields["list"].mutable_list_value()->add_values()->set_string_value(text);
    ExpectReadsBack(job, ToYaml(job));
  }
}

TEST(YamlRoundTripTest, NumbersAreExact) {
  v1::Job job;
  auto& fields = *job.mutable_model()->mutable_hf_config()->mutable_fields();
  auto& list = *fields["numbers"].mutable_list_value();
  for (const double number : {0.0, -0.0, 1.0, 0.1, 1e-5, 1e21, 1.5e300, 5e-324, 9007199254740993.0,
                              123456789.123456789, -2.5e-10}) {
    list.add_values()->set_number_value(number);
  }
  ExpectReadsBack(job, ToYaml(job));
  for (const int64_t integer : {INT64_MIN, INT64_MAX, int64_t{0}, int64_t{-1}}) {
    v1::Job numbers;
    numbers.mutable_training()->set_sequence_length(integer);
    ExpectReadsBack(numbers, ToYaml(numbers));
  }
}

}  // namespace
}  // namespace plimsoll
