// Searches over the spaces that the budgets name: how long they take, and how
// the candidates come to be so many.
#include <benchmark/benchmark.h>

#include <variant>

#include "estimator/search/recommend.h"
#include "server/catalog/catalog.h"
#include "tests/bench/jobs.h"

namespace plimsoll {
namespace {

bool Never(double) { return false; }

// `detail` of what is returned: the search itself is by summary.
RecommendSpec Spec(const std::string& name, const char* detail) {
  RecommendSpec spec;
  spec.job = ReadJob(name);
  spec.job.detail = detail;
  return spec;
}

void Recommend(benchmark::State& state, const RecommendSpec& spec) {
  const Catalog& catalog = LoadCatalog();
  const auto answer = RecommendConfig(spec, catalog, Never);
  if (const auto* violations = std::get_if<Violations>(&answer)) {
    state.SkipWithError(ToText(violations->front()).c_str());
    return;
  }
  const auto& found = std::get<Recommendation>(answer);
  if (found.candidates.empty()) {
    state.SkipWithError("nothing fits");
    return;
  }
  for (auto _ : state) benchmark::DoNotOptimize(RecommendConfig(spec, catalog, Never));
  state.counters["legal"] = static_cast<double>(found.legal_count);
  state.counters["estimated"] = static_cast<double>(found.estimated_count);
  state.counters["fit"] = static_cast<double>(found.fit_count);
  state.counters["front"] = static_cast<double>(found.front.size());
  state.counters["legal/s"] = benchmark::Counter(static_cast<double>(found.legal_count),
                                                 benchmark::Counter::kIsIterationInvariantRate);
}

void Search175B(benchmark::State& state) { Recommend(state, Spec("search_175b", "summary")); }
BENCHMARK(Search175B)->Unit(benchmark::kMillisecond);

void Search175BReplay(benchmark::State& state) { Recommend(state, Spec("search_175b", "replay")); }
BENCHMARK(Search175BReplay)->Unit(benchmark::kMillisecond);

void Search405B(benchmark::State& state) { Recommend(state, Spec("search_405b", "summary")); }
BENCHMARK(Search405B)->Unit(benchmark::kMillisecond);

// The time must not grow with the number of GPUs.
void SearchGpus(benchmark::State& state) {
  RecommendSpec spec = Spec("search_175b", "summary");
  spec.job.cluster.gpu_count = state.range(0);
  spec.job.training.global_batch_size = 2048;
  Recommend(state, spec);
}
BENCHMARK(SearchGpus)->Arg(1024)->Arg(16384)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace plimsoll

BENCHMARK_MAIN();
