// Memory over one step as a page: the picture, the figures under the cursor, and
// the largest storages at the peak. It needs nothing from elsewhere.
#ifndef PLIMSOLL_CLIENT_DRAW_TIMELINE_HTML_H_
#define PLIMSOLL_CLIENT_DRAW_TIMELINE_HTML_H_

#include <string>

#include "plimsoll/v1/planner.pb.h"

namespace plimsoll {

// Requires: `response` has a timeline with points
std::string TimelineHtml(const v1::EstimateMemoryResponse& response, const v1::Job& job);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_DRAW_TIMELINE_HTML_H_
