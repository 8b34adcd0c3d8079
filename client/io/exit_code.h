// What the exit status of `plimsoll` says; documented in `plimsoll --help`.
#ifndef PLIMSOLL_CLIENT_IO_EXIT_CODE_H_
#define PLIMSOLL_CLIENT_IO_EXIT_CODE_H_

#include "absl/status/status.h"
#include "plimsoll/v1/planner.pb.h"

namespace plimsoll {

enum class ExitCode : int {
  kDone = 0,  // the job fits, or what was asked is done
  kFailure = 1,
  kBadInput = 2,
  kDoesNotFit = 3,  // admit: reject
  kOutOfReach = 4,
  kAtRisk = 5,
  kResize = 6,
};

// Returns the code that tells a caller why `status`, which is not OK, is not.
inline ExitCode ToExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kOutOfRange:
      return ExitCode::kBadInput;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
      return ExitCode::kOutOfReach;
    default:
      return ExitCode::kFailure;
  }
}

// Returns the code of an answer.
inline ExitCode ToExitCode(v1::Verdict verdict) {
  switch (verdict) {
    case v1::VERDICT_FITS:
      return ExitCode::kDone;
    case v1::VERDICT_AT_RISK:
      return ExitCode::kAtRisk;
    case v1::VERDICT_DOES_NOT_FIT:
      return ExitCode::kDoesNotFit;
    default:
      return ExitCode::kFailure;
  }
}

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_IO_EXIT_CODE_H_
