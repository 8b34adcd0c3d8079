// Deals layers to pipeline stages where the job does not say how.
#ifndef PLIMSOLL_ESTIMATOR_JOB_PIPELINE_LAYOUT_H_
#define PLIMSOLL_ESTIMATOR_JOB_PIPELINE_LAYOUT_H_

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "estimator/catalog/model.h"
#include "estimator/catalog/profile.h"
#include "estimator/job/job.h"

namespace plimsoll {

// Layers of each of `stage_count` stages, first to last.
//
//   kEven    L / stages each; what is left over goes one each to the first; kEqual too,
//            of which Validate lets nothing be left over
//   kByCost  a stage closes when the running cost passes its share: 4 H^2 +
//            3 H F a layer, V H the head
// Example: L 16, H 2048, F 8192, V 131072, 2 stages, kByCost: 11 and 5
// Requires: 1 <= stage_count <= model.layer_count
// Ensures:  sums to model.layer_count
// Source:   nanotron models/base.py, build_model, and models/llama.py,
//           get_block_compute_costs; measured, data notes A 3.4.
std::vector<int64_t> DealLayers(const Transformer& model, int64_t stage_count, StageRule rule);

// Of each virtual stage of a stage.
using LayerRanges = absl::InlinedVector<LayerRange, 4>;

// A layout that names virtual stages names them in the order of the layers:
// stage s has entries s, s + p, ...; of one that names stages, what is left over
// goes one each to the first.
//
// Ensures: layers of a range are, one for one, of the kinds of those that the virtual stage has;
//          none that does so begins earlier, so that of layers which are alike each begins with 0
LayerRanges VirtualStages(const Job& job, int64_t stage);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_JOB_PIPELINE_LAYOUT_H_
