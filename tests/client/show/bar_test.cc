// Bars and rulers cell by cell, in ASCII.
#include "client/show/bar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "client/io/text.h"
#include "client/show/role_style.h"

namespace plimsoll {
namespace {

constexpr int64_t kGib = int64_t{1} << 30;
const Terminal kAscii{.width = 80, .unicode = false, .color = false};

struct Part {
  v1::Role role;
  int64_t gib;
};

v1::RankMemory Rank(const std::vector<Part>& parts, int64_t bound_gib) {
  v1::RankMemory rank;
  for (const Part& part : parts) {
    v1::RoleBytes* const bytes = rank.add_breakdown();
    bytes->set_role(part.role);
    bytes->set_bytes(part.gib * kGib);
  }
  rank.mutable_device()->set_bound_bytes(bound_gib * kGib);
  return rank;
}

BarScale Scale(int cells, int64_t full_gib, int64_t capacity_gib) {
  return {
      .cell_count = cells, .full_bytes = full_gib * kGib, .capacity_bytes = capacity_gib * kGib};
}

TEST(BarTest, Cells) {
  constexpr auto kWeights = v1::ROLE_WEIGHT;
  constexpr auto kLoss = v1::ROLE_LOSS;
  const struct {
    const char* name;
    std::vector<Part> parts;
    int64_t bound_gib;
    BarScale scale;
    const char* bar;
  } cases[] = {
      {"a cell for each GiB", {{kWeights, 3}, {kLoss, 2}}, 7, Scale(10, 10, 9), "WWWLL..: |"},
      {"nothing at all", {}, 0, Scale(10, 10, 9), ":        |"},
      {"as full as it is", {{kWeights, 10}}, 10, Scale(10, 10, 9), "WWWWWWWWW|"},
      {"the bound in the roles", {{kWeights, 8}}, 4, Scale(10, 10, 9), "WWWW:WWW |"},
      {"capacity wins over the bound", {{kWeights, 2}}, 9, Scale(10, 10, 9), "WW.......|"},
      {"beyond the right end", {{kWeights, 30}}, 40, Scale(10, 10, 5), "WWWWW|WWW:"},
      {"half a cell is rounded up", {{kWeights, 1}}, 6, Scale(5, 10, 9), "W..:|"},
      {"less than half shows nothing", {{kWeights, 1}, {kLoss, 4}}, 16, Scale(5, 20, 19), "L...|"},
  };
  for (const auto& c : cases) {
    std::string bar = DrawBar(Rank(c.parts, c.bound_gib), c.scale, kAscii);
    EXPECT_EQ(DisplayWidth(bar), c.scale.cell_count) << c.name;
    EXPECT_EQ(bar, c.bar) << c.name;
  }
}

TEST(BarTest, EveryRoleHasALetterAndAPatternOfItsOwn) {
  const Terminal plain{.width = 80, .unicode = true, .color = false};
  std::vector<std::string> letters;
  std::vector<std::string> patterns;
  for (int role = v1::ROLE_WEIGHT; role <= v1::Role_MAX; ++role) {
    letters.push_back(RoleCell(static_cast<v1::Role>(role), kAscii));
    patterns.push_back(RoleCell(static_cast<v1::Role>(role), plain));
    EXPECT_EQ(DisplayWidth(patterns.back()), 1) << role;
    EXPECT_NE(RoleName(static_cast<v1::Role>(role)), RoleName(v1::ROLE_UNSPECIFIED)) << role;
  }
  for (std::vector<std::string>* cells : {&letters, &patterns}) {
    std::sort(cells->begin(), cells->end());
    EXPECT_EQ(std::adjacent_find(cells->begin(), cells->end()), cells->end());
  }
}

TEST(BarTest, ColouredBarsAreAsWide) {
  const Terminal coloured{.width = 80, .unicode = true, .color = true};
  const v1::RankMemory rank = Rank({{v1::ROLE_WEIGHT, 3}, {v1::ROLE_NCCL, 2}}, 7);
  EXPECT_EQ(DisplayWidth(DrawBar(rank, Scale(10, 10, 9), coloured)), 10);
}

TEST(RulerTest, Figures) {
  const struct {
    BarScale scale;
    const char* ruler;
  } cases[] = {
      {Scale(40, 80, 80), "0 GiB     20        40        60       80"},
      {Scale(40, 40, 30), "0 GiB     10        20        30       40"},
      {Scale(20, 10, 10), "0 GiB     5        10"},
  };
  for (const auto& c : cases) EXPECT_EQ(DrawRuler(c.scale), c.ruler);
}

// Figures never run into each other, whatever the scale.
TEST(RulerTest, FiguresStandApart) {
  for (const int cells : {20, 40, 60, 100}) {
    for (int64_t full = 1; full < 3000; full = full * 3 / 2 + 1) {
      for (const int64_t capacity : {full / 2 + 1, full * 3 / 4 + 1, full}) {
        const std::string ruler = DrawRuler(Scale(cells, full, capacity));
        EXPECT_EQ(ruler.rfind("0 GiB", 0), 0u);
        EXPECT_LE(DisplayWidth(ruler), cells + 6) << ruler;
        for (const char c : ruler.substr(5))
          EXPECT_TRUE(c == ' ' || c == '.' || isdigit(c)) << ruler;
      }
    }
  }
}

}  // namespace
}  // namespace plimsoll
