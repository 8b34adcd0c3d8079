#include "client/measure/gpu_facts.h"

namespace plimsoll {
namespace {

// Source: NVIDIA's list of CUDA GPUs.
constexpr GpuFacts kFacts[] = {
    {"v100-16gb-sxm", "Tesla V100-SXM2-16GB", "7.0"},
    {"v100-32gb-sxm", "Tesla V100-SXM2-32GB", "7.0"},
    {"v100-16gb-pcie", "Tesla V100-PCIE-16GB", "7.0"},
    {"v100-32gb-pcie", "Tesla V100-PCIE-32GB", "7.0"},
    {"t4-16gb", "Tesla T4", "7.5"},
    {"a100-40gb-sxm", "NVIDIA A100-SXM4-40GB", "8.0"},
    {"a100-40gb-pcie", "NVIDIA A100-PCIE-40GB", "8.0"},
    {"a100-80gb-sxm", "NVIDIA A100-SXM4-80GB", "8.0"},
    {"a100-80gb-pcie", "NVIDIA A100 80GB PCIe", "8.0"},
    {"a800-80gb-sxm", "NVIDIA A800-SXM4-80GB", "8.0"},
    {"a30-24gb", "NVIDIA A30", "8.0"},
    {"a10-24gb", "NVIDIA A10", "8.6"},
    {"a10g-24gb", "NVIDIA A10G", "8.6"},
    {"a40-48gb", "NVIDIA A40", "8.6"},
    {"rtx-a6000-48gb", "NVIDIA RTX A6000", "8.6"},
    {"rtx-3090-24gb", "NVIDIA GeForce RTX 3090", "8.6"},
    {"l4-24gb", "NVIDIA L4", "8.9"},
    {"l40-48gb", "NVIDIA L40", "8.9"},
    {"l40s-48gb", "NVIDIA L40S", "8.9"},
    {"rtx-4090-24gb", "NVIDIA GeForce RTX 4090", "8.9"},
    {"rtx-6000-ada-48gb", "NVIDIA RTX 6000 Ada Generation", "8.9"},
    {"h100-80gb-sxm", "NVIDIA H100 80GB HBM3", "9.0"},
    {"h100-80gb-pcie", "NVIDIA H100 PCIe", "9.0"},
    {"h100-94gb-nvl", "NVIDIA H100 NVL", "9.0"},
    {"h100-96gb-sxm", "NVIDIA H100", "9.0"},
    {"h800-80gb-sxm", "NVIDIA H800", "9.0"},
    {"h20-96gb-sxm", "NVIDIA H20", "9.0"},
    {"gh200-96gb", "NVIDIA GH200 480GB", "9.0"},
    {"h200-141gb-sxm", "NVIDIA H200", "9.0"},
    {"b200-180gb", "NVIDIA B200", "10.0"},
    {"rtx-5090-32gb", "NVIDIA GeForce RTX 5090", "12.0"},
    {"rtx-pro-6000-96gb", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "12.0"},
};

}  // namespace

const GpuFacts* FindGpuFacts(absl::string_view gpu) {
  for (const GpuFacts& facts : kFacts) {
    if (gpu == facts.gpu) return &facts;
  }
  return nullptr;
}

}  // namespace plimsoll
