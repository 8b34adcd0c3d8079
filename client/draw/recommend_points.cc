#include "client/draw/recommend_points.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/show/recommend_words.h"

namespace plimsoll {
namespace {

bool SameJob(const v1::Candidate& a, const v1::Candidate& b) {
  return google::protobuf::util::MessageDifferencer::Equals(a.job(), b.job());
}

void AddFront(const v1::RecommendConfigResponse& response, std::vector<RecommendPoint>* points) {
  for (const v1::Candidate& candidate : response.front()) {
    const auto known = std::find_if(points->begin(), points->end(), [&](const auto& point) {
      return SameJob(*point.candidate, candidate);
    });
    if (known == points->end()) {
      points->push_back({.candidate = &candidate, .name = "", .on_front = true});
    } else {
      known->on_front = true;
    }
  }
}

void AddSeries(RecommendPoints* all) {
  std::map<std::pair<std::string, int64_t>, std::vector<size_t>> groups;
  for (size_t i = 0; i < all->points.size(); ++i) {
    const v1::Job& job = all->points[i].candidate->job();
    groups[{job.cluster().gpu(), GpuCount(job)}].push_back(i);
  }
  for (const auto& [key, members] : groups) {
    RecommendSeries series = {.gpu = key.first, .gpu_count = key.second, .front = {}};
    for (const size_t i : members) {
      all->points[i].series = all->series.size();
      if (all->points[i].on_front) series.front.push_back(i);
    }
    const auto key_of = [&](size_t i) {
      const v1::Candidate& candidate = *all->points[i].candidate;
      return std::tuple(candidate.step_time().seconds(), candidate.device().bound_bytes(), i);
    };
    std::sort(series.front.begin(), series.front.end(),
              [&](size_t a, size_t b) { return key_of(a) < key_of(b); });
    all->series.push_back(std::move(series));
  }
}

}  // namespace

RecommendPoints CollectPoints(const v1::RecommendConfigResponse& response) {
  RecommendPoints all;
  int rank = 0;
  for (const v1::Candidate& candidate : response.candidates()) {
    all.points.push_back({.candidate = &candidate, .name = absl::StrCat(++rank)});
  }
  if (response.has_obstacle()) {
    if (response.obstacle().has_nearest()) {
      all.points.push_back({.candidate = &response.obstacle().nearest(), .name = "nearest"});
    }
    for (const v1::Candidate& candidate : response.obstacle().remedies()) {
      all.points.push_back({.candidate = &candidate, .name = absl::StrCat(++rank)});
    }
  }
  const bool among = std::any_of(all.points.begin(), all.points.end(), [&](const auto& point) {
    return point.candidate->changes().empty();
  });
  if (!among) all.points.push_back({.candidate = &response.requested(), .name = "asked"});
  AddFront(response, &all.points);
  AddSeries(&all);
  return all;
}

}  // namespace plimsoll
