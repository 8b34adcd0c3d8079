// What stands above a picture of memory over time: the job, the verdict, and
// what the reader must know of the step that is shown.
#ifndef PLIMSOLL_CLIENT_SHOW_TIMELINE_WORDS_H_
#define PLIMSOLL_CLIENT_SHOW_TIMELINE_WORDS_H_

#include <string>
#include <vector>

#include "plimsoll/v1/planner.pb.h"

namespace plimsoll {

// "llama-3.1-8b on 8 x h100-80gb-sxm".
std::string JobTitle(const v1::EstimateMemoryResponse& response, const v1::Job& job);

// Lines below the title: the verdict's figures, which GPU and step is shown, and
// where the first step holds more or the step fails.
//
// Requires: `response` has a timeline with points
std::vector<std::string> TimelineNotes(const v1::EstimateMemoryResponse& response);

// "layers 0-31, micro-batch 0"; empty for what is of none.
std::string StorageOwners(const v1::PeakStorage& storage);

// The point of the timeline's peak.
const v1::TimelinePoint& PeakPoint(const v1::Timeline& timeline);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_SHOW_TIMELINE_WORDS_H_
