// Adapters beside products of layers: LoRA, DoRA and IA3.
#ifndef PLIMSOLL_ESTIMATOR_PASSES_ADAPTER_PRODUCT_H_
#define PLIMSOLL_ESTIMATOR_PASSES_ADAPTER_PRODUCT_H_

#include <cstddef>

#include "estimator/job/job.h"
#include "estimator/program/program.h"

namespace plimsoll {

// Puts the ops of an adapter behind the op `product`, where the job has one for it. Returns where
// the next op is.
//   LoRA  y = W x + s B A x
//   DoRA  y = m / |W + s B A| (W x + s B A x), the norm of each row
//   IA3   y = l (W x), or y = W (l x)
// Source: Hu et al. 2021 (arXiv 2106.09685), section 4.1; Liu et al. 2024 (arXiv 2402.09353),
// section 4.1; Liu et al. 2022 (arXiv 2205.05638), section 3.3; peft tuners/lora/layer.py, dora.py;
// ia3/layer.py.
size_t AdaptProduct(const Job& job, Block& block, size_t product);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PASSES_ADAPTER_PRODUCT_H_
