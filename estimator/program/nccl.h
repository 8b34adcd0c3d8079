// NCCL's buffers on one GPU: which communicators a framework makes, and what
// each of them holds. None of it is seen by the caching allocator.
#ifndef PLIMSOLL_ESTIMATOR_PROGRAM_NCCL_H_
#define PLIMSOLL_ESTIMATOR_PROGRAM_NCCL_H_

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "estimator/job/job.h"

namespace plimsoll {

// A communicator of the job's first GPU, or several alike.
struct Communicator {
  absl::string_view group;  // whom it joins, as "tensor"
  int64_t ranks = 1;
  int64_t local_ranks = 1;  // of them on one node
  int64_t count = 1;
};

// Returns the communicators that run a collective or send something, those of
// one rank left out. Groups of the same ranks are one communicator where the
// framework looks them up.
//
// Source: each row of the table in nccl.cc names its own.
absl::InlinedVector<Communicator, 8> Communicators(const Job& job);

// Returns the bytes of one communicator.
//   ring   12 MiB a channel: send and receive buffers of the three protocols
//   tree   the same again between nodes
//   NVLS   buffers in all GPUs' memory at once, for each local rank, on Hopper
//          and Blackwell behind NVSwitch with more than two local ranks:
//          192 MiB up to NCCL 2.20, 96 MiB in 2.21, 32 MiB from 2.22 on
// Source: NCCL src/init.cc (computeBuffSizes), src/transport/p2p.cc, nvls.cc
//         (ncclNvlsInit, ncclNvlsBufferSetup).
// Assumes: 24 channels behind NVSwitch, 4 without; trees share no connection with
//          rings, which errs high.
int64_t CommunicatorBytes(const Job& job, const Communicator& communicator);

// All of them together.
int64_t NcclBytes(const Job& job);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PROGRAM_NCCL_H_
