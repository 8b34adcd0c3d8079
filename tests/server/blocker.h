// Work that keeps one thread of a pool until the test has done with it.
#ifndef PLIMSOLL_TESTS_SERVER_BLOCKER_H_
#define PLIMSOLL_TESTS_SERVER_BLOCKER_H_

#include <latch>

#include "gtest/gtest.h"
#include "server/load/search_pool.h"

namespace plimsoll {

// A search that holds a thread of the server until it dies.
class Blocker {
 public:
  explicit Blocker(SearchPool& pool) {
    const auto search = [this](const SearchStop&) {
      begun_.count_down();
      released_.wait();
      return grpc::Status::OK;
    };
    EXPECT_TRUE(
        pool.Submit({.arrival = {}}, search, [this](const grpc::Status&) { ended_.count_down(); })
            .ok());
    begun_.wait();
  }
  ~Blocker() {
    released_.count_down();
    ended_.wait();
  }

 private:
  std::latch begun_{1}, released_{1}, ended_{1};
};

}  // namespace plimsoll

#endif  // PLIMSOLL_TESTS_SERVER_BLOCKER_H_
