// Where nothing fits: what keeps it from fitting, and what would help.
#ifndef PLIMSOLL_ESTIMATOR_SEARCH_OBSTACLE_H_
#define PLIMSOLL_ESTIMATOR_SEARCH_OBSTACLE_H_

#include "estimator/catalog/catalog.h"
#include "estimator/search/evaluation.h"
#include "estimator/search/request.h"

namespace plimsoll {

// Fills `answer.obstacle`: the configuration that lies least above its GPU, of those
// that the search judged in vain and of the nearest in closed form, which is judged
// too; and what would help (estimator/search/remedies.h).
// Nothing where the search is stopped before the nearest is known, or where no
// configuration is legal. A nearest that fits after all is a candidate.
void FindObstacle(const Request& request, const Catalog& catalog, Evaluation& evaluation,
                  const StopPredicate& stop, Recommendation& answer);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_SEARCH_OBSTACLE_H_
