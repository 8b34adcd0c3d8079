// Where nothing fits: what keeps it from fitting, and what would help.
#ifndef PLIMSOLL_ESTIMATOR_SEARCH_OBSTACLE_H_
#define PLIMSOLL_ESTIMATOR_SEARCH_OBSTACLE_H_

#include <optional>

#include "estimator/catalog.h"
#include "estimator/search/evaluation.h"
#include "estimator/search/request.h"

namespace plimsoll {

// Finds the configuration that lies least above its GPU in closed form, and for
// each thing that
// the request holds still the nearest value of it with which something fits:
//   more GPUs          2, 4, ... 64 times as many
//   a larger GPU       the smallest of the catalog, by memory, of the same maker
//   a shorter sequence a half, a quarter, ... down to a 64th
// Nothing where the search is stopped first, or where no configuration is legal.
std::optional<Obstacle> FindObstacle(const Request& request, const Catalog& catalog,
                                     Evaluation& evaluation, const StopPredicate& stop);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_SEARCH_OBSTACLE_H_
