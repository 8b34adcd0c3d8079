// Virtual tokens in front of each sequence: prompts, and prefixes of keys and values.
#ifndef PLIMSOLL_ESTIMATOR_PASSES_VIRTUAL_TOKENS_H_
#define PLIMSOLL_ESTIMATOR_PASSES_VIRTUAL_TOKENS_H_

#include "estimator/job/job.h"
#include "estimator/program/program.h"

namespace plimsoll {

// Makes them beside what the embedding gives. A prompt's P stand in front of that; a prefix's keys
// and values are copied for each layer.
//   prompt  [B, S - P, H] -> [B, S, H]      prefix  [B, P, 2 L C], L layers
// Source: Lester et al. 2021 (arXiv 2104.08691), section 2; Liu et al. 2021 (arXiv 2103.10385),
// section 3; Li and Liang 2021 (arXiv 2101.00190), section 4; peft peft_model.py,
// PeftModelForCausalLM.forward, PeftModel.get_prompt.
void AddVirtualTokens(const Job& job, Block& embedding);

// What PEFT's forward holds until it returns, loss and all: the prompt and the sequence with it, or
// the cache of keys and values, where attention does not keep these themselves.
// Source: peft peft_model.py, PeftModelForCausalLM.forward (inputs_embeds, kwargs).
void HoldVirtualTokens(const Job& job, Program& program);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PASSES_VIRTUAL_TOKENS_H_
