// What stands for a stream, an event, a descriptor: an address that is no one else's.
#ifndef PLIMSOLL_CLIENT_MEASURE_PHANTOM_HANDLE_H_
#define PLIMSOLL_CLIENT_MEASURE_PHANTOM_HANDLE_H_

namespace plimsoll {

// Returns a new one. It is never freed: there are few, and who destroys one says nothing of who
// still holds it.
inline void* NewHandle() { return new char[64]{}; }

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_MEASURE_PHANTOM_HANDLE_H_
