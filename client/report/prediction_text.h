// The prediction that travels with a job, as text.
#ifndef PLIMSOLL_CLIENT_REPORT_PREDICTION_TEXT_H_
#define PLIMSOLL_CLIENT_REPORT_PREDICTION_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "plimsoll/v1/planner.pb.h"

namespace plimsoll {

// Reads a prediction from `file` ("-" is standard input), or from PLIMSOLL_PREDICTION
// where that is empty: ProtoJSON, by itself or behind "plimsoll ", as it stands in
// Slurm's AdminComment.
//
// Errors: INVALID_ARGUMENT, all that is wrong with its form, a line each.
absl::StatusOr<v1::Prediction> ReadPrediction(const std::string& file);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_REPORT_PREDICTION_TEXT_H_
