// What a thread has worked.
#ifndef PLIMSOLL_SERVER_LOAD_THREAD_TIME_H_
#define PLIMSOLL_SERVER_LOAD_THREAD_TIME_H_

#include <chrono>
#include <ctime>

namespace plimsoll {

// Returns the processor time of this thread, since it began.
inline std::chrono::nanoseconds ThreadTime() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_LOAD_THREAD_TIME_H_
