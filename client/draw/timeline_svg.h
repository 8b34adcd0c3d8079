// Memory over one step as a picture that stands by itself: areas stacked by role,
// what the allocator reserves, what the GPU has, the phases, and the peak.
#ifndef PLIMSOLL_CLIENT_DRAW_TIMELINE_SVG_H_
#define PLIMSOLL_CLIENT_DRAW_TIMELINE_SVG_H_

#include <string>

#include "client/format/xml_writer.h"
#include "plimsoll/v1/planner.pb.h"

namespace plimsoll {

// Writes one svg element. For scripts, data-x are the points' coordinates,
// data-top and data-height the plot's, data-roles the names of the roles;
// each area is a path of class "area".
//
// Requires: `response` has a timeline with points
void WriteTimelineSvg(const v1::EstimateMemoryResponse& response, const v1::Job& job,
                      XmlWriter* xml);

// Returns the picture as a file.
std::string TimelineSvg(const v1::EstimateMemoryResponse& response, const v1::Job& job);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_DRAW_TIMELINE_SVG_H_
