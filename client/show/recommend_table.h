// A recommendation to read: what was asked and whether it fits, the best with
// what it changes, the others, how much was searched; or why nothing fits and
// what would help.
#ifndef PLIMSOLL_CLIENT_SHOW_RECOMMEND_TABLE_H_
#define PLIMSOLL_CLIENT_SHOW_RECOMMEND_TABLE_H_

#include <string>

#include "client/io/terminal.h"
#include "plimsoll/v1/planner.pb.h"

namespace plimsoll {

// `request` says by what the best was chosen, where the answer assumes no objective. `explain`:
// also each changed field by its path, and where the time of the best goes.
std::string ToTable(const v1::RecommendConfigRequest& request,
                    const v1::RecommendConfigResponse& response, bool explain,
                    const Terminal& terminal);

// The lines above a job file that hold what was changed and the figures, each
// with "# " before it.
//
// Requires: the response has candidates
std::string JobFileComment(const v1::RecommendConfigResponse& response);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_SHOW_RECOMMEND_TABLE_H_
