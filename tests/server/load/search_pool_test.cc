// The threads that search: how many at once, in which order, and how they end.
#include "server/load/search_pool.h"

#include <future>
#include <latch>
#include <stdexcept>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/wire/status.h"
#include "tests/server/running_server.h"

namespace plimsoll {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::system_clock;
using testing::ElementsAre;

constexpr char kRunning[] = R"(plimsoll_searches_in_progress{state="running"})";
constexpr char kWaiting[] = R"(plimsoll_searches_in_progress{state="waiting"})";
constexpr char kShed[] = R"(plimsoll_searches_total{outcome="shed"})";

// A search that runs until it is told to end.
struct Held {
  std::latch begun{1};
  std::latch released{1};
  std::promise<grpc::Status> answer;

  SearchPool::Search search() {
    return [this](const SearchStop&) {
      begun.count_down();
      released.wait();
      return grpc::Status::OK;
    };
  }
  SearchPool::Done done() {
    return [this](const grpc::Status& status) { answer.set_value(status); };
  }
};

class SearchPoolTest : public testing::Test {
 protected:
  static SearchPool::Limits MakeLimits(int64_t threads, int64_t searches) {
    return {.thread_count = threads, .max_searches = searches, .max_time = hours(1)};
  }

  double Series(const char* series) const { return SeriesValue(metrics_.Text(), series); }
  static SearchCaller Named(const std::string& name) {
    return {.name = name, .arrival = system_clock::now()};
  }

  const SearchCaller caller_ = {.arrival = system_clock::now()};
  Metrics metrics_;
};

grpc::Status Answered(const SearchStop&) { return grpc::Status::OK; }

TEST_F(SearchPoolTest, OneRunsOneWaitsAndAThirdIsRefused) {
  Held first, second;
  SearchPool pool(MakeLimits(1, 2), &metrics_);
  ASSERT_TRUE(pool.Submit(caller_, first.search(), first.done()).ok());
  first.begun.wait();
  ASSERT_TRUE(pool.Submit(caller_, second.search(), second.done()).ok());
  EXPECT_EQ(Series(kRunning), 1);
  EXPECT_EQ(Series(kWaiting), 1);
  EXPECT_FALSE(second.begun.try_wait());
  const grpc::Status refused =
      pool.Submit(caller_, Answered, [](const grpc::Status&) { ADD_FAILURE(); });
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(refused.error_message(),
            "overloaded: 2 searches are in flight already; try again in 160 ms");
  EXPECT_EQ(RetryAfterOf(refused), milliseconds(160)) << "twice what a search takes at first";
  EXPECT_EQ(Series(kShed), 1);
  first.released.count_down();
  EXPECT_TRUE(first.answer.get_future().get().ok());
  second.begun.wait();
  EXPECT_TRUE(pool.Submit(caller_, Answered, [](const grpc::Status&) {}).ok())
      << "there is room again";
  second.released.count_down();
  EXPECT_TRUE(second.answer.get_future().get().ok());
}

TEST_F(SearchPoolTest, EveryThreadRunsOne) {
  SearchPool pool(MakeLimits(3, 3), &metrics_);
  std::latch all(3);  // each waits for the others: one thread alone would never end
  std::vector<std::promise<grpc::Status>> answers(3);
  for (auto& answer : answers) {
    const auto search = [&all](const SearchStop&) {
      all.arrive_and_wait();
      return grpc::Status::OK;
    };
    ASSERT_TRUE(
        pool.Submit(caller_, search, [&](const grpc::Status& status) { answer.set_value(status); })
            .ok());
  }
  for (auto& answer : answers) EXPECT_TRUE(answer.get_future().get().ok());
}

TEST_F(SearchPoolTest, FirstComeFirstServed) {
  std::vector<int> order;
  {
    Held first;
    SearchPool pool(MakeLimits(1, 4), &metrics_);
    ASSERT_TRUE(pool.Submit(caller_, first.search(), first.done()).ok());
    for (int i = 0; i < 3; ++i) {
      const auto search = [&order, i](const SearchStop&) {
        order.push_back(i);
        return grpc::Status::OK;
      };
      ASSERT_TRUE(pool.Submit(caller_, search, [](const grpc::Status&) {}).ok());
    }
    first.released.count_down();
  }
  EXPECT_THAT(order, ElementsAre(0, 1, 2));
}

TEST_F(SearchPoolTest, CallersTakeTurns) {
  std::string order;
  {
    Held first;
    SearchPool pool(MakeLimits(1, 8), &metrics_);
    ASSERT_TRUE(pool.Submit(caller_, first.search(), first.done()).ok());
    for (const char name : std::string("aaabbc")) {
      const auto search = [&order, name](const SearchStop&) {
        order += name;
        return grpc::Status::OK;
      };
      ASSERT_TRUE(pool.Submit(Named({name}), search, [](const grpc::Status&) {}).ok());
    }
    first.released.count_down();
  }
  EXPECT_EQ(order, "abcaba");
}

// Of a full pool, whoever has more waiting gives a place to whoever has fewer.
TEST_F(SearchPoolTest, WhoHasMostWaitingMakesRoom) {
  Held first, second, third, other, one_more;
  {
    SearchPool pool(MakeLimits(1, 3), &metrics_);
    ASSERT_TRUE(pool.Submit(Named("a"), first.search(), first.done()).ok());
    first.begun.wait();
    ASSERT_TRUE(pool.Submit(Named("a"), second.search(), second.done()).ok());
    ASSERT_TRUE(pool.Submit(Named("a"), third.search(), third.done()).ok());
    EXPECT_FALSE(pool.Submit(Named("a"), Answered, [](const grpc::Status&) {}).ok());
    EXPECT_TRUE(pool.Submit(Named("b"), other.search(), other.done()).ok());
    EXPECT_EQ(third.answer.get_future().get().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_FALSE(pool.Submit(Named("b"), Answered, [](const grpc::Status&) {}).ok())
        << "it has as many waiting as the other";
    for (Held* const held : {&first, &second, &other}) held->released.count_down();
  }
  EXPECT_EQ(Series(kShed), 3);
}

TEST_F(SearchPoolTest, AnImpatientPoolRefusesWhatIsNotInTime) {
  Held first, second;
  SearchPool::Limits limits = MakeLimits(1, 8);
  limits.patient = false;
  SearchPool pool(limits, &metrics_);
  ASSERT_TRUE(pool.Submit(caller_, first.search(), first.done()).ok());
  first.begun.wait();
  ASSERT_TRUE(pool.Submit(caller_, second.search(), second.done()).ok());
  const grpc::Status refused = second.answer.get_future().get();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(RetryAfterOf(refused).has_value());
  EXPECT_FALSE(second.begun.try_wait());
  EXPECT_EQ(Series(kShed), 1);
  EXPECT_EQ(Series(kWaiting), 0);
  first.released.count_down();
  EXPECT_TRUE(first.answer.get_future().get().ok());
}

TEST_F(SearchPoolTest, ThePlaceIsFreeBeforeTheAnswer) {
  SearchPool pool(MakeLimits(1, 1), &metrics_);
  std::promise<grpc::Status> next;
  const auto submit_next = [&](const grpc::Status&) {
    next.set_value(pool.Submit(caller_, Answered, [](const grpc::Status&) {}));
  };
  ASSERT_TRUE(pool.Submit(caller_, Answered, submit_next).ok());
  EXPECT_TRUE(next.get_future().get().ok());
}

TEST_F(SearchPoolTest, RunWaitsForTheAnswer) {
  SearchPool pool(MakeLimits(2, 2), &metrics_);
  const grpc::Status status = pool.Run(caller_, [](const SearchStop&) {
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "nothing");
  });
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Series(kRunning), 0);
  EXPECT_EQ(Series(kWaiting), 0);
}

TEST_F(SearchPoolTest, AnExceptionIsAnAnswer) {
  SearchPool pool(MakeLimits(1, 1), &metrics_);
  const grpc::Status status = pool.Run(
      caller_, [](const SearchStop&) -> grpc::Status { throw std::runtime_error("out of luck"); });
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(status.error_message(), "out of luck");
  EXPECT_TRUE(pool.Run(caller_, Answered).ok());
}

TEST_F(SearchPoolTest, ClosingEndsWhatRunsAndWhatWaits) {
  SearchPool pool(MakeLimits(1, 2), &metrics_);
  std::latch begun(1), closed(1);
  std::promise<grpc::Status> running, waiting;
  const auto first = [&](const SearchStop& stop) {
    EXPECT_FALSE(stop.enough(1));
    begun.count_down();
    closed.wait();
    EXPECT_TRUE(stop.enough(1));
    EXPECT_EQ(stop.given_up(), grpc::StatusCode::OK) << "its answer is the best so far";
    return grpc::Status::OK;
  };
  const auto second = [](const SearchStop& stop) {
    EXPECT_TRUE(stop.enough(1));
    return grpc::Status(stop.given_up(), "");
  };
  ASSERT_TRUE(
      pool.Submit(caller_, first, [&](const grpc::Status& status) { running.set_value(status); })
          .ok());
  begun.wait();
  ASSERT_TRUE(
      pool.Submit(caller_, second, [&](const grpc::Status& status) { waiting.set_value(status); })
          .ok());
  pool.Close();
  closed.count_down();
  EXPECT_TRUE(running.get_future().get().ok());
  EXPECT_EQ(waiting.get_future().get().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(pool.Run(caller_, Answered).error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(SearchPoolTest, ACallerMayGiveUp) {
  SearchPool pool(MakeLimits(1, 1), &metrics_);
  SearchCaller caller = caller_;
  caller.given_up = [] { return grpc::StatusCode::CANCELLED; };
  const grpc::Status status = pool.Run(caller, [](const SearchStop& stop) {
    EXPECT_FALSE(stop.enough(1));
    return grpc::Status(stop.given_up(), "");
  });
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
}

// What still waits when its answer is due gets one in time, beside those that search.
TEST_F(SearchPoolTest, WhatWaitsTooLongIsToldInTime) {
  SearchPool pool(MakeLimits(1, 3), &metrics_);
  Held held;
  ASSERT_TRUE(pool.Submit(caller_, held.search(), held.done()).ok());
  held.begun.wait();
  const auto given_up = [this](const SearchStop& stop) {
    EXPECT_EQ(Series(kRunning), 1);
    return grpc::Status(stop.given_up(), "");
  };
  const system_clock::time_point now = system_clock::now();
  const SearchCaller hurried = {.arrival = now, .deadline = now + milliseconds(50)};
  EXPECT_EQ(pool.Run(hurried, given_up).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(Series(kWaiting), 0);
  EXPECT_EQ(Series(kRunning), 1);
  held.released.count_down();
  EXPECT_TRUE(held.answer.get_future().get().ok());
}

TEST_F(SearchPoolTest, ItIsEnoughWhenTimeIsUp) {
  SearchPool::Limits limits = MakeLimits(1, 1);
  limits.max_time = milliseconds(0);
  SearchPool pool(limits, &metrics_);
  const grpc::Status status = pool.Run(caller_, [](const SearchStop& stop) {
    EXPECT_TRUE(stop.enough(1));
    return grpc::Status(stop.given_up(), "");
  });
  EXPECT_TRUE(status.ok());
}

// In milliseconds after the call's arrival.
TEST(StopTimeTest, IsBeforeTheDeadline) {
  struct Row {
    int start, deadline, max_time, stop;
  };
  const Row rows[] = {
      {0, 1000, 10000, 900},    // a tenth of what the caller gave
      {0, 100, 10000, 80},      // 20 ms are the least
      {300, 1000, 10000, 900},  // it waited for a thread: the reserve is the same
      {0, 1000, 500, 500},      // the server's own limit,
      {300, 1000, 500, 800},    // which begins with the search
      {0, 15, 10000, -5},       // too little time for anything
  };
  const system_clock::time_point arrival = system_clock::now();
  for (const Row& row : rows) {
    const SearchCaller caller = {.arrival = arrival,
                                 .deadline = arrival + milliseconds(row.deadline)};
    EXPECT_EQ(
        StopTime(caller, arrival + milliseconds(row.start), milliseconds(row.max_time)) - arrival,
        milliseconds(row.stop))
        << row.start << " " << row.deadline << " " << row.max_time;
  }
  EXPECT_EQ(StopTime({.arrival = arrival}, arrival, milliseconds(10000)) - arrival,
            milliseconds(10000))
      << "no deadline";
}

TEST(DefaultsTest, AreOfThisMachine) {
  EXPECT_GE(DefaultSearchThreads(), 1);
  EXPECT_LE(DefaultSearchThreads(), 4);
  EXPECT_EQ(DefaultMaxSearches(), 3 * DefaultSearchThreads());
}

}  // namespace
}  // namespace plimsoll
