// The completion script in a real bash.
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/client/process.h"

namespace plimsoll {
namespace {

using Words = std::vector<std::string>;

// What bash offers after `line`, whose last word is being typed.
Words Complete(const Words& line) {
  std::string words;
  for (const std::string& word : line) words += " '" + word + "'";
  const std::string script = std::string("source <('") + PLIMSOLL +
                             "' completion bash) || exit 9; COMP_WORDS=('" + PLIMSOLL + "'" +
                             words + "); COMP_CWORD=" + std::to_string(line.size()) +
                             "; _plimsoll; printf '%s\\n' \"${COMPREPLY[@]}\"";
  const ProcessResult result = RunProcess({"bash", "--norc", "-c", script}, "", {"BASH_ENV="});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  Words offered;
  std::istringstream lines(result.out);
  for (std::string word; std::getline(lines, word);) {
    if (!word.empty()) offered.push_back(word);
  }
  return offered;
}

TEST(CompletionTest, OffersCommands) {
  EXPECT_EQ(Complete({"e"}), Words{"estimate"});
  EXPECT_EQ(Complete({"rec"}), Words{"recommend"});
  EXPECT_EQ(Complete({"mo"}), Words{"models"});
  EXPECT_EQ(Complete({"se"}), Words{"serve"});
}

TEST(CompletionTest, OffersFlagsOfTheCommand) {
  EXPECT_EQ(Complete({"estimate", "--tensor"}), Words{"--tensor-parallel-size"});
  EXPECT_EQ(Complete({"recommend", "--tensor"}), Words{"--tensor-parallel-size"});
  EXPECT_EQ(Complete({"recommend", "--gpu-c"}), Words{"--gpu-count"});
  EXPECT_EQ(Complete({"gpus", "--tensor"}), Words());
  EXPECT_EQ(Complete({"serve", "--drain-d"}), Words{"--drain-delay-ms"});
}

TEST(CompletionTest, OffersChoices) {
  EXPECT_EQ(Complete({"estimate", "-o", "j"}), (Words{"json", "jsonl"}));
  EXPECT_EQ(Complete({"gpus", "--output", "y"}), Words{"yaml"});
  EXPECT_EQ(Complete({"estimate", "--zero-stage", ""}), (Words{"0", "1", "2", "3"}));
  EXPECT_EQ(Complete({"recommend", "--objective", "f"}), (Words{"fastest", "fewest-gpus"}));
  EXPECT_EQ(Complete({"completion", "b"}), Words{"bash"});
  EXPECT_EQ(Complete({"estimate", "--detail", ""}), (Words{"summary", "replay"}));
}

TEST(CompletionTest, OffersTheCatalog) {
  EXPECT_EQ(Complete({"estimate", "--gpu", "h100-80gb-s"}), Words{"h100-80gb-sxm"});
  EXPECT_EQ(Complete({"recommend", "--gpu", "h100-80gb-s"}), Words{"h100-80gb-sxm"});
  EXPECT_EQ(Complete({"estimate", "--model", "llama-3.1-8"}), Words{"llama-3.1-8b"});
}

TEST(CompletionTest, OffersFiles) {
  const TemporaryFile file("{}", "job.yaml");
  EXPECT_EQ(Complete({"estimate", file.folder() + "/j"}), Words{file.path()});
  EXPECT_EQ(Complete({"estimate", "--jobs", file.folder() + "/j"}), Words{file.path()});
  EXPECT_EQ(Complete({"recommend", "--plot", file.folder() + "/j"}), Words{file.path()});
  EXPECT_EQ(Complete({"estimate", "--timeline", file.folder() + "/j"}), Words{file.path()});
}

}  // namespace
}  // namespace plimsoll
