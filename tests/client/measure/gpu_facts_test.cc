// The facts of GPUs agree with the catalog's: each of its own maker's GPUs has them or is known
// to lack them.
#include "client/measure/gpu_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "estimator/catalog/catalog.h"
#include "server/catalog/catalog.h"

namespace plimsoll {
namespace {

using testing::Contains;
using testing::ElementsAre;

TEST(GpuFactsTest, AgreeWithTheCatalog) {
  const std::map<GpuArchitecture, std::vector<std::string>> capabilities = {
      {GpuArchitecture::kVolta, {"7.0"}},         {GpuArchitecture::kTuring, {"7.5"}},
      {GpuArchitecture::kAmpere, {"8.0", "8.6"}}, {GpuArchitecture::kAda, {"8.9"}},
      {GpuArchitecture::kHopper, {"9.0"}},        {GpuArchitecture::kBlackwell, {"10.0", "12.0"}}};
  std::vector<std::string> lacking;
  for (const auto& [id, gpu] : LoadCatalog().gpus) {
    const GpuFacts* const facts = FindGpuFacts(id);
    if (facts == nullptr) {
      lacking.push_back(id);
      continue;
    }
    EXPECT_THAT(capabilities.at(gpu.architecture), Contains(facts->capability)) << id;
    EXPECT_GT(gpu.multiprocessor_count, 0) << id;
  }
  EXPECT_THAT(lacking, ElementsAre("b300-288gb", "gb200-186gb", "gb300-288gb", "mi250x-64gb",
                                   "mi300x-192gb", "mi325x-256gb"));
}

TEST(GpuFactsTest, AreOfWholeIds) {
  EXPECT_EQ(FindGpuFacts("h100"), nullptr);
  EXPECT_EQ(FindGpuFacts(""), nullptr);
}

}  // namespace
}  // namespace plimsoll
