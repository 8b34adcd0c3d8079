// Reads the table of GPUs.
#ifndef PLIMSOLL_SERVER_CATALOG_GPU_TABLE_H_
#define PLIMSOLL_SERVER_CATALOG_GPU_TABLE_H_

#include "absl/status/status.h"
#include "estimator/catalog/catalog.h"
#include "server/catalog/data_files.h"

namespace plimsoll {

// Adds the GPUs of gpus.yaml and their aliases to the catalog. Each row must
// give every field of Gpu; `nvswitch` and `link_domain_size` may be left out. An alias means every
// GPU whose id has all of its words: where these are several, it is marked as ambiguous.
//
// Errors: INVALID_ARGUMENT "<path>: <gpu>.<field>: <what is wrong>".
absl::Status ReadGpuTable(const DataFile& file, Catalog& catalog);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_CATALOG_GPU_TABLE_H_
