// Jobs that people really run: each recommend/<name>.yaml is a job, with a comment
// that says what a sensible answer is; <name>.txt is what `plimsoll recommend`
// prints for it, with the flags of its line "# flags:".
//
//   UPDATE_GOLDENS=1 recommend_golden_test    rewrites what differs
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/client/process.h"

namespace plimsoll {
namespace {

std::string Read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::filesystem::path> Files(const std::string& extension) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(PLIMSOLL_RECOMMEND_FOLDER)) {
    if (entry.path().extension() == extension) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// The words of the line "# flags: ...", if there is one.
std::vector<std::string> Flags(const std::string& job) {
  std::vector<std::string> flags;
  std::istringstream lines(job);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("# flags: ", 0) != 0) continue;
    std::istringstream words(line.substr(9));
    for (std::string word; words >> word;) flags.push_back(word);
  }
  return flags;
}

ProcessResult Recommend(const std::filesystem::path& path, const std::vector<std::string>& more) {
  std::vector<std::string> words = {"recommend", path.string(), "--timeout", "600s"};
  for (const std::string& flag : Flags(Read(path))) words.push_back(flag);
  words.insert(words.end(), more.begin(), more.end());
  return Plimsoll(words, "", {"COLUMNS=120"});
}

std::string Name(const testing::TestParamInfo<std::filesystem::path>& info) {
  return info.param.stem().string();
}

class RecommendGoldenTest : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(RecommendGoldenTest, GetsItsAnswer) {
  const ProcessResult result = Recommend(GetParam(), {"--explain"});
  EXPECT_TRUE(result.code == 0 || result.code == 3) << result.err;
  std::filesystem::path golden = GetParam();
  golden.replace_extension(".txt");
  const bool update = std::getenv("UPDATE_GOLDENS") != nullptr;
  if (update) std::ofstream(golden, std::ios::binary) << result.out;
  EXPECT_EQ(Read(golden), result.out) << "UPDATE_GOLDENS=1 rewrites it";
}

// What is recommended is what it is said to be: the job file that it makes fits.
TEST_P(RecommendGoldenTest, TheBestFitsWhereItIsEstimated) {
  const ProcessResult best = Recommend(GetParam(), {"-o", "yaml"});
  if (best.code == 3) {
    EXPECT_EQ(best.out, "");
    return;
  }
  ASSERT_EQ(best.code, 0) << best.err;
  const ProcessResult estimate = Plimsoll({"estimate", "-"}, best.out);
  EXPECT_EQ(estimate.code, 0) << estimate.out << estimate.err << best.out;
}

TEST_P(RecommendGoldenTest, SaysWhyItExists) {
  EXPECT_EQ(Read(GetParam()).rfind("# ", 0), 0u) << GetParam();
}

INSTANTIATE_TEST_SUITE_P(Jobs, RecommendGoldenTest, testing::ValuesIn(Files(".yaml")), Name);

TEST(RecommendGoldenTest, TenJobsAndNoGoldenWithoutOne) {
  EXPECT_GE(Files(".yaml").size(), 10u);
  for (std::filesystem::path golden : Files(".txt")) {
    EXPECT_TRUE(std::filesystem::exists(golden.replace_extension(".yaml"))) << golden;
  }
}

}  // namespace
}  // namespace plimsoll
