// Jobs that tests begin with and edit one field of, and short ways to a
// program, an estimate or the words of a refusal.
#ifndef PLIMSOLL_TESTS_TESTING_JOBS_H_
#define PLIMSOLL_TESTS_TESTING_JOBS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "estimator/answer/estimate.h"
#include "estimator/job/job.h"
#include "estimator/passes/pass.h"
#include "estimator/program/program.h"
#include "estimator/step/peak.h"

namespace plimsoll {

// Two models (gpt2-xl, llama-3.1-8b with the hub's id hub/Llama-8B) and four GPUs (h100-80gb-sxm
// with alias h100, a100-80gb-sxm with alias a100, which may mean others, v100-32gb-sxm, rtx-4090).
const Catalog& SmallCatalog();

// A Llama of four layers, H 64, N 4, K 2, F 128, V 256, on one A100 with ddp;
// S 32, micro-batch 2.
JobSpec SmallJob();
// The transformer that SmallJob() and TransformerJob() spell out.
TransformerSpec& Shape(JobSpec& job);
// Llama 3.1 8B on eight H100 with Megatron-Core; S 4096.
JobSpec Llama8B();
// GPT-2 XL in fp16 on one V100-like GPU with ddp; S 1000, micro-batch 32.
JobSpec Gpt2Xl();
// A classic block: LayerNorm, biases, GELU of 4 H, dropout, learned positions.
JobSpec ClassicJob();
// A Llama of 2.3 billion parameters on eight RTX 4090 with Megatron-Core, 16 times 2048 tokens
// a step: as it is, it does not fit; some shardings do.
JobSpec TightJob();
// `job` under a framework and precision.
JobSpec With(JobSpec job, absl::string_view framework, absl::string_view preset = "bf16-mixed");

// `job` with its model as `change` leaves it: facts that no field spells out.
JobSpec WithModel(JobSpec job, absl::FunctionRef<void(Transformer&)> change);

// `job` with its matrices and its sequence over that many ranks.
JobSpec WithSequenceParallelism(JobSpec job, int64_t ranks);

// The job made valid, its program after all passes or those up to `last`.
// They throw what Validate says where it is refused.
ValidJob Valid(const JobSpec& job);
Program Lowered(const ValidJob& job);
Program ProgramAfter(const ValidJob& job, PassId last);
Program ProgramOf(const JobSpec& job);
MemoryEstimate Estimate(const JobSpec& job);
MemoryEstimate EstimateInFull(const JobSpec& job);  // with trace and ledger
// Every field that a job sets, as "<path>=<value>".
std::string Spelled(JobSpec job);
// Each violation as "<field>: <value>; <rule>"; none where the job is valid.
std::vector<std::string> Refusals(const JobSpec& job);

const Block& FindBlock(const Program& program, absl::string_view name);
const Tensor& FindTensor(const Block& block, absl::string_view name);
const Op& FindOp(const Block& block, absl::string_view name);
const Parameter& FindParameter(const Block& block, absl::string_view name);
// Null where there is none of that name.
const State* FindState(const Program& program, absl::string_view name);

// Kept bytes of one layer for one micro-batch, and of the tensors alone whose
// names are given.
int64_t KeptByLayer(const Program& program, absl::string_view block = "layer");
int64_t KeptNamed(const Block& block, const std::vector<absl::string_view>& names);
// The most that any rank allocates. Units: bytes.
int64_t PeakBytes(const JobSpec& job);
// Bytes of all states of a role or a part that are alive at `phase` of a steady
// step on the first stage.
int64_t RoleBytesAt(const Program& program, Role role, Phase phase);

}  // namespace plimsoll

#endif  // PLIMSOLL_TESTS_TESTING_JOBS_H_
