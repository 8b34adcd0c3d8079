// Random messages of any type from a seed, through reflection.
#ifndef PLIMSOLL_TESTS_TESTING_RANDOM_MESSAGE_H_
#define PLIMSOLL_TESTS_TESTING_RANDOM_MESSAGE_H_

#include <random>

#include "google/protobuf/message.h"

namespace plimsoll {

// Sets about half of the fields, also below: the smallest and largest numbers,
// texts to escape, empty messages and lists.
//
// Requires: the type does not contain itself, but for google.protobuf.Value
void FillAtRandom(std::mt19937_64& random, google::protobuf::Message* message);

}  // namespace plimsoll

#endif  // PLIMSOLL_TESTS_TESTING_RANDOM_MESSAGE_H_
