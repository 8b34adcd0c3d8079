// A job of which a replay takes long.
#ifndef PLIMSOLL_TESTS_SERVER_LONG_JOB_H_
#define PLIMSOLL_TESTS_SERVER_LONG_JOB_H_

namespace plimsoll {

// Sixteen stages of five chunks: more than a million events.
inline constexpr char kLongJob[] = R"({"job": {
  "model": {"name": "llama-3.1-70b"},
  "training": {"sequence_length": 8192, "global_batch_size": 256, "micro_batch_size": 1},
  "parallelism": {"tensor_parallel_size": 4, "pipeline_parallel_size": 16, "zero_stage": 1,
                  "pipeline_schedule": "interleaved-1f1b", "virtual_pipeline_size": 5},
  "runtime": {"framework": "megatron-core"},
  "cluster": {"gpu": "h100-80gb-sxm", "gpu_count": 128}}})";

}  // namespace plimsoll

#endif  // PLIMSOLL_TESTS_SERVER_LONG_JOB_H_
