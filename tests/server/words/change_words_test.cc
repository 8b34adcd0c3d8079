// Changes and times in words.
#include "server/words/change_words.h"

#include <gtest/gtest.h>

#include <string>

namespace plimsoll {
namespace {

v1::Candidate WithChange(const std::string& field, const std::string& from, const std::string& to) {
  v1::Candidate candidate;
  v1::Change* change = candidate.add_changes();
  change->set_field(field);
  change->set_from(from);
  change->set_to(to);
  return candidate;
}

std::string Words(const std::string& field, const std::string& from, const std::string& to) {
  return ChangeWords(WithChange(field, from, to), Glyphs::kUnicode);
}

TEST(ChangeWordsTest, SaysEachKindOfChange) {
  EXPECT_EQ(Words("parallelism.zero_stage", "1", "3"), "ZeRO 1 → 3");
  EXPECT_EQ(Words("training.recompute.mode", "none", "full"), "recompute full");
  EXPECT_EQ(Words("training.recompute", "none", "every-nth 2"), "recompute every-nth 2");
  EXPECT_EQ(Words("parallelism.sequence_parallel", "false", "true"), "sequence parallel");
  EXPECT_EQ(Words("parallelism.sequence_parallel", "true", "false"), "no sequence parallel");
  EXPECT_EQ(Words("parallelism.shard_group_size", "", "8"), "shard group 8");
  EXPECT_EQ(Words("parallelism.pipeline_layout", "5,5", ""), "layers per stage default");
  EXPECT_EQ(Words("cluster.gpu", "a10", "h200-141gb-sxm"), "GPU h200-141gb-sxm");
  EXPECT_EQ(Words("parallelism.ring_size", "1", "2"), "ring size 1 → 2") << "of a later version";
  EXPECT_EQ(ChangeWords({}, Glyphs::kUnicode), "as asked");
}

TEST(ChangeWordsTest, LeavesOutWhatFollows) {
  v1::Candidate candidate = WithChange("parallelism.data_parallel_size", "8", "4");
  EXPECT_EQ(ChangeWords(candidate, Glyphs::kAscii), "DP 8 -> 4");
  candidate.MergeFrom(WithChange("parallelism.tensor_parallel_size", "1", "2"));
  EXPECT_EQ(ChangeWords(candidate, Glyphs::kAscii), "TP 1 -> 2");
}

TEST(PaceTest, ComparesTimes) {
  EXPECT_EQ(PaceWords(1.04, 1), "4 % slower");
  EXPECT_EQ(PaceWords(0.7, 1), "30 % less time");
  EXPECT_EQ(PaceWords(2.13, 1), "2.1 times as long");
  EXPECT_EQ(PaceWords(1.001, 1), "as fast");
}

}  // namespace
}  // namespace plimsoll
