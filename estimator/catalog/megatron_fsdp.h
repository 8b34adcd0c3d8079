// What Megatron-FSDP, which Megatron-Core's ZeRO 2 and 3 are, does that moves bytes: a row for each
// of its eras.
#ifndef PLIMSOLL_ESTIMATOR_CATALOG_MEGATRON_FSDP_H_
#define PLIMSOLL_ESTIMATOR_CATALOG_MEGATRON_FSDP_H_

#include "absl/strings/string_view.h"

namespace plimsoll {

struct MegatronFsdp {
  int since;                // first release of Megatron-Core: major * 1000 + minor
  bool keeps_ends;          // what is outside the layers stays gathered over the step
  bool ends_look_ahead;     // the final norm's forward gathers the first layers once more
  bool sums_in_fp32;        // gradients, where the job does not say; else in the weights' dtype
  bool units_share_states;  // layers are units where weights are not sharded, too
  absl::string_view source;
};

// Returns the era of a release of Megatron-Core (-1 for the newest); null where it is older than
// all.
const MegatronFsdp* FindMegatronFsdp(int version);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_CATALOG_MEGATRON_FSDP_H_
