// Functions that torch asks for and the phantom does not stand in for.
#ifndef PLIMSOLL_CLIENT_MEASURE_PHANTOM_UNKNOWN_H_
#define PLIMSOLL_CLIENT_MEASURE_PHANTOM_UNKNOWN_H_

namespace plimsoll {

// Says once, on standard error, that nothing here knows `name`, and returns what its library
// returns where something is not supported.
long Unknown(const char* name);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_MEASURE_PHANTOM_UNKNOWN_H_
