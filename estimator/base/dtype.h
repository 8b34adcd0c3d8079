// Number formats and the bytes of one element.
#ifndef PLIMSOLL_ESTIMATOR_BASE_DTYPE_H_
#define PLIMSOLL_ESTIMATOR_BASE_DTYPE_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "estimator/base/units.h"

namespace plimsoll {

// Number formats. kNone means that the tensor does not exist (no master
// weights). kNf4 and kFp4 are two elements in a byte, without their scales.
// Source: bitsandbytes/functional.py, quantize_4bit.
// kFp8Blocks has scales of blocks: a byte for each 32 elements (mxfp8), or, as many bytes, a fp32
// for each 128; kFp4Blocks is two elements in a byte, and a byte for each 16 (nvfp4).
// Source: transformer_engine/pytorch/tensor/mxfp8_tensor.py, float8_blockwise_tensor.py,
// nvfp4_tensor.py.
enum class DType : uint8_t {
  kNone,
  kFp32,
  kFp16,
  kBf16,
  kFp8,
  kBool,
  kInt32,
  kInt64,
  kNf4,
  kFp4,
  kInt8,
  kFp8Blocks,
  kFp4Blocks,
  kFp64,
};

// Elements that share one byte of scale in kFp8Blocks, and in kFp4Blocks.
inline constexpr int64_t kFp8BlockSize = 32;
inline constexpr int64_t kFp4BlockSize = 16;

// Returns the bytes of `elements` elements; saturates.
inline int64_t Bytes(DType dtype, int64_t elements) {
  switch (dtype) {
    case DType::kNone:
      return 0;
    case DType::kFp32:
    case DType::kInt32:
      return Multiply(elements, 4);
    case DType::kFp16:
    case DType::kBf16:
      return Multiply(elements, 2);
    case DType::kFp8:
    case DType::kBool:
    case DType::kInt8:
      return elements;
    case DType::kNf4:
    case DType::kFp4:
      return CeilDivide(elements, 2);
    case DType::kFp8Blocks:
      return Add(elements, CeilDivide(elements, kFp8BlockSize));
    case DType::kFp4Blocks:
      return Add(CeilDivide(elements, 2), CeilDivide(elements, kFp4BlockSize));
    case DType::kInt64:
    case DType::kFp64:
      return Multiply(elements, 8);
  }
  return 0;
}

// Whether a product of few bits reads it.
inline bool IsNarrow(DType dtype) {
  return dtype == DType::kFp8 || dtype == DType::kFp8Blocks || dtype == DType::kFp4Blocks;
}

// Returns the name users write, as "bf16".
absl::string_view Name(DType dtype);

// Returns the dtype that users may ask for by this name ("fp32", "fp16",
// "bf16", "fp8", "none"), or nothing.
std::optional<DType> ParseDType(absl::string_view name);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_BASE_DTYPE_H_
