// Sizes as people write them.
#include "server/words/written_size.h"

#include <gtest/gtest.h>

#include <string>

namespace plimsoll {
namespace {

struct Row {
  const char* field;
  const char* text;
  const char* number;  // or the text itself
};

TEST(WrittenSizeTest, IsReadInTheUnitOfItsField) {
  const Row kRows[] = {
      {"training.sequence_length", "8k", "8192"},
      {"training.sequence_length", "8K", "8192"},
      {"training.sequence_length", "128K", "131072"},
      {"training.sequence_length", "1m", "1048576"},
      {"training.sequence_length", "0.5k", "512"},
      {"training.sequence_length", "4096", "4096"},
      {"model.transformer.position_count", "2Ki", "2048"},
      {"cluster.gpu_memory_bytes", "80GiB", "85899345920"},
      {"cluster.gpu_memory_bytes", "79.5 gib", "85362475008"},
      {"cluster.gpu_memory_bytes", "79.18GiB", "85018877624"},
      {"cluster.gpu_memory_bytes", "85899345920 B", "85899345920"},
      {"cluster.reserved_for_others_bytes", "512MiB", "536870912"},
      {"cluster.interconnect_bytes_per_second", "450GB/s", "450000000000"},
      {"cluster.network_bytes_per_second", "50 GB/s", "50000000000"},
      {"cluster.network_bytes_per_second", "1GiB/s", "1073741824"},
      // Nobody's: for the reader of integers to refuse.
      {"training.sequence_length", "8e3", "8e3"},
      {"training.sequence_length", "k", "k"},
      {"training.sequence_length", "-8k", "-8k"},
      {"training.sequence_length", "", ""},
      {"training.global_batch_size", "1k", "1k"},
      {"model.transformer.vocab_size", "32k", "32k"},
      {"cluster.gpu_memory_bytes", "80 GPUs", "80 GPUs"},
  };
  for (const Row& row : kRows) {
    const auto number = ReadWrittenSize(row.field, row.text);
    ASSERT_TRUE(number.ok()) << row.text << ": " << number.status();
    EXPECT_EQ(*number, row.number) << row.field << " " << row.text;
  }
}

TEST(WrittenSizeTest, RefusesWhatMayMeanTwoThings) {
  const Row kRows[] = {
      {"cluster.gpu_memory_bytes", "80GB",
       "must be bytes, or as 80GiB: GB is 10^9 bytes to some and 2^30 to others"},
      {"cluster.gpu_memory_bytes", "80g",
       "must be bytes, or as 80GiB: GB is 10^9 bytes to some and 2^30 to others"},
      {"cluster.network_bytes_per_second", "400Gb/s", "must be bytes per second, as 50GB/s"},
      {"training.sequence_length", "8kb", "must be a number of tokens, as 8192 or 8k"},
      {"training.sequence_length", "1.0001k", "must be a whole number"},
      {"cluster.gpu_memory_bytes", "99999999TiB", "must be a whole number"},
  };
  for (const Row& row : kRows) {
    EXPECT_EQ(std::string(ReadWrittenSize(row.field, row.text).status().message()), row.number)
        << row.text;
  }
}

}  // namespace
}  // namespace plimsoll
