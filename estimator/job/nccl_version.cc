#include "estimator/job/nccl_version.h"

#include <utility>

namespace plimsoll {

int DefaultNccl(Framework framework, int torch) {
  constexpr std::pair<int, int> kOfTorch[] = {{2008, 2027}, {2007, 2026}, {2005, 2021},
                                              {2003, 2020}, {2002, 2019}, {2001, 2018},
                                              {2000, 2014}, {0, 2010}};
  if (torch < 0) {
    if (framework == Framework::kNanotron) return 2018;
    const bool of_2021 =
        framework == Framework::kMegatronLm || framework == Framework::kMegatronDeepSpeed;
    return of_2021 ? 2010 : kOfTorch[0].second;
  }
  for (const auto& [since, nccl] : kOfTorch) {
    if (torch >= since) return nccl;
  }
  return 2010;
}

}  // namespace plimsoll
