#include "server/catalog/gpu_names.h"

#include "estimator/job/validate_sections.h"
#include "server/catalog/catalog.h"

namespace plimsoll {
namespace {

// The GPUs alone: all models take fifty times as long to parse.
const Catalog& LoadGpus() {
  static const Catalog* const gpus = [] {
    for (const DataFile& file : EmbeddedFiles()) {
      if (file.path == "gpus.yaml") return new Catalog(ParseCatalog({file}).value());
    }
    return new Catalog;
  }();
  return *gpus;
}

}  // namespace

std::vector<std::string> GpusCalled(const std::string& name) {
  const Catalog& gpus = LoadGpus();
  if (const AmbiguousGpu* const ambiguous = FindAmbiguousGpu(name, gpus)) return ambiguous->ids;
  const Gpu* const gpu = FindGpu(name, gpus);
  if (gpu == nullptr) return {};
  return {gpu->id};
}

}  // namespace plimsoll
