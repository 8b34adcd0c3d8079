// Ids of the Hugging Face hub: other names of the catalog's models.
#ifndef PLIMSOLL_SERVER_CATALOG_HF_ID_TABLE_H_
#define PLIMSOLL_SERVER_CATALOG_HF_ID_TABLE_H_

#include "absl/status/statusor.h"
#include "estimator/catalog/catalog.h"
#include "server/catalog/data_files.h"

namespace plimsoll {

// Reads hf_ids.yaml.
//
// Errors: INVALID_ARGUMENT "<path>: <id>: is already of llama-3.1-8b", and what else is
//         no such table
absl::StatusOr<HfIdTable> ReadHfIdTable(const DataFile& file);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_CATALOG_HF_ID_TABLE_H_
