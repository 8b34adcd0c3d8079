// The configurations that no other beats in step time, number of GPUs and
// memory left over at once.
#ifndef PLIMSOLL_ESTIMATOR_SEARCH_FRONT_H_
#define PLIMSOLL_ESTIMATOR_SEARCH_FRONT_H_

#include "estimator/search/evaluation.h"
#include "estimator/search/recommend.h"

namespace plimsoll {

// The most points of a front.
inline constexpr size_t kMostFrontPoints = 64;

// Fills `answer.front`: by number of GPUs, then time. A point beats another where
// it is as fast, on as few GPUs, and leaves as much memory but for a hundredth of
// the GPU. Of more than kMostFrontPoints those that are nearest to a neighbour in
// memory are left out, never the fastest of a number of GPUs.
//
// A configuration whose floor leaves no more memory than one that is better in
// the rest is beaten without being estimated.
void FindFront(Evaluation& evaluation, const StopPredicate& stop, Recommendation& answer);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_SEARCH_FRONT_H_
