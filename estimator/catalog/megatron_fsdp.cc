#include "estimator/catalog/megatron_fsdp.h"

namespace plimsoll {
namespace {

// Newest first. Read in the branches of the releases.
constexpr MegatronFsdp kEras[] = {
    {.since = 20,
     .keeps_ends = true,
     .ends_look_ahead = false,
     .sums_in_fp32 = false,
     .units_share_states = true,
     .source = "core/distributed/fsdp/mcore_fsdp_adapter.py, fsdp_unit_modules"},
    {.since = 19,
     .keeps_ends = true,
     .ends_look_ahead = false,
     .sums_in_fp32 = false,
     .units_share_states = false,
     .source = "core/distributed/fsdp/mcore_fsdp_adapter.py, MixedPrecisionPolicy"},
    {.since = 18,
     .keeps_ends = true,
     .ends_look_ahead = false,
     .sums_in_fp32 = true,
     .units_share_states = false,
     .source = "megatron_fsdp/param_and_grad_buffer.py, AllGatherPipeline.reset "
               "(preserve_non_fsdp_units); megatron_fsdp.py, _root_pre_backward (all modules)"},
    {.since = 14,
     .keeps_ends = false,
     .ends_look_ahead = true,
     .sums_in_fp32 = true,
     .units_share_states = false,
     .source = "megatron_fsdp/megatron_fsdp.py, _pre_forward_param_unshard"},
};

}  // namespace

const MegatronFsdp* FindMegatronFsdp(int version) {
  for (const MegatronFsdp& era : kEras) {
    if (version < 0 || version >= era.since) return &era;
  }
  return nullptr;
}

}  // namespace plimsoll
