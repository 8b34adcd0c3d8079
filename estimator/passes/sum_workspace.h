// What a sum over the rows of a matrix holds while it runs.
#ifndef PLIMSOLL_ESTIMATOR_PASSES_SUM_WORKSPACE_H_
#define PLIMSOLL_ESTIMATOR_PASSES_SUM_WORKSPACE_H_

#include <cstdint>

#include "estimator/catalog/catalog.h"
#include "estimator/job/job.h"
#include "estimator/program/program.h"

namespace plimsoll {

// Bytes in which blocks of threads put what they have summed up, where torch's kernel splits
// `row_count` rows of `column_count` numbers each, side by side in memory, over several; 0 where
// one block sums all, or where it is not known how many blocks `gpu` runs. The kernel is as wide as
// the GPU, so that on one of 132 multiprocessors these are 138 MB at most, of any matrix that is
// higher than 1,024 rows. Source: aten/src/ATen/native/cuda/Reduce.cuh, setReduceConfig,
// ReduceConfig::global_memory_size, gpu_reduce_kernel; equal to the byte under the phantom.
int64_t SumWorkspaceBytes(const Gpu& gpu, int64_t row_count, int64_t column_count);

// Gives it to ops whose backward sums gradients of vectors, biases and weights of norms, up over
// tokens by that kernel.
void AddSumWorkspaces(const Job& job, Program& program);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PASSES_SUM_WORKSPACE_H_
