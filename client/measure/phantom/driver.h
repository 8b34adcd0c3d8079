// What the runtime's stand-in needs of the driver's.
#ifndef PLIMSOLL_CLIENT_MEASURE_PHANTOM_DRIVER_H_
#define PLIMSOLL_CLIENT_MEASURE_PHANTOM_DRIVER_H_

#include "client/measure/phantom/cuda_types.h"

namespace plimsoll {

// Returns the library's own function of that name, or of a later version of it (`_v2`), else
// null: what is offered is taken for a way that works, so nothing else is.
void* FindInDriver(const char* name);

// What the runtime and the driver call an error, and say of it.
struct ErrorText {
  const char* runtime_name;
  const char* driver_name;
  const char* words;
};
const ErrorText& TextOf(Error error);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_MEASURE_PHANTOM_DRIVER_H_
