#include "estimator/catalog/context_bytes.h"

namespace plimsoll {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;

}  // namespace

int64_t ContextBytes(GpuArchitecture architecture) {
  switch (architecture) {
    case GpuArchitecture::kVolta:
    case GpuArchitecture::kTuring:
      return 1271 * kMib;
    case GpuArchitecture::kAda:
      return 426 * kMib;
    case GpuArchitecture::kAmpere:
    case GpuArchitecture::kHopper:
    case GpuArchitecture::kBlackwell:
    case GpuArchitecture::kCdna2:
    case GpuArchitecture::kCdna3:
      return 768 * kMib;
  }
  return 768 * kMib;
}

}  // namespace plimsoll
