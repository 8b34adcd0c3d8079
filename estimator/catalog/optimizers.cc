#include "estimator/catalog/optimizers.h"

#include <algorithm>

namespace plimsoll {
namespace {

constexpr int32_t kScaled = 256;  // bitsandbytes: elements of an 8-bit state that share a scale

// A state in 8 bits: of what is picked, with its scales, and of the rest.
constexpr OptimizerState Narrow(absl::string_view name) {
  return {name, StateBasis::kPicked, DType::kInt8};
}
constexpr OptimizerState Scales(absl::string_view name) {
  return {name, StateBasis::kPicked, DType::kFp32, kScaled};
}
constexpr OptimizerState WideRest(absl::string_view name) {
  return {name, StateBasis::kRest, DType::kFp32};
}

constexpr OptimizerState kMomentum[] = {{"optimizer.momentum"}};
constexpr OptimizerState kVariance[] = {{"optimizer.variance"}};
constexpr OptimizerState kMoments[] = {{"optimizer.momentum"}, {"optimizer.variance"}};
constexpr OptimizerState kIterateAndVariance[] = {{"optimizer.iterate"}, {"optimizer.variance"}};
// Of AdEMAMix both momenta are one tensor, of twice the size.
constexpr OptimizerState kTwoMomentaAndVariance[] = {
    {"optimizer.momentum"}, {"optimizer.momentum.slow"}, {"optimizer.variance"}};
constexpr OptimizerState kFactors[] = {
    {"optimizer.factors", StateBasis::kRowsAndColumns, DType::kFp32}};
constexpr OptimizerState kMomentumAndRest[] = {{"optimizer.momentum", StateBasis::kPicked},
                                               {"optimizer.momentum.rest", StateBasis::kRest},
                                               {"optimizer.variance.rest", StateBasis::kRest}};
constexpr OptimizerState kNarrowMomentum[] = {Narrow("optimizer.momentum"),
                                              Scales("optimizer.momentum.scales"),
                                              WideRest("optimizer.momentum.rest")};
constexpr OptimizerState kNarrowMoments[] = {
    Narrow("optimizer.momentum"),        Scales("optimizer.momentum.scales"),
    WideRest("optimizer.momentum.rest"), Narrow("optimizer.variance"),
    Scales("optimizer.variance.scales"), WideRest("optimizer.variance.rest")};
constexpr OptimizerState kNarrowMomentaAndVariance[] = {Narrow("optimizer.momentum"),
                                                        Scales("optimizer.momentum.scales"),
                                                        WideRest("optimizer.momentum.rest"),
                                                        Narrow("optimizer.momentum.slow"),
                                                        Scales("optimizer.momentum.slow.scales"),
                                                        WideRest("optimizer.momentum.slow.rest"),
                                                        Narrow("optimizer.variance"),
                                                        Scales("optimizer.variance.scales"),
                                                        WideRest("optimizer.variance.rest")};

// What was lost of the last signs that were sent: by each replica, and by what it sums up for all.
constexpr OptimizerState kWorkerError = {"optimizer.worker_error", StateBasis::kEach, DType::kFp32,
                                         1, true};
constexpr OptimizerState kServerError = {"optimizer.server_error", StateBasis::kReplicaShare,
                                         DType::kFp32, 1, true};
constexpr OptimizerState kMomentsAndErrors[] = {
    {"optimizer.momentum"}, {"optimizer.variance"}, kWorkerError, kServerError};
constexpr OptimizerState kLocalMomentsAndErrors[] = {{"optimizer.momentum"},
                                                     {"optimizer.variance"},
                                                     {"optimizer.momentum.local"},
                                                     kWorkerError,
                                                     kServerError};
constexpr OptimizerState kFreshMomentsAndErrors[] = {
    {"optimizer.momentum", StateBasis::kEach, DType::kNone, 1, true},
    {"optimizer.variance"},
    {"optimizer.variance.fresh"},
    kWorkerError,
    kServerError};
constexpr OptimizerState kRestsMomentum = {"optimizer.momentum.rest", StateBasis::kRest};
constexpr OptimizerState kRestsVariance = {"optimizer.variance.rest", StateBasis::kRest};
constexpr OptimizerState kFactorsMoments[] = {{"optimizer.projector", StateBasis::kFactor},
                                              {"optimizer.momentum", StateBasis::kProjected},
                                              {"optimizer.variance", StateBasis::kProjected},
                                              kRestsMomentum,
                                              kRestsVariance};
constexpr OptimizerState kProjectedMoments[] = {{"optimizer.projector", StateBasis::kProjector},
                                                {"optimizer.momentum", StateBasis::kProjected},
                                                {"optimizer.variance", StateBasis::kProjected},
                                                kRestsMomentum,
                                                kRestsVariance};

constexpr std::array<bool, 3> kLoops = {true, false, false};
constexpr std::array<bool, 3> kFused = {false, false, true};
constexpr StepTemporaries kNoTemporaries = {
    .loop_copies = 0, .loop_copies_of_16bit = 0, .foreach_values = 0};
constexpr StepTemporaries kOneTemporary = {.loop_copies = 1, .loop_copies_of_16bit = 1};

constexpr OptimizerRow OfBitsandbytes(OptimizerRow row) {
  row.implementations = kFused;
  row.fused_is_bitsandbytes = true;
  row.pages = true;
  return row;
}
// Of DeepSpeed's engine without ZeRO.
constexpr OptimizerRow Compressing(OptimizerRow row) {
  row.implementations = {false, true, false};
  row.sees_shapes = true;
  row.compresses = true;
  return row;
}
constexpr OptimizerRow Projecting(OptimizerRow row) {
  row.implementations = kLoops;
  row.picks = Picks::kTargets;
  row.sees_shapes = true;
  return row;
}
constexpr OptimizerRow In8Bits(OptimizerRow row) {
  row.picks = Picks::kLarge;
  row.sees_shapes = true;
  return OfBitsandbytes(row);
}

}  // namespace

const std::array<OptimizerRow, kOptimizerCount> kOptimizerRows = {{
    {.optimizer = OptimizerName::kSgd,
     .states = {},
     .temporaries = kNoTemporaries,
     .source = "torch optim/sgd.py"},
    {.optimizer = OptimizerName::kSgdMomentum,
     .states = kMomentum,
     .temporaries = kNoTemporaries,
     .source = "torch optim/sgd.py"},
    {.optimizer = OptimizerName::kRmsprop,
     .states = kVariance,
     .temporaries = kOneTemporary,
     .implementations = {true, true, false},
     .source = "torch optim/rmsprop.py"},
    // Its gradients are scaled beside the root.
    {.optimizer = OptimizerName::kAdagrad,
     .states = kVariance,
     .temporaries = {.loop_copies = 1, .loop_copies_of_16bit = 1, .foreach_values = 2},
     .made_with_it = true,
     .source = "torch optim/adagrad.py, __init__, _multi_tensor_adagrad"},
    // Its root is divided.
    {.optimizer = OptimizerName::kAdam,
     .states = kMoments,
     .pages = true,
     .on_hosts = true,
     .source = "torch optim/adam.py; deepspeed ops/adam/cpu_adam.py"},
    {.optimizer = OptimizerName::kAdamW,
     .states = kMoments,
     .pages = true,
     .on_hosts = true,
     .source = "torch optim/adamw.py; deepspeed ops/adam/cpu_adam.py"},
    {.optimizer = OptimizerName::kLamb,
     .states = kMoments,
     .sees_shapes = true,
     .takes_narrow = true,
     .source = "deepspeed ops/lamb/fused_lamb.py; runtime/engine.py, _configure_fp16_optimizer "
               "(fused_lamb_legacy)"},
    {.optimizer = OptimizerName::kLion,
     .states = kMomentum,
     .implementations = {true, false, true},
     .fused_is_bitsandbytes = true,
     .pages = true,
     .on_hosts = true,
     .source = "lion-pytorch lion_pytorch.py, update_fn; bitsandbytes optim/lion.py; deepspeed "
               "ops/lion/cpu_lion.py"},
    // Two of its update; of what is narrower than fp32 the gradient and the weight widened.
    {.optimizer = OptimizerName::kAdafactor,
     .states = kFactors,
     .temporaries = {.loop_copies_of_16bit = 4, .loop_dtype = DType::kFp32},
     .implementations = kLoops,
     .sees_shapes = true,
     .source = "transformers optimization.py, Adafactor.step"},
    {.optimizer = OptimizerName::kMuon,
     .states = kMomentumAndRest,
     .picks = Picks::kMatrices,
     .implementations = kLoops,
     .sees_shapes = true,
     .source = "torch optim/_muon.py"},
    In8Bits(
        {.optimizer = OptimizerName::kAdamW8bit,
         .states = kNarrowMoments,
         .source = "bitsandbytes optim/optimizer.py, Optimizer2State.init_state, min_8bit_size"}),
    In8Bits(
        {.optimizer = OptimizerName::kLion8bit,
         .states = kNarrowMomentum,
         .source = "bitsandbytes optim/optimizer.py, Optimizer1State.init_state, min_8bit_size"}),
    OfBitsandbytes({.optimizer = OptimizerName::kAdEMAMix,
                    .states = kTwoMomentaAndVariance,
                    .source = "bitsandbytes optim/ademamix.py, init_state"}),
    In8Bits({.optimizer = OptimizerName::kAdEMAMix8bit,
             .states = kNarrowMomentaAndVariance,
             .source = "bitsandbytes optim/ademamix.py, init_state"}),
    {.optimizer = OptimizerName::kScheduleFreeAdamW,
     .states = kIterateAndVariance,
     .temporaries = kOneTemporary,
     .implementations = {true, true, false},
     .source = "schedulefree adamw_schedulefree.py, step"},
    // Once signs are sent. Beside its update what it compresses is a tensor of signs, and that
    // scaled, or what is lost of it.
    Compressing({.optimizer = OptimizerName::kOnebitAdam,
                 .states = kMomentsAndErrors,
                 .temporaries = {.foreach_values = 2},
                 .steps_flat = true,
                 .pads_copy = true,
                 .source = "deepspeed 0.18.9 runtime/fp16/onebit/adam.py, step; runtime/comm/"
                           "nccl.py, compressed_allreduce"}),
    // Once steps are local: the update is there while momenta are compressed.
    Compressing({.optimizer = OptimizerName::kZeroOneAdam,
                 .states = kLocalMomentsAndErrors,
                 .temporaries = {.foreach_values = 3},
                 .steps_flat = true,
                 .pads_copy = true,
                 .source = "deepspeed 0.18.9 runtime/fp16/onebit/zoadam.py, step"}),
    // The last step's momenta are there beside. Its own are padded as they are made.
    Compressing({.optimizer = OptimizerName::kOnebitLamb,
                 .states = kFreshMomentsAndErrors,
                 .temporaries = {.foreach_values = 3},
                 .source = "deepspeed 0.18.9 runtime/fp16/onebit/lamb.py, step"}),
    Projecting({.optimizer = OptimizerName::kGaloreAdamW,
                .states = kFactorsMoments,
                .factorizes = true,
                .source = "galore-torch 1.0 adamw.py, step; galore_projector.py, "
                          "get_orthogonal_matrix"}),
    Projecting({.optimizer = OptimizerName::kApolloAdamW,
                .states = kProjectedMoments,
                .source = "apollo-torch 1.0.3 apollo.py, step; random_projector.py, "
                          "get_orthogonal_matrix"}),
}};

bool OptimizerRow::HasOwnDType() const {
  return std::any_of(states.begin(), states.end(),
                     [](const OptimizerState& state) { return state.dtype != DType::kNone; });
}

}  // namespace plimsoll
