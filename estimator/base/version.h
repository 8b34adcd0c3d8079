// Versions of packages: major * 1000 + minor; below 0 where a job tells none.
#ifndef PLIMSOLL_ESTIMATOR_BASE_VERSION_H_
#define PLIMSOLL_ESTIMATOR_BASE_VERSION_H_

namespace plimsoll {

// Whether `version` is older than `first`: one that is not told is the newest.
constexpr bool IsBefore(int version, int first) { return version >= 0 && version < first; }

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_BASE_VERSION_H_
