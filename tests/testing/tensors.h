// What tests of passes ask of a block's tensors, and jobs that split a sequence.
#ifndef PLIMSOLL_TESTS_TESTING_TENSORS_H_
#define PLIMSOLL_TESTS_TESTING_TENSORS_H_

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {

// A tensor by name, and its shape in symbols and in numbers.
struct ShapeRow {
  const char* name;
  const char* symbols;
  const char* numbers;
};

inline void ExpectShapes(const Block& block, const std::vector<ShapeRow>& rows) {
  for (const ShapeRow& row : rows) {
    EXPECT_EQ(InSymbols(FindTensor(block, row.name).shape), row.symbols) << row.name;
    EXPECT_EQ(InNumbers(FindTensor(block, row.name).shape), row.numbers) << row.name;
  }
}

inline std::vector<std::string> Names(const Block& block, const Ids& ids) {
  std::vector<std::string> names;
  for (const TensorId id : ids) names.emplace_back(block.tensors[id].name);
  return names;
}

// SmallJob() over ranks that share its sequence: B 2, S 32, H 64, A 64, C 32 of two heads, N 4,
// D 16, F 128, V 256.
inline JobSpec OverContext(absl::string_view framework, int64_t ranks,
                           const char* method = "ulysses") {
  JobSpec job = With(SmallJob(), framework);
  job.parallelism.context_parallel_size = ranks;
  job.parallelism.context_parallel_method = method;
  job.cluster.gpu_count = ranks;
  return job;
}

// The program of such a job by Ulysses.
inline Program Exchanged(int64_t ranks, absl::string_view framework = "deepspeed") {
  return ProgramAfter(Valid(OverContext(framework, ranks)), PassId::kContextParallel);
}

}  // namespace plimsoll

#endif  // PLIMSOLL_TESTS_TESTING_TENSORS_H_
