// cuBLAS and cuBLASLt where they answer something: products themselves only take what they are
// given, and are in accepted.txt.
// Source of the signatures: cuBLAS 13, cublas_api.h and cublasLt.h.
#include "client/measure/phantom/cuda_types.h"
#include "client/measure/phantom/handle.h"

namespace plimsoll {
namespace {

constexpr size_t kCublasLtVersion = 130400;

}  // namespace

PHANTOM_EXPORT int cublasCreate_v2(void** handle) {
  *handle = NewHandle();
  return 0;
}

PHANTOM_EXPORT int cublasGetMathMode(void*, int* mode) {
  *mode = 0;  // CUBLAS_DEFAULT_MATH
  return 0;
}

PHANTOM_EXPORT int cublasGetPointerMode_v2(void*, int* mode) {
  *mode = 0;  // CUBLAS_POINTER_MODE_HOST
  return 0;
}

PHANTOM_EXPORT size_t cublasLtGetVersion() { return kCublasLtVersion; }

PHANTOM_EXPORT int cublasLtMatmulDescCreate(void** descriptor, int, int) {
  *descriptor = NewHandle();
  return 0;
}

PHANTOM_EXPORT int cublasLtMatrixLayoutCreate(void** layout, int, uint64_t, uint64_t, int64_t) {
  *layout = NewHandle();
  return 0;
}

PHANTOM_EXPORT int cublasLtMatmulPreferenceCreate(void** preference) {
  *preference = NewHandle();
  return 0;
}

// One algorithm that needs no workspace; torch allocates the workspace that it always does.
PHANTOM_EXPORT int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*,
                                                  int requested, MatmulHeuristic* results,
                                                  int* returned) {
  if (requested > 0) results[0] = {};
  *returned = requested > 0 ? 1 : 0;
  return 0;
}

}  // namespace plimsoll
