// What ends work before it is done.
#ifndef PLIMSOLL_ESTIMATOR_BASE_INTERRUPT_H_
#define PLIMSOLL_ESTIMATOR_BASE_INTERRUPT_H_

#include <functional>

namespace plimsoll {

// Asked now and then; once true, always true: nobody waits for the result. Whoever asked
// returns at once, and what it returns is of no use. Empty: never.
using Interrupt = std::function<bool()>;

inline bool IsInterrupted(const Interrupt& interrupt) { return interrupt && interrupt(); }

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_BASE_INTERRUPT_H_
