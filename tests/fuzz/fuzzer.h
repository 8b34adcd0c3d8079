// Fuzzers: each is a function of bytes that anybody may have sent, or of choices that the
// bytes make. It returns where the code keeps its promises.
#ifndef PLIMSOLL_TESTS_FUZZ_FUZZER_H_
#define PLIMSOLL_TESTS_FUZZ_FUZZER_H_

#include <string>

#include "absl/strings/string_view.h"

namespace plimsoll {

using Fuzzer = void(absl::string_view input);

// One a file, <name>.cc, which says what its input is.
Fuzzer FuzzHfConfig, FuzzHttpBytes, FuzzJobYaml, FuzzJobs, FuzzJson, FuzzPolicy, FuzzPrometheus,
    FuzzRequest, FuzzTables, FuzzWords;

// Returns the fuzzer of a name, as "hf_config". Ends the program where there is none.
Fuzzer* FuzzerNamed(absl::string_view name);

// A promise: where it is not kept, the program ends with these words and the fuzzer has a
// finding.
void Promise(bool kept, absl::string_view what);

// Takes the first line off the input.
absl::string_view TakeLine(absl::string_view* input);

// Returns the name of a file that holds the text, alone in its folder, until the next call.
std::string FileWith(absl::string_view text);

}  // namespace plimsoll

#endif  // PLIMSOLL_TESTS_FUZZ_FUZZER_H_
