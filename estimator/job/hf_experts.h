// The experts of a config.json's network.
#ifndef PLIMSOLL_ESTIMATOR_JOB_HF_EXPERTS_H_
#define PLIMSOLL_ESTIMATOR_JOB_HF_EXPERTS_H_

#include "estimator/catalog/hf_families.h"
#include "estimator/job/hf_reader.h"

namespace plimsoll {

// Fills in the experts of a model whose sizes have been read, where its family has any.
void ReadExperts(const HfExperts& row, HfReader& reader, Transformer& model);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_JOB_HF_EXPERTS_H_
