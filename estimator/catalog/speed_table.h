// What a GPU and a framework reach of what the hardware could do: the table of
// fitted constants behind predicted times. tests/accuracy/fit_speed.py writes
// it.
#ifndef PLIMSOLL_ESTIMATOR_CATALOG_SPEED_TABLE_H_
#define PLIMSOLL_ESTIMATOR_CATALOG_SPEED_TABLE_H_

#include <string>
#include <vector>

#include "estimator/catalog/profile.h"

namespace plimsoll {

// One GPU type. Efficiencies are shares of the data sheet's figure, 0 to 1.
struct GpuSpeed {
  std::string gpu{};                // id
  double matrix_efficiency = 0;     // of the dense peak, of a product without end
  double matrix_half_gflop = 0;     // a product of this size reaches half of that
  double attention_efficiency = 0;  // of the dense peak, by fused kernels
  double memory_efficiency = 0;     // of memory bandwidth
  double link_efficiency = 0;       // of the interconnect in a node
  double network_efficiency = 0;    // of the network between nodes
  bool measured = false;            // false: by rule, from the data sheet
  double spread = 0;                // nine of ten measured times are within 1 + this
};

// One framework. Overlaps are shares of a collective's time, 0 to 1.
struct FrameworkSpeed {
  Framework framework = Framework::kDdp;
  double stack_factor = 1;        // compute takes so many times what it could
  double tensor_overlap = 0;      // hidden behind products
  double data_overlap = 0;        // of the backward that reductions may hide behind
  double kernel_seconds = 0;      // of the CPU, to launch one op
  double collective_seconds = 0;  // of the CPU, to launch one collective
  double hop_seconds = 0;         // of one step of a ring that crosses nodes
  double step_seconds = 0;        // each step
  bool measured = false;
  double spread = 0;
};

struct SpeedTable {
  std::string id;
  std::vector<GpuSpeed> gpus;
  std::vector<FrameworkSpeed> frameworks;
  GpuSpeed other_gpu;              // of GPUs without a row of their own
  FrameworkSpeed other_framework;  // of frameworks without one
};

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_CATALOG_SPEED_TABLE_H_
