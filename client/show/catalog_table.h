// The catalog's lists to read.
#ifndef PLIMSOLL_CLIENT_SHOW_CATALOG_TABLE_H_
#define PLIMSOLL_CLIENT_SHOW_CATALOG_TABLE_H_

#include <string>

#include "client/io/terminal.h"
#include "plimsoll/v1/planner.pb.h"

namespace plimsoll {

std::string ToTable(const v1::ListModelsResponse& response, const Terminal& terminal);
std::string ToTable(const v1::ListGpusResponse& response, const Terminal& terminal);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_SHOW_CATALOG_TABLE_H_
