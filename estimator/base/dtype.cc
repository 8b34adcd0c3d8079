#include "estimator/base/dtype.h"

namespace plimsoll {

absl::string_view Name(DType dtype) {
  switch (dtype) {
    case DType::kNone:
      return "none";
    case DType::kFp32:
      return "fp32";
    case DType::kFp16:
      return "fp16";
    case DType::kBf16:
      return "bf16";
    case DType::kFp8:
    case DType::kFp8Blocks:
      return "fp8";
    case DType::kInt8:
      return "int8";
    case DType::kBool:
      return "bool";
    case DType::kInt32:
      return "int32";
    case DType::kInt64:
      return "int64";
    case DType::kFp64:
      return "fp64";
    case DType::kNf4:
      return "nf4";
    case DType::kFp4:
    case DType::kFp4Blocks:
      return "fp4";
  }
  return "none";
}

std::optional<DType> ParseDType(absl::string_view name) {
  for (DType dtype : {DType::kNone, DType::kFp32, DType::kFp16, DType::kBf16, DType::kFp8}) {
    if (Name(dtype) == name) return dtype;
  }
  return std::nullopt;
}

}  // namespace plimsoll
