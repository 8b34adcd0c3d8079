// Ulysses: ranks that split a sequence exchange it for heads.
#ifndef PLIMSOLL_ESTIMATOR_PASSES_EXCHANGE_HEADS_H_
#define PLIMSOLL_ESTIMATOR_PASSES_EXCHANGE_HEADS_H_

#include <vector>

#include "estimator/job/job.h"
#include "estimator/program/program.h"

namespace plimsoll {

// Puts exchanges around the block's attention, if it has one, and returns which tensors have
// the whole sequence.
// Source: Jacobs et al. 2023 (arXiv 2309.14509), section 3.1.
std::vector<bool> ExchangeHeads(const Job& job, Block& block);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PASSES_EXCHANGE_HEADS_H_
