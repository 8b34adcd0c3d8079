// Predicts the time of one optimizer step from the same ops that memory is
// estimated from, read for FLOPs, bytes moved and collectives.
#ifndef PLIMSOLL_ESTIMATOR_TIME_STEP_TIME_H_
#define PLIMSOLL_ESTIMATOR_TIME_STEP_TIME_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "estimator/job/job.h"
#include "estimator/job/pipeline_layout.h"
#include "estimator/time/block_time.h"
#include "estimator/time/speed.h"

namespace plimsoll {

// Parts of a step, in the order of plimsoll.v1.StepTerm.
enum class StepTerm : uint8_t {
  kMatrixProducts,
  kAttention,
  kMemoryBound,
  kRecompute,
  kKernelLaunch,
  kTensorCommunication,
  kPipelineCommunication,
  kPipelineBubble,
  kDataCommunication,
  kOptimizer,
  kFixed,
  kContextCommunication,
};
inline constexpr size_t kStepTermCount = 12;

// Units: seconds.
struct StepTime {
  double seconds = 0;
  double low_seconds = 0;
  double high_seconds = 0;
  std::array<double, kStepTermCount> terms{};  // add up to `seconds`
  double tokens_per_second = 0;
  double model_flops_utilization = 0;
  double gpu_hours_per_billion_tokens = 0;
  bool measured = false;
};

// Which blocks of a stage are of one kind.
struct BlockPlace {
  BlockKind kind = BlockKind::kLayer;
  LayerSet layers{};
};
BlockPlace PlaceOf(const Block& block);

// One stage of a job: its layers and edges alone.
struct StagePart {
  LayerRanges layers;  // of each virtual stage
  bool embedding = false;
  bool head = false;

  bool operator==(const StagePart&) const = default;
};
StagePart PartOf(const Job& job, int64_t stage);
// Returns how many blocks of the stage are of this kind.
int64_t CountBlocks(const BlockPlace& place, const StagePart& stage);

// One kind of block with what its steps cost, for one micro-batch.
struct BlockCost {
  BlockPlace place;
  BlockTime time;
  double parameters = 0;        // on this rank
  double parameters_alone = 0;  // those that are not the embedding's
  double experts = 0;           // beside these, of experts that other ranks have others of
  double frozen = 0;            // beside these, not trained
};

// What the time of a step follows from beside its pipeline and its data
// parallelism: the same for all jobs that differ in these alone.
struct ModelCost {
  Rates rates;
  absl::InlinedVector<BlockCost, 4> blocks;
  double sent_bytes = 0;       // of one micro-batch, from a stage to the next
  double gradient_bytes = 0;   // of one parameter, as reduced
  double weight_bytes = 0;     // of one parameter, as gathered
  double optimizer_bytes = 0;  // read and written for one parameter in the step
  double flops_per_token = 0;  // of the whole model, forward and backward
};

// The job's blocks and unsharded states: lowering and the passes that neither the
// pipeline nor data parallelism moves.
Program BlocksProgram(const ValidJob& job);

// Requires: `program` is BlocksProgram(job)
ModelCost CostOf(const ValidJob& job, const Program& program, const Speed& speed);

// Predicts the time of one step.
//
//   stages     sum of f_s + b_s, and (m-1) times the slowest: one forward, one
//              backward; interleaved: m slowest + (p-1)/v mean
//   sent       2 (m + p - 1) messages; interleaved 2 (p - 1), the rest is hidden
//   data       rows of data_collectives.h, each 1/d of its bytes to d - 1 ranks; an
//              all-reduce twice
//   exposed    what `data_overlap` of the compute it runs beside does not hide
//
// Requires: `cost` is that of a job that differs in pipeline, data parallelism
//           and sharding at most; job.gpu is known
// Source:   Narayanan et al. 2021 (arXiv 2104.04473), section 2.2; Rajbhandari
//           et al. 2020 (arXiv 1910.02054), section 7.
StepTime PredictStep(const Job& job, const Speed& speed, const ModelCost& cost);
StepTime PredictStep(const ValidJob& job, const SpeedTable& table);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_TIME_STEP_TIME_H_
