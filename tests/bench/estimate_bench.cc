// One `summary` estimate in process, no trace or ledger asked for: the dense 3D
// job that the budget names, and how the cost grows with stages, layers and
// GPUs (with the last two it must not).
#include <benchmark/benchmark.h>

#include <string>
#include <variant>

#include "estimator/answer/estimate.h"
#include "google/protobuf/arena.h"
#include "server/catalog/catalog.h"
#include "server/observe/metrics.h"
#include "server/planner/planner.h"
#include "tests/bench/jobs.h"

namespace plimsoll {
namespace {

void Estimate(benchmark::State& state, const JobSpec& job) {
  const Catalog& catalog = LoadCatalog();
  const auto answer = EstimateMemory(job, catalog, {});
  if (const auto* violations = std::get_if<Violations>(&answer)) {
    state.SkipWithError(ToText(violations->front()).c_str());
    return;
  }
  for (auto _ : state) benchmark::DoNotOptimize(EstimateMemory(job, catalog, {}));
}

void Dense3D(benchmark::State& state) { Estimate(state, ReadJob("dense_3d")); }
BENCHMARK(Dense3D)->Unit(benchmark::kMicrosecond);

void Fsdp2(benchmark::State& state) { Estimate(state, ReadJob("fsdp2_8b")); }
BENCHMARK(Fsdp2)->Unit(benchmark::kMicrosecond);

void Stages(benchmark::State& state) {
  JobSpec job = ReadJob("spelled_out");
  std::get<TransformerSpec>(job.model.source).layer_count = 128;
  job.parallelism.pipeline_parallel_size = state.range(0);
  job.training.global_batch_size = 128;
  Estimate(state, job);
}
BENCHMARK(Stages)->Arg(1)->Arg(8)->Arg(64)->Unit(benchmark::kMicrosecond);

void Layers(benchmark::State& state) {
  JobSpec job = ReadJob("spelled_out");
  std::get<TransformerSpec>(job.model.source).layer_count = state.range(0);
  Estimate(state, job);
}
BENCHMARK(Layers)->Arg(8)->Arg(126)->Unit(benchmark::kMicrosecond);

void Gpus(benchmark::State& state) {
  JobSpec job = ReadJob("spelled_out");
  job.parallelism.data_parallel_size = state.range(0) / 8;
  Estimate(state, job);
}
BENCHMARK(Gpus)->Arg(8)->Arg(1 << 20)->Unit(benchmark::kMicrosecond);

// The first steps, allocation by allocation, of every class of ranks.
void Replay(benchmark::State& state, const JobSpec& job) {
  const Catalog& catalog = LoadCatalog();
  const EstimateOptions options{.detail = Detail::kReplay};
  const auto answer = EstimateMemory(job, catalog, options);
  const auto* const estimate = std::get_if<MemoryEstimate>(&answer);
  if (estimate == nullptr || estimate->detail != Detail::kReplay) {
    state.SkipWithError("is not replayed");
    return;
  }
  for (auto _ : state) benchmark::DoNotOptimize(EstimateMemory(job, catalog, options));
}

void Replay8B(benchmark::State& state) { Replay(state, ReadJob("fsdp2_8b")); }
BENCHMARK(Replay8B)->Unit(benchmark::kMicrosecond);

void Replay16Stages(benchmark::State& state) {
  JobSpec job = ReadJob("dense_3d");
  job.parallelism.pipeline_parallel_size = 16;
  job.parallelism.data_parallel_size = 4;
  Replay(state, job);
}
BENCHMARK(Replay16Stages)->Unit(benchmark::kMicrosecond);

// The stages between the first and the last are equal.
void Replay16StagesOfGpipe(benchmark::State& state) {
  JobSpec job = ReadJob("dense_3d");
  job.runtime.framework = "nanotron";
  job.training.recompute.mode = "none";
  job.training.global_batch_size = 128;
  job.parallelism.pipeline_schedule = "gpipe";
  job.parallelism.pipeline_parallel_size = 16;
  job.parallelism.data_parallel_size = 4;
  Replay(state, job);
}
BENCHMARK(Replay16StagesOfGpipe)->Unit(benchmark::kMicrosecond);

// Cost does not grow with GPUs.
void ReplayGpus(benchmark::State& state) {
  JobSpec job = ReadJob("spelled_out");
  job.parallelism.data_parallel_size = state.range(0) / 8;
  Replay(state, job);
}
BENCHMARK(ReplayGpus)->Arg(8)->Arg(1 << 20)->Unit(benchmark::kMicrosecond);

// What a server does with it: a message in, a message out, as bytes.
void Dense3DAsBytes(benchmark::State& state) {
  Metrics metrics;
  const Log log(LogLevel::kOff);
  const Planner planner(LoadCatalog(), {}, &metrics, &log);
  const std::string bytes = ReadSummaryRequest("dense_3d").SerializeAsString();
  for (auto _ : state) {
    google::protobuf::Arena arena;
    auto* request = google::protobuf::Arena::CreateMessage<v1::EstimateMemoryRequest>(&arena);
    WireWriter response;
    request->ParseFromString(bytes);
    if (!planner.EstimateMemory(*request, /*misread=*/{}, &response).ok()) {
      state.SkipWithError("refused");
      return;
    }
    benchmark::DoNotOptimize(response.bytes());
  }
}
BENCHMARK(Dense3DAsBytes)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace plimsoll

BENCHMARK_MAIN();
