// Bytes of an element, and the names that users write.
#include "estimator/base/dtype.h"

#include "estimator/base/units.h"
#include "gtest/gtest.h"

namespace plimsoll {
namespace {

struct Row {
  DType dtype;
  const char* name;
  int64_t bytes_of_1024;
  bool asked;  // whether users may ask for it
};

constexpr Row kRows[] = {
    {DType::kNone, "none", 0, true},       {DType::kFp32, "fp32", 4096, true},
    {DType::kFp16, "fp16", 2048, true},    {DType::kBf16, "bf16", 2048, true},
    {DType::kFp8, "fp8", 1024, true},      {DType::kInt8, "int8", 1024, false},
    {DType::kBool, "bool", 1024, false},   {DType::kInt32, "int32", 4096, false},
    {DType::kInt64, "int64", 8192, false}, {DType::kFp64, "fp64", 8192, false},
};

TEST(DTypeTest, HasBytesAndAName) {
  for (const Row& row : kRows) {
    EXPECT_EQ(Name(row.dtype), row.name);
    EXPECT_EQ(Bytes(row.dtype, 1024), row.bytes_of_1024) << row.name;
    EXPECT_EQ(Bytes(row.dtype, 0), 0) << row.name;
    const std::optional<DType> parsed = ParseDType(row.name);
    EXPECT_EQ(parsed.has_value(), row.asked) << row.name;
    EXPECT_EQ(parsed.value_or(row.dtype), row.dtype) << row.name;
  }
}

TEST(DTypeTest, KnowsNoOtherName) {
  for (const char* name : {"", "FP32", "float32", "bf16 ", "fp64"}) {
    EXPECT_EQ(ParseDType(name), std::nullopt) << name;
  }
}

TEST(DTypeTest, BytesStopAtTheLargestValue) {
  for (const Row& row : kRows) {
    if (row.dtype == DType::kNone) continue;
    EXPECT_GE(Bytes(row.dtype, kSaturated), kSaturated) << row.name;
  }
}

}  // namespace
}  // namespace plimsoll
