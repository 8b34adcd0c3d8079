// Documents that cannot be read, each with what is said of it.
#include "server/words/document.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/words/refusal.h"
#include "tests/testing/test_files.h"

namespace plimsoll {
namespace {

std::string WrongIn(const std::string& text) {
  return std::string(ParseYaml(text, "job.yaml").status().message());
}

TEST(DocumentTest, SaysWhereItIsNoYaml) {
  const struct {
    const char* text;
    const char* wrong;
  } kRows[] = {
      {"a: 1", ""},
      {R"({"a": [1, 2]})", ""},
      {"# a comment\n---\na: 1\n", ""},
      {"a: 1\n...\n", ""},
      {"just text", ""},
      // Not one document.
      {"", "job.yaml: empty; must hold one document"},
      {"# nothing but a comment\n", "job.yaml: empty; must hold one document"},
      {"~", "job.yaml: empty; must hold one document"},
      {"a: 1\n---\nb: 2\n", "job.yaml: several documents; must hold one document"},
      // No YAML.
      {"a: [1, 2", "job.yaml:1:1: end of sequence flow not found; must be YAML or JSON"},
      {"a: {b: 1", "job.yaml:1:1: end of map flow not found; must be YAML or JSON"},
      {"a: 1\n\tb: 2",
       "job.yaml:2:1: illegal tab when looking for indentation; must be YAML or JSON"},
      {"a: *b", "job.yaml:1:4: the referenced anchor is not defined; must be YAML or JSON"},
      {"a: b: c", "job.yaml:1:5: illegal map value; must be YAML or JSON"},
      // Not UTF-8: a byte alone, a surrogate, an end that is missing.
      {"a: \xE9", "job.yaml: in another encoding; must be UTF-8"},
      {"a: \xED\xA0\x80", "job.yaml: in another encoding; must be UTF-8"},
      {"a: \xE2\x82", "job.yaml: in another encoding; must be UTF-8"},
      {"a: \xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80", ""},
  };
  for (const auto& row : kRows) EXPECT_EQ(WrongIn(row.text), row.wrong) << row.text;
}

TEST(DocumentTest, ReadsAFileWhole) {
  const std::string text(300'000, 'x');
  const auto read = ReadDocument(WriteTestFile("document.yaml", text));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, text);
  EXPECT_EQ(*ReadDocument(WriteTestFile("empty.yaml", "")), "");
}

TEST(DocumentTest, TheLargestIsReadAndNoneBeyond) {
  const std::string largest(kMaxDocumentBytes, 'x');
  EXPECT_TRUE(ReadDocument(WriteTestFile("largest.yaml", largest)).ok());
  const std::string path = WriteTestFile("larger.yaml", largest + "x");
  EXPECT_EQ(std::string(ReadDocument(path).status().message()),
            absl::StrCat(path, ": too large; must be at most 1048576 bytes"));
}

TEST(DocumentTest, SaysWhatTheSystemSaid) {
  const std::string missing = TestPath("missing.yaml");
  EXPECT_EQ(std::string(ReadDocument(missing).status().message()),
            absl::StrCat(missing, ": No such file or directory; must be a readable file"));
  const std::string folder = TestPath("folder");
  std::filesystem::create_directory(folder);
  EXPECT_EQ(std::string(ReadDocument(folder).status().message()),
            absl::StrCat(folder, ": Is a directory; must be a readable file"));
}

TEST(DocumentTest, WhatIsWrongIsDataToo) {
  const Violations violations = ViolationsOf(ParseYaml("a: [", "job.yaml").status());
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].field, "job.yaml:1:1");
  EXPECT_EQ(violations[0].code, ViolationCode::kMalformed);
}

}  // namespace
}  // namespace plimsoll
