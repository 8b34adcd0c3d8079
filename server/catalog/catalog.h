// Reads the catalog of models and GPUs from its data files: a config.json for
// each model, one YAML table for all GPUs.
#ifndef PLIMSOLL_SERVER_CATALOG_CATALOG_H_
#define PLIMSOLL_SERVER_CATALOG_CATALOG_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "estimator/catalog/catalog.h"
#include "server/catalog/config_struct.h"
#include "server/catalog/data_files.h"

namespace plimsoll {

// Parses data files: models/<id>.json is the model <id>; hf_ids.yaml holds other
// names of the models, gpus.yaml the GPUs, calibration.yaml the shares of upper bounds, speed.yaml
// the constants behind times; others are left alone.
//
// Errors: INVALID_ARGUMENT "<path>: <what is wrong>" for the first file that
//         does not parse, for a model that ReadHfConfig refuses, for a GPU field
//         that is missing, unknown or of a wrong type, and for other names of a
//         model that there is not.
absl::StatusOr<Catalog> ParseCatalog(absl::Span<const DataFile> files);

// Returns the embedded catalog, parsed once. Ends the program with a message
// where the data is broken, which a test keeps from happening.
const Catalog& LoadCatalog();

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_CATALOG_CATALOG_H_
