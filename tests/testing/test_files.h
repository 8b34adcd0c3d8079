// Files that tests write, which are gone when their process ends.
#ifndef PLIMSOLL_TESTS_TESTING_TEST_FILES_H_
#define PLIMSOLL_TESTS_TESTING_TEST_FILES_H_

#include <string>

namespace plimsoll {

// Returns a path of the test's own, where nothing is yet, in the folder for such; whatever is
// there when the process ends is removed.
std::string TestPath(const std::string& name);

// Writes such a file, and returns its path.
std::string WriteTestFile(const std::string& name, const std::string& text);

}  // namespace plimsoll

#endif  // PLIMSOLL_TESTS_TESTING_TEST_FILES_H_
