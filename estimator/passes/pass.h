// The passes over a program. Each is a free function that takes the program
// and returns it changed; none can fail. Rows declare; passes obey.
#ifndef PLIMSOLL_ESTIMATOR_PASSES_PASS_H_
#define PLIMSOLL_ESTIMATOR_PASSES_PASS_H_

#include "absl/strings/string_view.h"
#include "estimator/job/job.h"
#include "estimator/program/program.h"

namespace plimsoll {

// Freezes what of the model is not trained. What lies below the first trained weight keeps nothing,
// and products by frozen matrices do not keep what they read.
// Source: torch/csrc/autograd/generated, should_compute_output.
Program ApplyFrozen(const ValidJob& job, Program program);

// Freezes weights, and puts two small matrices that are trained beside those that have an
// adapter. What frozen weights alone would need of forward is not kept.
//   y = W x -> y = W x + s B A x, A [R, H], B [A, R]
// Source: Hu et al. 2021 (arXiv 2106.09685), section 4.1; peft tuners/lora/layer.py.
Program ApplyAdapters(const ValidJob& job, Program program);

// Keeps the layers' frozen matrices in 4 bits, and makes them whole again where a product
// reads them, forward and backward.
//   W [N, K] -> W/2 bytes, a scale for each 64 elements
// Source: Dettmers et al. 2023 (arXiv 2305.14314), section 3; bitsandbytes
// autograd/_functions.py, MatMul4Bit.
Program ApplyQuantization(const ValidJob& job, Program program);

// The same for one block, whose parameters say which are frozen.
void QuantizeProducts(const Job& job, Block& block);

// Splits weights and activations along their tensor axis, and sums up what that makes
// parts of.
//   [A + 2C, H] -> [(A + 2C)/tp, H]     [B, S, F] -> [B, S, F/tp]
// Source: Shoeybi et al. 2019 (arXiv 1909.08053), section 3.
Program ApplyTensorParallel(const ValidJob& job, Program program);

// Splits activations along the sequence, but for the attention kernel's: of these each
// rank has the whole sequence of some heads, and all ranks exchange what it reads and makes.
//   [B, S, H] -> [B, S/cp, H]     [B, S, A] -> [B, S, A/cp] in the kernel
// Source: Jacobs et al. 2023 (arXiv 2309.14509), section 3.1.
Program ApplyContextParallel(const ValidJob& job, Program program);

// Splits the rest of the activations along the sequence: gathers inputs of
// column-parallel products for as long as these run, and scatters what was summed up.
//   [B, S, H] -> [B, S/tp, H]
// Source: Korthikanti et al. 2022 (arXiv 2205.05198), section 4.2.2.
Program ApplySequenceParallel(const ValidJob& job, Program program);

// Splits experts, and the matrices of each, over ranks, and sends tokens to them and back: as
// many to each rank as its experts' share.
//   [X, G, H] -> [X/ep, G/etp, H]     [B, S/tp, K, H] -> [B, S/tp x etp, K, H] at the experts
// Source: megatron/core/transformer/moe/token_dispatcher.py.
Program ApplyExpertParallel(const ValidJob& job, Program program);

// Gives products of the layers' matrices what they read in fp8: inputs and gradients of outputs
// have copies, of which backward's stays in the place of the input.
//   [B, S, H] 16 bits -> [B, S, H] fp8, and its transpose
// Source: Micikevicius et al. 2022 (arXiv 2209.05433); transformer_engine/pytorch/module/linear.py.
Program ApplyFp8Products(const ValidJob& job, Program program);

// Runs head and loss over slices of the tokens, with an fp32 sum of the
// hidden state's gradient.
// Source: torchtitan components/loss.py, ChunkedLossWrapper.
Program ApplyLossChunks(const ValidJob& job, Program program);

// Drops what backward makes again.
// Source: torch/utils/checkpoint.py; megatron/core/tensor_parallel/random.py,
// CheckpointWithoutOutput; megatron/core/transformer/transformer_block.py.
Program ApplyRecompute(const ValidJob& job, Program program);

// Adds weights, gradients, master weights, optimizer states, and what the
// optimizer step needs for itself.
// Source: Rajbhandari et al. 2020 (arXiv 1910.02054), section 3.1; torch/optim;
// megatron/core/optimizer; each row names its own.
Program ApplyOptimizer(const ValidJob& job, Program program);

// Adds the network that a policy is compared with: its forward, which keeps nothing, and its
// weights where they are another model's.
// Source: Rafailov et al. 2023 (arXiv 2305.18290), equation 7; trl trainer/dpo_trainer.py.
Program ApplyPreference(const ValidJob& job, Program program);

// Shards states, gradients and weights over data-parallel ranks, and adds the
// framework's buffers for gathering and reducing them.
Program ApplyZero(const ValidJob& job, Program program);

// Deals layers to stages, and counts the micro-batches that each keeps.
// Source: Narayanan et al. 2021 (arXiv 2104.04473), section 2.2;
// megatron/core/pipeline_parallel/schedules.py.
Program ApplyPipelineParallel(const ValidJob& job, Program program);

// Adds what is no tensor of the model: batches, masks, library workspaces, and
// outside the allocator the CUDA context and NCCL.
Program ApplyRuntime(const ValidJob& job, Program program);

struct Pass {
  PassId id;
  Program (*apply)(const ValidJob&, Program);

  absl::string_view name() const { return kPassNames[static_cast<size_t>(id)]; }
};

// Order matters: each pass reads the shapes left by those above it.
inline constexpr Pass kPasses[kPassCount] = {
    {PassId::kFrozen, ApplyFrozen},
    {PassId::kAdapters, ApplyAdapters},
    {PassId::kQuantization, ApplyQuantization},
    {PassId::kTensorParallel, ApplyTensorParallel},
    {PassId::kContextParallel, ApplyContextParallel},
    {PassId::kSequenceParallel, ApplySequenceParallel},
    {PassId::kExpertParallel, ApplyExpertParallel},
    {PassId::kFp8Products, ApplyFp8Products},
    {PassId::kLossChunks, ApplyLossChunks},
    {PassId::kRecompute, ApplyRecompute},
    {PassId::kOptimizer, ApplyOptimizer},
    {PassId::kPreference, ApplyPreference},
    {PassId::kZero, ApplyZero},
    {PassId::kPipelineParallel, ApplyPipelineParallel},
    {PassId::kRuntime, ApplyRuntime},
};

// The bit of a pass in `shrunk_by`.
constexpr PassMarks Mark(PassId id) {
  return static_cast<PassMarks>(1u << static_cast<unsigned>(id));
}

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PASSES_PASS_H_
