// Recommendations to draw, from recommendations/*.txtpb.
#ifndef PLIMSOLL_TESTS_CLIENT_RECOMMEND_CASES_H_
#define PLIMSOLL_TESTS_CLIENT_RECOMMEND_CASES_H_

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "plimsoll/v1/planner.pb.h"

namespace plimsoll {

inline constexpr const char* kRecommendCases[] = {"as_asked", "nothing_fits", "resharded", "types"};

inline std::filesystem::path RecommendPath(const std::string& name) {
  return std::filesystem::path(RECOMMENDATIONS) / name;
}

inline std::string ReadText(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline v1::RecommendConfigResponse ReadRecommendation(const std::string& name) {
  v1::RecommendConfigResponse response;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      ReadText(RecommendPath(name + ".txtpb")), &response))
      << name;
  return response;
}

// What was asked for it: `types` is by price.
inline v1::RecommendConfigRequest RecommendationRequest(const std::string& name) {
  v1::RecommendConfigRequest request;
  if (name != "types") return request;
  request.set_objective("cheapest");
  (*request.mutable_gpu_hour_prices())["h100-80gb-sxm"] = 2.5;
  (*request.mutable_gpu_hour_prices())["h200-141gb-sxm"] = 3.4;
  return request;
}

// UPDATE_GOLDENS=1 rewrites it.
inline void CompareWithGolden(const std::string& name, const std::string& text) {
  const std::filesystem::path path = RecommendPath(name);
  if (std::getenv("UPDATE_GOLDENS") != nullptr) std::ofstream(path, std::ios::binary) << text;
  EXPECT_EQ(text, ReadText(path)) << path;
}

}  // namespace plimsoll

#endif  // PLIMSOLL_TESTS_CLIENT_RECOMMEND_CASES_H_
