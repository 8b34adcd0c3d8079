// What the runtime's stand-in needs of the driver's.
#ifndef PLIMSOLL_CLIENT_MEASURE_PHANTOM_DRIVER_H_
#define PLIMSOLL_CLIENT_MEASURE_PHANTOM_DRIVER_H_

#include "client/measure/phantom/cuda_types.h"

namespace plimsoll {

// Returns the library's own function of that name, or of a later version of it (`_v2`), else
// null: what is offered is taken for a way that works, so nothing else is.
void* FindInDriver(const char* name);

// What CUDA calls an error, and says of it.
const char* Name(Error error);
const char* Words(Error error);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_MEASURE_PHANTOM_DRIVER_H_
