// The version of the programs.
#ifndef PLIMSOLL_SERVER_WIRE_VERSION_H_
#define PLIMSOLL_SERVER_WIRE_VERSION_H_

namespace plimsoll {

// Returns the version of CMake's project(), as "0.1.0".
const char* Version();

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_WIRE_VERSION_H_
