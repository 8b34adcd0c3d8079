// Where nothing fits: what of the request would have to give way.
#ifndef PLIMSOLL_ESTIMATOR_SEARCH_REMEDIES_H_
#define PLIMSOLL_ESTIMATOR_SEARCH_REMEDIES_H_

#include <vector>

#include "estimator/catalog/catalog.h"
#include "estimator/search/recommend.h"
#include "estimator/search/request.h"

namespace plimsoll {

// Finds, for each thing that a search holds still, the nearest value of it with which
// something fits; in this order, those that are frozen or not allowed left out:
//   another loss       the one that keeps least of the logits, of those that the
//                      framework has
//   a smaller batch    a half, a quarter, ... where gradients are whole until a step's
//                      last micro-batch (Profile::accumulates_whole)
//   another framework  the next that the trainer runs on, then another trainer
//   more GPUs          2, 4, ... 64 times as many
//   a larger GPU       the smallest of the catalog, by memory, of the same maker
//   a shorter sequence a half, a quarter, ... down to a 64th
//
// Ensures: each fits, at the request's detail, and says why
std::vector<Candidate> FindRemedies(const Request& request, const Catalog& catalog,
                                    const StopPredicate& stop);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_SEARCH_REMEDIES_H_
