// The answer as a picture: each case of tables/ at several widths, with and
// without block characters. UPDATE_GOLDENS=1 rewrites the pictures; look at
// them before you commit them.
#include "client/show/table.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "client/io/text.h"
#include "client/show/bar.h"

namespace plimsoll {
namespace {

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

v1::EstimateMemoryResponse ReadCase(const std::string& name) {
  v1::EstimateMemoryResponse response;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      ReadFile(std::filesystem::path(TABLES) / (name + ".txtpb")), &response));
  return response;
}

void CompareWithGolden(const std::string& name, const std::string& text) {
  const std::filesystem::path path = std::filesystem::path(TABLES) / name;
  if (std::getenv("UPDATE_GOLDENS") != nullptr) std::ofstream(path, std::ios::binary) << text;
  EXPECT_EQ(text, ReadFile(path)) << path;
}

std::vector<std::string> CaseNames() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(TABLES)) {
    if (entry.path().extension() == ".txtpb") names.insert(entry.path().stem().string());
  }
  return {names.begin(), names.end()};
}

class TableTest : public testing::TestWithParam<std::string> {};

TEST_P(TableTest, LooksAsBefore) {
  const v1::EstimateMemoryResponse response = ReadCase(GetParam());
  for (const int width : {60, 80, 132}) {
    const Terminal terminal = {.width = width, .unicode = true};
    CompareWithGolden(GetParam() + "." + std::to_string(width) + ".txt",
                      ToTable(response, "h100-80gb-sxm", terminal));
  }
  CompareWithGolden(GetParam() + ".ascii.txt", ToTable(response, "h100-80gb-sxm", Terminal{}));
}

TEST_P(TableTest, StaysWithinTheWidth) {
  const v1::EstimateMemoryResponse response = ReadCase(GetParam());
  for (int width = 60; width <= 160; ++width) {
    std::istringstream lines(ToTable(response, "h100-80gb-sxm", {.width = width, .unicode = true}));
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(DisplayWidth(line), width) << line;
    }
  }
}

TEST_P(TableTest, ColoursChangeNothingElse) {
  const v1::EstimateMemoryResponse response = ReadCase(GetParam());
  const std::string plain = ToTable(response, "x", {.width = 80});
  std::string colored = ToTable(response, "x", {.width = 80, .color = true});
  EXPECT_NE(colored, plain);
  for (size_t at; (at = colored.find('\x1b')) != std::string::npos;) {
    colored.erase(at, colored.find('m', at) - at + 1);
  }
  EXPECT_EQ(colored, plain);
}

TEST_P(TableTest, AsciiIsAscii) {
  for (const char c : ToTable(ReadCase(GetParam()), "x", Terminal{})) {
    EXPECT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << static_cast<int>(c);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, TableTest, testing::ValuesIn(CaseNames()),
                         [](const auto& info) { return info.param; });

TEST(BarTest, CellsFollowCumulativeBytes) {
  v1::RankMemory rank;
  for (const auto& [role, bytes] :
       {std::pair{v1::ROLE_WEIGHT, 24}, {v1::ROLE_LOSS, 1}, {v1::ROLE_ACTIVATION, 25}}) {
    rank.add_breakdown()->set_role(role);
    rank.mutable_breakdown()->rbegin()->set_bytes(bytes);
  }
  rank.mutable_device()->set_bound_bytes(75);
  const BarScale scale = {.cell_count = 10, .full_bytes = 100, .capacity_bytes = 100};
  EXPECT_EQ(DrawBar(rank, scale, Terminal{}), "WWLAA..: |");
}

TEST(RankRangeTest, MergesOnlyNeighbours) {
  const std::vector<RankRange> ranges = MergeAlike(ReadCase("pipeline"));
  EXPECT_EQ(ranges.size(), 3u);
}

TEST(TextTest, ControlCharactersDoNotReachTheTerminal) {
  v1::EstimateMemoryResponse response;
  response.add_warnings()->set_text("a\x1b[2Jb\rc");
  const std::string text = ToTable(response, "\x1b]0;x\x07", Terminal{});
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find('\r'), std::string::npos);
}

TEST(TextTest, FormatsBytesByTheirSize) {
  EXPECT_EQ(FormatBytes(int64_t{80} << 30), "80.0 GiB");
  EXPECT_EQ(FormatBytes(-(int64_t{3} << 29)), "-1.5 GiB");
  EXPECT_EQ(FormatBytes(1 << 29), "512.0 MiB");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(512), "512 B");
  EXPECT_EQ(FormatCount(8030261248), "8.03 B");
  EXPECT_EQ(FormatCount(999), "999");
}

}  // namespace
}  // namespace plimsoll
