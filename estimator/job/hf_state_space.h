// Reads what a config.json says of state-space layers.
#ifndef PLIMSOLL_ESTIMATOR_JOB_HF_STATE_SPACE_H_
#define PLIMSOLL_ESTIMATOR_JOB_HF_STATE_SPACE_H_

#include "estimator/catalog/hf_families.h"
#include "estimator/catalog/model.h"
#include "estimator/job/hf_reader.h"

namespace plimsoll {

// Which layers have what, where a family has state-space layers, and their sizes.
//
// Requires: the model's layer count and hidden size are read; experts are not
void ReadStateSpace(const HfStateSpace& row, HfReader& reader, Transformer& model);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_JOB_HF_STATE_SPACE_H_
