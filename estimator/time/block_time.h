// Times one block of the network for one micro-batch: the ops that memory is
// estimated from, read for FLOPs, bytes moved and collectives.
#ifndef PLIMSOLL_ESTIMATOR_TIME_BLOCK_TIME_H_
#define PLIMSOLL_ESTIMATOR_TIME_BLOCK_TIME_H_

#include <cstdint>

#include "estimator/job/job.h"
#include "estimator/job/mesh.h"
#include "estimator/program/program.h"
#include "estimator/time/speed.h"

namespace plimsoll {

// What one GPU of a job reaches. Units: operations, bytes per second; seconds.
struct Rates {
  double peak_flops = 0;  // dense, of what the layers' products read: the most of them
  double matrix_flops = 0;
  double narrow_flops = 0;  // of products in fp8 or fp4
  double half_flops = 0;    // a product of so many reaches half of `matrix_flops`
  double attention_flops = 0;
  double memory_bytes = 0;
  double link_bytes = 0;     // to GPUs that links join: of the node, or of several
  double network_bytes = 0;  // to others
  double kernel_seconds = 0;
  double collective_seconds = 0;
  double hop_seconds = 0;

  // Bandwidth of a collective over a group of ranks, and what its ring waits for
  // messages alone: rings enter and leave what links join (a node; with NVIDIA's NVLink
  // domains several, Job::LinkedGpuCount) over the NICs of its members, and a ring that
  // does takes size - 1 steps, each as long as its slowest.
  // Source: Thakur et al. 2005, section 4.1. All-gather of 1 GiB on H100 with EFA
  //         by nanotron's start-up test, GB/s: 177 on 8 nodes, 124 on 16, 75 on
  //         32, 44 on 64, as 43 us a step make it.
  double Bandwidth(const Job& job, const RankGroup& group) const;
  double Start(const Job& job, const RankGroup& group) const;
};

Rates RatesOf(const Job& job, const Speed& speed);

// Time of one pass over a block. Units: seconds.
struct PassTime {
  double matrix = 0;     // products with weights and of scores
  double attention = 0;  // fused kernels
  double memory = 0;     // what bandwidth limits
  double tensor = 0;     // collectives of tensor parallelism, what products hide apart
  double context = 0;    // of context parallelism
  double launch = 0;     // launching kernels, beyond running them

  double Seconds() const { return matrix + attention + memory + tensor + context + launch; }
  void Add(const PassTime& other, double times) {
    matrix += times * other.matrix;
    attention += times * other.attention;
    memory += times * other.memory;
    tensor += times * other.tensor;
    context += times * other.context;
    launch += times * other.launch;
  }
};

struct BlockTime {
  PassTime forward;
  PassTime again;  // of forward, in backward of what is recomputed
  PassTime backward;
  double model_flops = 0;  // forward's on this rank, attention in full
  double backward_model_flops = 0;
};

// Times `block` as tensor and sequence parallelism, loss chunks and
// recomputation left it.
//
//   product of f FLOPs   as long as f, or as reading and writing takes, and
//                        half_flops / matrix_flops; backward is two
//   fused attention      4 T S A / 2 where causal; backward is 2.5 of forward
//   the rest             bytes read and written / memory_bytes
//   a pass               what the GPU takes, or what the CPU takes to launch it
// Source: Williams et al. 2009 (roofline); Dao 2023 (arXiv 2307.08691), section
// 4.1, for backward's share; Narayanan et al. 2021, section 3.2, and Korthikanti
// et al. 2022, section 4.2.2, and Jacobs et al. 2023, section 3.2, for the collectives. half_flops:
// measured, as matrix_half_gflop.
BlockTime TimeBlock(const Job& job, const Rates& rates, double tensor_overlap, const Block& block);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_TIME_BLOCK_TIME_H_
