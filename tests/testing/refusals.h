// A table of bad requests, each with exactly the words that it gets.
#ifndef PLIMSOLL_TESTS_TESTING_REFUSALS_H_
#define PLIMSOLL_TESTS_TESTING_REFUSALS_H_

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {

struct Refusal {
  const char* name;
  void (*edit)(JobSpec&);
  std::vector<std::string> lines;  // none where the job is valid
};

// Each row's edit of `job` gets exactly the row's lines, in order.
inline void ExpectRefusals(const JobSpec& job, const std::vector<Refusal>& rows) {
  ASSERT_THAT(Refusals(job), ::testing::IsEmpty());
  for (const Refusal& row : rows) {
    JobSpec edited = job;
    row.edit(edited);
    EXPECT_THAT(Refusals(edited), ::testing::ElementsAreArray(row.lines)) << row.name;
  }
}

// Sequences that ranks split get the one line.
inline void ExpectNoPartsOfSequences(const JobSpec& job, const std::string& line) {
  ExpectRefusals(job, {{"parts of sequences",
                        [](JobSpec& j) {
                          j.parallelism.context_parallel_size = 2;
                          j.parallelism.data_parallel_size = 2;
                          j.training.sequence_length = 64;
                        },
                        {line}}});
}

}  // namespace plimsoll

#endif  // PLIMSOLL_TESTS_TESTING_REFUSALS_H_
