// Flags that are other names of fields, and flags that are nobody's.
#include "client/job/flag_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/job/job_flags.h"

namespace plimsoll {
namespace {

// The line of flags that another stands for, or why there is none.
std::string Translated(const std::string& line) {
  CLI::App app;
  CLI::App* const command = app.add_subcommand("estimate", "");
  std::vector<JobSetting> settings;
  AddJobFlags(command, &settings);
  bool explain = false;
  command->add_flag("--explain", explain, "");
  app.add_subcommand("gpus", "");
  const auto flags = TranslateFlags(app, absl::StrSplit(line, ' ', absl::SkipEmpty()));
  return flags.ok() ? absl::StrJoin(*flags, " ") : std::string(flags.status().message());
}

TEST(FlagWordsTest, AreWrittenInTheFlagsThatThereAre) {
  const struct {
    const char* line;
    const char* translated;
  } kRows[] = {
      {"", ""},
      {"estimate job.yaml --zero-stage 3", "estimate job.yaml --zero-stage 3"},
      {"estimate --seq-len 8k", "estimate --set seq-len=8k"},
      {"estimate --seq_len=8k job.yaml", "estimate --set seq_len=8k job.yaml"},
      {"estimate --zero_stage 3", "estimate --zero-stage 3"},
      {"estimate --zero_stage=3", "estimate --zero-stage=3"},
      {"estimate --gradient-checkpointing job.yaml",
       "estimate --set gradient-checkpointing=true job.yaml"},
      {"estimate --gradient_checkpointing false --explain",
       "estimate --set gradient_checkpointing=false --explain"},
      {"estimate --tp 2 --pp 4", "estimate --set tp=2 --set pp=4"},
      {"estimate --cpu-offload", "estimate --set cpu-offload=true"},
      {"estimate --batch-size 8", "estimate --set batch-size=8"},
      {"estimate --fsdp full_shard", "estimate --set fsdp=full_shard"},
      {"estimate --fsdp", "estimate --set fsdp=true"},
      // A value is left alone, whatever it looks like.
      {"estimate --model --seq-len", "estimate --model --seq-len"},
      {"estimate --set seq-len=8k", "estimate --set seq-len=8k"},
      // Another command's.
      {"gpus --seq-len 8k", "gpus --seq-len 8k"},
      {"nothing --seq-len 8k", "nothing --seq-len 8k"},
      // Nobody's, and near nothing: the parser refuses it.
      {"estimate --colour", "estimate --colour"},
      {"estimate -x", "estimate -x"},
  };
  for (const auto& row : kRows) EXPECT_EQ(Translated(row.line), row.translated) << row.line;
}

TEST(FlagWordsTest, NameTheNearest) {
  EXPECT_EQ(Translated("estimate --sequence-lenght 8k"),
            "--sequence-lenght: no such flag, did you mean --sequence-length");
  EXPECT_EQ(Translated("estimate --zero-stag=3"),
            "--zero-stag: no such flag, did you mean --zero-stage");
  EXPECT_EQ(Translated("estimate --seq-len"), "--seq-len: nothing; must have a value");
  EXPECT_EQ(Translated("estimate --seq-len --explain"), "--seq-len: nothing; must have a value");
}

}  // namespace
}  // namespace plimsoll
