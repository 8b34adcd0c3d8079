// Jobs with adapters, and what a layer of theirs trains and keeps.
#ifndef PLIMSOLL_TESTS_ESTIMATOR_PASSES_ADAPTED_H_
#define PLIMSOLL_TESTS_ESTIMATOR_PASSES_ADAPTED_H_

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "estimator/program/program.h"
#include "tests/testing/jobs.h"

namespace plimsoll {

// SmallJob(): four layers; B 2, S 32, H 64, A 64, C 32, F 128, V 256; all in 16 bits.
inline JobSpec AdapterJob(std::vector<std::string> targets = {"q_proj"}) {
  JobSpec job = With(SmallJob(), "ddp", "bf16-pure");
  AdapterSpec& adapter = job.training.adapter;
  adapter.method = "lora";
  adapter.rank = 4;
  adapter.target_modules = std::move(targets);
  return job;
}

inline Program AfterAdapters(const JobSpec& job) {
  return ProgramAfter(Valid(job), PassId::kAdapters);
}

// Tensors that backward of a block reads, each once.
inline std::vector<std::string> Saved(const Block& block) {
  std::vector<std::string> names;
  for (const Op& op : block.ops) {
    for (const TensorId id : op.saved) {
      const std::string name(block.tensors[block.tensors[id].storage].name);
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

inline std::vector<std::string> Trained(const Block& block) {
  std::vector<std::string> names;
  for (const Parameter& parameter : block.parameters) {
    if (!parameter.frozen) names.emplace_back(parameter.name);
  }
  return names;
}

inline absl::string_view HeldUntil(const Block& block, absl::string_view tensor) {
  const uint8_t until = FindTensor(block, tensor).held_until;
  return until < block.ops.size() ? block.ops[until].name : "nothing";
}

inline JobSpec Under(const char* trainer, JobSpec job) {
  job.runtime.trainer = trainer;
  job.cluster.gpu_count = 1;
  return job;
}

}  // namespace plimsoll

#endif  // PLIMSOLL_TESTS_ESTIMATOR_PASSES_ADAPTED_H_
