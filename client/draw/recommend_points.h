// What a picture of a recommendation shows: jobs as points, the front as a line
// for each number and type of GPUs.
#ifndef PLIMSOLL_CLIENT_DRAW_RECOMMEND_POINTS_H_
#define PLIMSOLL_CLIENT_DRAW_RECOMMEND_POINTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "plimsoll/v1/planner.pb.h"

namespace plimsoll {

struct RecommendPoint {
  const v1::Candidate* candidate = nullptr;
  std::string name;  // "1", "asked", "nearest"; empty for what is on the front alone
  bool on_front = false;
  size_t series = 0;
};

// Jobs on the same GPUs.
struct RecommendSeries {
  std::string gpu;  // empty where the job's GPU has no id
  int64_t gpu_count = 0;
  std::vector<size_t> front;  // points, the fastest first
};

struct RecommendPoints {
  std::vector<RecommendPoint> points;
  std::vector<RecommendSeries> series;  // by type, then by number
};

// What the response holds, each job once: of a job that is recommended and on
// the front the recommended figures are taken, which are of the better detail.
//
// Requires: `response` outlives what is returned
RecommendPoints CollectPoints(const v1::RecommendConfigResponse& response);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_DRAW_RECOMMEND_POINTS_H_
