// Every rule of the quantization section, and what stands beside it.
#include <algorithm>

#include "estimator/job/job.h"
#include "gtest/gtest.h"
#include "tests/testing/refusals.h"

namespace plimsoll {
namespace {

JobSpec Job() {
  JobSpec job = With(SmallJob(), "ddp", "bf16-pure");
  job.training.adapter.method = "lora";
  job.training.quantization.format = "nf4";
  return job;
}

TEST(ValidateQuantizationTest, RefusesWhatIsNoFormat) {
  ExpectRefusals(
      Job(),
      {
          {"four bits of another kind",
           [](JobSpec& j) { j.training.quantization.format = "mxfp4"; },
           {"job.training.quantization.format: mxfp4; must be one of nf4, fp4, int8"}},
          {"another library's",
           [](JobSpec& j) { j.training.quantization.format = "hqq"; },
           {"job.training.quantization.format: hqq; not modelled yet: frozen weights but as "
            "bitsandbytes keeps them"}},
          {"no format",
           [](JobSpec& j) {
             j.training.quantization.format.reset();
             j.training.quantization.double_quantization = true;
           },
           {"job.training.quantization.format: unset; must be set with other fields of "
            "quantization"}},
          {"a dtype that no product reads",
           [](JobSpec& j) { j.training.quantization.compute_dtype = "fp8"; },
           {"job.training.quantization.compute_dtype: fp8; must be one of fp32, fp16, bf16"}},
          {"what is said of 4 bits beside 8",
           [](JobSpec& j) {
             j.training.quantization = {"int8", true, "bf16"};
           },
           {"job.training.quantization.double_quantization: true; is of 4 bits: what is "
            "multiplied in int8 has neither",
            "job.training.quantization.compute_dtype: bf16; is of 4 bits: what is multiplied in "
            "int8 has neither"}},
      });
}

TEST(ValidateQuantizationTest, RefusesWhatIsNotModelledBesideIt) {
  ExpectRefusals(
      Job(),
      {
          {"trained weights",
           [](JobSpec& j) { j.training.adapter = {}; },
           {"job.training.quantization.format: nf4; needs an adapter: quantized weights are not "
            "trained"}},
          {"wide weights that nothing casts",
           [](JobSpec& j) { j.training.precision.parameter_dtype = "fp32"; },
           {"job.training.precision.parameter_dtype: fp32; is modelled with quantized weights "
            "where the preset is fp32 or bf16-autocast"}},
          {"8 bits beside wide weights",
           [](JobSpec& j) {
             j.training.precision.preset = "bf16-autocast";
             j.training.precision.parameter_dtype = "fp32";
             j.training.quantization.format = "int8";
           },
           {"job.training.precision.parameter_dtype: fp32; is not modelled with int8"}},
          {"8 bits beside fp16",
           [](JobSpec& j) {
             j.training.precision.preset = "fp16-pure";
             j.training.quantization.format = "int8";
           },
           {"job.training.precision.preset: fp16-pure; is not modelled with int8"}},
          {"8 bits as qlora",
           [](JobSpec& j) {
             j.training.adapter.method = "qlora";
             j.training.quantization.format = "int8";
           },
           {"job.training.quantization.format: int8; is not what qlora is: beside 8 bits adapters "
            "are lora"}},
          {"wide scores",
           [](JobSpec& j) {
             j.training.precision.preset = "bf16-autocast";
             j.training.precision.parameter_dtype = "fp32";
             j.training.attention = "eager";
           },
           {"job.training.attention: eager; is not modelled with fp32 weights under autocast"}},
      });
}

TEST(ValidateQuantizationTest, WhoHasIt) {
  const auto refusal = [](const char* framework, const char* format) {
    JobSpec job = Job();
    job.runtime.framework = framework;
    job.training.quantization.format = format;
    job.training.adapter.adapter_dtype = "bf16";
    std::string all;
    for (const std::string& line : Refusals(job)) all += line + "\n";
    return all;
  };
  EXPECT_EQ(refusal("ddp", "nf4"), "");
  EXPECT_EQ(refusal("ddp", "fp4"), "");
  EXPECT_EQ(refusal("ddp", "int8"), "");
  EXPECT_THAT(refusal("fsdp1", "int8"), testing::HasSubstr("not held against its code"));
  EXPECT_EQ(refusal("fsdp1", "nf4"), "");
  EXPECT_THAT(refusal("fsdp2", "nf4"), testing::HasSubstr("job.runtime.trainer: unset; is not"));
}

// Whose layers run again by hooks is told that products of bytes hold what they read.
TEST(ValidateQuantizationTest, TellsOfWhatIsHeld) {
  JobSpec job = Job();
  job.runtime.trainer = "trl";
  const auto told = [&job](const char* format, const char* recompute) {
    job.training.quantization.format = format;
    job.training.recompute.mode = recompute;
    const ValidJob valid = Valid(job);
    return std::count_if(valid->warnings.begin(), valid->warnings.end(),
                         [](const Warning& at) { return at.code == "held-inputs"; });
  };
  EXPECT_EQ(told("int8", "full"), 1);
  EXPECT_EQ(told("int8", "none"), 0);
  EXPECT_EQ(told("nf4", "full"), 0);
  job.runtime.trainer = "hf-trainer";
  job.runtime.versions["hf-trainer"] = "4.57";
  EXPECT_EQ(told("int8", "full"), 0) << "its checkpoints are reentrant";
}

// accelerate leaves bytes unsharded, and what is trained as it was loaded.
TEST(ValidateQuantizationTest, Fsdp2LeavesThemOut) {
  JobSpec job = Job();
  job.runtime.framework = "fsdp2";
  job.runtime.trainer = "trl";
  job.training.precision.preset = "bf16-mixed";
  EXPECT_EQ(Valid(job)->adapter->dtype, DType::kBf16);
  EXPECT_EQ(Valid(job)->precision.master, DType::kNone);
  job.runtime.trainer = "hf-trainer";
  EXPECT_EQ(Valid(job)->adapter->dtype, DType::kFp32);
  EXPECT_EQ(Valid(job)->precision.master, DType::kFp32);
  job.runtime.versions["torch"] = "2.6";
  EXPECT_THAT(Refusals(job),
              testing::ElementsAre(
                  "job.runtime.versions.torch: 2.6; must be 2.7 or later: fsdp2 has to shard all "
                  "parameters before, and cannot those of bytes"));
}

// Under ZeRO what is trained has masters in fp32, which adapters are of where nothing is said.
TEST(ValidateQuantizationTest, WhatShardsAroundThem) {
  JobSpec job = Job();
  job.runtime.framework = "deepspeed";
  job.parallelism.zero_stage = 2;
  job.training.precision.preset = "bf16-mixed";
  EXPECT_EQ(Valid(job)->adapter->dtype, DType::kFp32);
  const auto refused = [](absl::string_view field) {
    return absl::StrCat("job.", field, "; is not modelled with quantized weights");
  };
  ExpectRefusals(job, {
                          {"whole weights that are gathered",
                           [](JobSpec& j) { j.parallelism.zero_stage = 3; },
                           {refused("parallelism.zero_stage: 3")}},
                          {"states in the host's memory",
                           [](JobSpec& j) { j.runtime.offload_optimizer = true; },
                           {refused("runtime.offload_optimizer: true")}},
                          {"FSDP2's parameters there",
                           [](JobSpec& j) {
                             j.runtime.framework = "fsdp2";
                             j.runtime.trainer = "hf-trainer";
                             j.parallelism.zero_stage.reset();
                             j.runtime.offload_parameters = true;
                           },
                           {refused("runtime.offload_parameters: true")}},
                      });
}

TEST(ValidateQuantizationTest, TrlNarrowsAdapters) {
  JobSpec job = Job();
  EXPECT_EQ(Valid(job)->adapter->dtype, DType::kFp32);
  job.runtime.trainer = "trl";
  EXPECT_EQ(Valid(job)->adapter->dtype, DType::kBf16);
  job.training.quantization = {};
  EXPECT_EQ(Valid(job)->adapter->dtype, DType::kFp32);
}

// Without a word of it qlora is over nf4; with one it is what that says.
TEST(ValidateQuantizationTest, QloraIsLoraOverNf4) {
  JobSpec job = Job();
  job.training.adapter.method = "qlora";
  job.training.quantization = {};
  const ValidJob valid = Valid(job);
  ASSERT_TRUE(valid->quantization.has_value());
  EXPECT_EQ(valid->quantization->format, DType::kNf4);
  EXPECT_EQ(valid->quantization->compute_dtype, DType::kBf16);
  EXPECT_FALSE(valid->quantization->double_quantization);
  job.training.quantization.format = "fp4";
  EXPECT_EQ(Valid(job)->quantization->format, DType::kFp4);
  job.training.adapter.method = "lora";
  job.training.quantization = {};
  EXPECT_FALSE(Valid(job)->quantization.has_value());
}

// prepare_model_for_kbit_training widens what is not quantized.
TEST(ValidateQuantizationTest, WidenedWeightsUnderAutocast) {
  JobSpec job = Job();
  job.training.precision.preset = "bf16-autocast";
  EXPECT_EQ(Valid(job)->precision.activation, DType::kBf16);
  job.training.precision.parameter_dtype = "fp32";
  const ValidJob valid = Valid(job);
  EXPECT_EQ(valid->precision.parameter, DType::kFp32);
  EXPECT_EQ(valid->precision.activation, DType::kFp32);
  EXPECT_EQ(valid->precision.Product(), DType::kBf16);
}

// torchtune's are torchao's: nf4 with scales that are quantized too, on one GPU.
TEST(ValidateQuantizationTest, TorchaosNf4) {
  JobSpec job = Job();
  job.cluster.gpu_count = 1;
  job.runtime.trainer = "torchtune";
  EXPECT_THAT(Refusals(job), testing::IsEmpty());
  ExpectRefusals(job, {
                          {"scales that are not quantized",
                           [](JobSpec& j) { j.training.quantization.double_quantization = false; },
                           {"job.training.quantization.double_quantization: false; must be true: "
                            "torchao's scales are quantized too"}},
                          {"another dtype",
                           [](JobSpec& j) { j.training.quantization.compute_dtype = "fp16"; },
                           {"job.training.quantization.compute_dtype: fp16; is modelled with "
                            "torchao's nf4 where it and weights are bf16"}},
                      });
  job.training.quantization.format = "fp4";
  EXPECT_FALSE(Refusals(job).empty());
}

}  // namespace
}  // namespace plimsoll
