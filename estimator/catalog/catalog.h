// Named models and GPUs, and the calibration: parsed by the caller and handed in.
#ifndef PLIMSOLL_ESTIMATOR_CATALOG_CATALOG_H_
#define PLIMSOLL_ESTIMATOR_CATALOG_CATALOG_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "estimator/catalog/calibration.h"
#include "estimator/catalog/model.h"
#include "estimator/catalog/speed_table.h"

namespace plimsoll {

// What decides memory and speed per GPU family.
enum class GpuArchitecture : uint8_t {
  kVolta,
  kTuring,
  kAmpere,
  kAda,
  kHopper,
  kBlackwell,
  kCdna2,
  kCdna3,
};

constexpr bool IsNvidia(GpuArchitecture of) { return of <= GpuArchitecture::kBlackwell; }

// One GPU. Units: bytes; bytes per second; 10^12 operations per second, dense.
struct Gpu {
  std::string id;  // as "h100-80gb-sxm"
  std::vector<std::string> aliases;
  GpuArchitecture architecture = GpuArchitecture::kAmpere;
  int64_t multiprocessor_count = 0;           // over which kernels split their work; 0: not known
  int64_t threads_per_multiprocessor = 2048;  // that it holds at once
  int64_t driver_memory_bytes = 0;            // as nvidia-smi prints it
  int64_t runtime_memory_bytes = 0;           // as cudaMemGetInfo does: the verdict's figure
  int64_t memory_bandwidth_bytes_per_second = 0;
  std::map<std::string, double> teraflops;  // by dtype: fp32, tf32, fp16, bf16, fp8, fp4
  std::string interconnect;
  int64_t interconnect_bytes_per_second = 0;  // one direction
  int64_t network_bytes_per_second = 0;       // of each GPU to other nodes, one direction
  int64_t link_domain_size = 0;  // GPUs that its links join, of several nodes; 0: a node's alone
  bool nvswitch = false;         // all GPUs of a node talk over switches (NVLS from Hopper on)
  std::string source;

  // Whether it is a Blackwell of compute capability 12.0, which those of workstations are, without
  // NVLink; those of data centres are 10.0 and 10.3.
  // Source: CUDA C++ Programming Guide 13, "Compute Capabilities".
  bool IsWorkstationBlackwell() const {
    return architecture == GpuArchitecture::kBlackwell && interconnect.rfind("nvlink", 0) != 0;
  }
};

// A name that may mean several GPUs: an alias all of whose words several ids have, as
// `a100` or `h100-80gb`.
struct AmbiguousGpu {
  std::vector<std::string> ids;  // all that it may mean, sorted
  std::string others;            // "could also be a100-40gb-pcie or a100-40gb-sxm"
};

// An id as the Hugging Face hub has it, "meta-llama/Llama-3.1-8B", and the model that it is.
struct HfId {
  std::string id;
  std::string model;
};

// Ids by their lower case: the hub does not mind capitals.
using HfIdTable = std::map<std::string, HfId, std::less<>>;

// Lists are sorted by name. Lives longer than every ValidJob made with it.
struct Catalog {
  std::map<std::string, Transformer, std::less<>> models;
  HfIdTable hf_ids;  // other names of the models
  std::map<std::string, Gpu, std::less<>> gpus;
  std::map<std::string, std::string, std::less<>> gpu_aliases;      // lower case -> id
  std::map<std::string, AmbiguousGpu, std::less<>> ambiguous_gpus;  // by alias, lower case
  Calibration calibration;
  SpeedTable speed;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_CATALOG_CATALOG_H_
