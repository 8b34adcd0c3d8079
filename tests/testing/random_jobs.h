// Random jobs from numbers, as a seed or a fuzzer gives them: valid ones over everything
// that is modelled, and ones of which every field may be junk.
#ifndef PLIMSOLL_TESTS_TESTING_RANDOM_JOBS_H_
#define PLIMSOLL_TESTS_TESTING_RANDOM_JOBS_H_

#include <cstdint>
#include <random>

#include "absl/functional/function_ref.h"
#include "estimator/job/job.h"

namespace plimsoll {

// Returns any number; the same for ever would be asked for ever.
using RandomNumbers = absl::FunctionRef<uint64_t()>;

// Valid by construction: sizes are multiples of what must divide them, and each
// framework is asked only for what it has.
JobSpec RandomJob(RandomNumbers random);
JobSpec RandomJob(std::mt19937_64& random);
// The same under Megatron-Core, with experts that tokens are sent to.
JobSpec RandomDispatchedJob(std::mt19937_64& random);
// The same under a framework, fsdp2 or deepspeed, with what it offloads in the host's memory.
JobSpec RandomOffloadedJob(std::mt19937_64& random, absl::string_view framework);
// The same under TRL or torchtune, with inputs of layers in the host's memory.
JobSpec RandomJobOfOffloadedLayers(std::mt19937_64& random);
// The same, with matrix products in fp8.
JobSpec RandomFp8Job(std::mt19937_64& random);
// The same under Megatron-Core, with a layer that predicts one token further.
JobSpec RandomMtpJob(std::mt19937_64& random);
// The same, with Liger's kernels.
JobSpec RandomLigerJob(std::mt19937_64& random);

// The same under DeepSpeed without ZeRO, by an optimizer that sends signs, or under ddp by one that
// projects gradients.
JobSpec RandomSteppedJob(std::mt19937_64& random);
// A student under ddp or DeepSpeed, of SmallCatalog's Llama.
JobSpec RandomDistilledJob(std::mt19937_64& random);
// Of state-space layers alone, whose residuals may be fp32.
JobSpec RandomMambaJob(std::mt19937_64& random);
// Of Megatron-FSDP, Megatron-Core's ZeRO 2 and 3, with experts and without.
JobSpec RandomMegatronFsdpJob(std::mt19937_64& random);

// Fields are unset, in range, out of range, the smallest and largest numbers,
// not a number, unknown words, or bytes.
JobSpec JunkJob(std::mt19937_64& random);

// Returns how many of `count` random cases a test tries: all, or, where sanitizers look
// on and each takes ten times as long, a tenth. PLIMSOLL_ROUNDS in the environment is how many
// times as many, for a long run by hand.
int Rounds(int count);

}  // namespace plimsoll

#endif  // PLIMSOLL_TESTS_TESTING_RANDOM_JOBS_H_
