// State-space layers: Mamba 1 in place of attention.
#ifndef PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_SELECTIVE_SCAN_H_
#define PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_SELECTIVE_SCAN_H_

#include "estimator/program/block_builder.h"

namespace plimsoll {

// [B, S, H] -> [B, S, H]: one product, a convolution over tokens, products that make each token's
// steps and what it writes and reads of N states a channel, the scan with a gate, the output
// product. One function does all behind the first product: it keeps a copy of what that gave [2I],
// of tokens the small product [R + 2N] and what is written and read, what the scan gave [I], and of
// every 2,048 tokens their states; backward makes the convolution's output and the steps again.
//
//   state_space.in.weight     [2I, H]
//   state_space.conv.weight   [I, tokens]
//   state_space.parts.weight  [R + 2N, I]
//   state_space.step.weight   [I, R]
//   state_space.out.weight    [H, I]
//   what a channel's states fade by [I, N]; its step's bias, what passes it by: [I] each
//
// Source: mamba_ssm 2.3, ops/selective_scan_interface.py, MambaInnerFn, and
//         csrc/selective_scan/selective_scan.cpp; transformers models/mamba/modeling_mamba.py,
//         MambaMixer.forward. Held against these on a phantom GPU
//         (tests/accuracy/data/phantom_mamba.csv).
TensorId LowerSelectiveScan(BlockBuilder& b, TensorId input);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_SELECTIVE_SCAN_H_
