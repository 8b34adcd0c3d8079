// Ids of the Hugging Face hub: other names of the catalog's models.
#ifndef PLIMSOLL_SERVER_CATALOG_HF_ID_TABLE_H_
#define PLIMSOLL_SERVER_CATALOG_HF_ID_TABLE_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/catalog/data_files.h"

namespace plimsoll {

// An id as the hub has it, "meta-llama/Llama-3.1-8B", and the model that it is.
struct HfId {
  std::string id;
  std::string model;
};

// Ids by their lower case: the hub does not mind capitals.
using HfIdTable = std::map<std::string, HfId, std::less<>>;

// Reads hf_ids.yaml.
//
// Errors: INVALID_ARGUMENT "<path>: <id>: is already of llama-3.1-8b", and what else is
//         no such table
absl::StatusOr<HfIdTable> ReadHfIdTable(const DataFile& file);

// Returns the embedded table; aborts where it is broken.
const HfIdTable& LoadHfIds();

// Returns the model that `name` is an id of; `name` itself where it is none.
std::string CatalogName(const std::string& name);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_CATALOG_HF_ID_TABLE_H_
