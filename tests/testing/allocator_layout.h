// The memory of a caching allocator as a line of text.
#ifndef PLIMSOLL_TESTS_TESTING_ALLOCATOR_LAYOUT_H_
#define PLIMSOLL_TESTS_TESTING_ALLOCATOR_LAYOUT_H_

#include <string>

#include "estimator/allocator/caching_allocator.h"

namespace plimsoll {

// Blocks by address with their sizes: A allocated, P pending, F free, U
// unmapped. Segments are apart by "|". What is unmapped up to the end of a
// segment is left out.
//
// Example: "A4M U20M F16M | F2047K"
std::string Layout(const CachingAllocator& allocator);

}  // namespace plimsoll

#endif  // PLIMSOLL_TESTS_TESTING_ALLOCATOR_LAYOUT_H_
