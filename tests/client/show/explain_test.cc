// The ledger and the trace as text, in ASCII, wide and narrow.
#include "client/show/explain.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "client/io/text.h"

namespace plimsoll {
namespace {

const Terminal kWide{.width = 140, .unicode = false, .color = false};
const Terminal kNarrow{.width = 60, .unicode = false, .color = false};

v1::EstimateMemoryResponse Parse(const std::string& text) {
  v1::EstimateMemoryResponse response;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &response));
  return response;
}

constexpr char kLedger[] = R"(
  ledger { block: "layer" tensor: "small" role: ROLE_ACTIVATION dtype: "bf16" shape: "[B, S]"
           extents: "[1, 512]" bytes: 1024 count: 2 }
  ledger { block: "layer" tensor: "large" role: ROLE_ACTIVATION dtype: "fp32" shape: "[B, S, H/tp]"
           extents: "[1, 512, 512]" bytes: 1048576 count: 4 shrunk_by: "tensor-parallel"
           shrunk_by: "recompute" lifetime: "up .. backward of act" }
  ledger { block: "states" tensor: "w" role: ROLE_WEIGHT dtype: "bf16" shape: "[H]" extents: "[H]"
           bytes: 512 count: 1 })";

TEST(ExplainTest, AHeadingForEachRoleTheLargestFirst) {
  EXPECT_EQ(ExplainLedger(Parse(kLedger), kWide),
            "\n"
            "W weights, 512 B\n"
            " 512 B  = 1 x 512 B  bf16  states w  [H]\n"
            "\n"
            "A activations, 4.0 MiB\n"
            " 4.0 MiB  = 4 x 1.0 MiB  fp32  layer large  [B, S, H/tp] = [1, 512, 512]; shrunk by "
            "tensor-parallel, recompute; up .. backward of act\n"
            " 2.0 KiB  = 2 x 1.0 KiB  bf16  layer small  [B, S] = [1, 512]\n");
}

// Where there is no room, what a line says beyond its figures stands below it.
TEST(ExplainTest, NarrowTerminalsWrap) {
  const std::string text = ExplainLedger(Parse(kLedger), kNarrow);
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    EXPECT_LE(DisplayWidth(line), kNarrow.width) << line;
  }
  for (const char* word : {"large", "[1, 512, 512]", "tensor-parallel, recompute", "backward of"}) {
    EXPECT_NE(text.find(word), std::string::npos) << word;
  }
}

TEST(ExplainTest, Trace) {
  EXPECT_EQ(ExplainTrace(Parse(R"(trace { pass: "lower" state_bytes: 2048 activation_bytes: 0 }
                                  trace { pass: "zero" state_bytes: 1024 activation_bytes: 3 })"),
                         kWide),
            "\nWhat each pass left on the fullest GPU\n"
            "         states  one micro-batch\n"
            " lower  2.0 KiB              0 B\n"
            " zero   1.0 KiB              3 B\n");
}

TEST(ExplainTest, NothingWasAskedFor) {
  EXPECT_EQ(ExplainLedger({}, kWide), "");
  EXPECT_EQ(ExplainTrace({}, kWide), "");
}

// What a server says cannot steer the terminal.
TEST(ExplainTest, ControlCharactersAreDropped) {
  const std::string text =
      ExplainLedger(Parse(R"(ledger { block: "a\033[2J" tensor: "b\r\n" role: ROLE_LOSS
                             dtype: "\007" shape: "\033" lifetime: "\b" bytes: 1 count: 1 })"),
                    kWide) +
      ExplainTrace(Parse(R"(trace { pass: "\033]0;x\007" })"), kWide);
  for (const char c : text) EXPECT_TRUE(c == '\n' || (c >= ' ' && c < 0x7F)) << int{c};
}

}  // namespace
}  // namespace plimsoll
