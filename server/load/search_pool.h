// The threads that search, apart from gRPC's own, which must not wait: a fixed
// few of them, and a bounded number of searches. Admissions have a pool of their own, as
// have long replays: a scheduler does not wait behind somebody's search.
#ifndef PLIMSOLL_SERVER_LOAD_SEARCH_POOL_H_
#define PLIMSOLL_SERVER_LOAD_SEARCH_POOL_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "grpcpp/support/status.h"
#include "server/observe/metrics.h"
#include "server/wire/stop.h"

namespace plimsoll {

// As many threads as there are cores for this process, at most four.
int64_t DefaultSearchThreads();
// Two searches wait for each thread.
int64_t DefaultMaxSearches();

// Who waits for a search, since when, and how long.
struct SearchCaller {
  std::string name = {};  // as CallGate::Pending::caller has it
  std::chrono::system_clock::time_point arrival;
  std::chrono::system_clock::time_point deadline = std::chrono::system_clock::time_point::max();
  StopCheck given_up = [] { return grpc::StatusCode::OK; };
  // Told before its answer what it took of a thread.
  std::function<void(std::chrono::nanoseconds)> charge = [](std::chrono::nanoseconds) {};
};

// Returns when a search that begins at `start` has to end: after `max_time`, and
// before the deadline by a tenth of the time that the caller gave it, or 20 ms,
// whichever is more, so that the answer still arrives.
std::chrono::system_clock::time_point StopTime(const SearchCaller& caller,
                                               std::chrono::system_clock::time_point start,
                                               std::chrono::milliseconds max_time);

// Any thread may call, but none of the pool's own may destroy it.
class SearchPool {
 public:
  struct Limits {
    int64_t thread_count = 1;
    int64_t max_searches = 1;  // running and waiting
    std::chrono::milliseconds max_time{};
    const char* what = "searches";  // as a refusal calls them
    bool of_searches = true;        // what is refused counts as a search, else as any request
    // Whether what waits is kept until its answer is due. Else it is refused when it has waited
    // for half of what a search took of late, but within 5 to 40 ms; only what is next, of a
    // caller who has none running, waits for a thread to be free, nine tenths of that time at
    // most. So what is taken is answered within twice what one took of late, whatever is asked for.
    // Source: B. Maurer, "Fail at Scale", ACM Queue 13(8), 2015, on controlled delay; that it
    // depends on the time of a search is ours.
    bool patient = true;
    // Of its threads: at 10 they have a tenth of what a thread that takes calls gets, where
    // both have work.
    int nice = 10;
  };
  using Search = std::function<grpc::Status(const SearchStop&)>;
  using Done = std::function<void(const grpc::Status&)>;

  // `metrics` outlives the pool.
  SearchPool(const Limits& limits, Metrics* metrics);
  // Closes, and returns when every search has ended.
  ~SearchPool();
  SearchPool(const SearchPool&) = delete;
  SearchPool& operator=(const SearchPool&) = delete;

  // Returns OK where one of the threads will call `search` (callers take turns; of one
  // caller, first come, first served) and then, its place free again, `done`. Else neither is
  // called: RESOURCE_EXHAUSTED with RetryInfo where as many as allowed are there,
  // UNAVAILABLE where the pool is closed. An exception becomes INTERNAL. Where no
  // thread is free before an answer is due, `search` is told so in time, by no thread that
  // searches. Where none is in time for an impatient pool, or a caller who has fewer waiting needs
  // the place, `done` alone is called, with RESOURCE_EXHAUSTED.
  grpc::Status Submit(const SearchCaller& caller, Search search, Done done);

  // As Submit, and waits for the answer.
  grpc::Status Run(const SearchCaller& caller, Search search);

  // Tells running searches that it is enough, those that wait that they are given
  // up, and takes no more.
  void Close();

 private:
  using Clock = std::chrono::system_clock;
  struct Task {
    SearchCaller caller;
    Search search;
    Done done;
    Clock::time_point begin = Clock::now();
  };
  using Tasks = std::deque<Task>;
  struct Turns {
    int64_t last = 0;
    int64_t running = 0;
  };
  struct Late {
    Tasks due, shed;
  };

  void Work();
  // Gives up what waits too long.
  void GiveUpLate();
  void CountShed();
  // mutex_ is held for all of these.
  Tasks::iterator Next();
  std::pair<Tasks::iterator, Clock::time_point> FirstToEnd();
  void ForgetTurns();
  Tasks::iterator LastCrowding();
  Clock::time_point EndOfWait(const Task& task, bool is_next) const;
  grpc::Status Full() const;
  Late TakeLate(std::unique_lock<std::mutex>* lock);
  // Waits until there is a task, or the pool is closed. Returns whether there is one.
  bool WaitForTask(std::unique_lock<std::mutex>* lock);
  Task Remove(const Tasks::iterator& task);
  Task Take(const Tasks::iterator& task);
  // Returns its answer. `given_up`: why it begins too late; OK where it does not.
  grpc::Status AnswerTo(const Task& task, grpc::StatusCode given_up) const;
  void Finish(const Task& task, grpc::StatusCode given_up);
  // Returns what ends a search that begins now.
  SearchStop StopFor(const SearchCaller& caller, grpc::StatusCode given_up) const;

  const Limits limits_;
  Metrics* const metrics_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable due_changed_;
  // Guarded by mutex_.
  Tasks waiting_;
  int64_t running_ = 0;
  Clock::duration usual_time_ = std::chrono::milliseconds(80);  // of a search, smoothed
  std::map<std::string, Turns> turns_;                          // by caller
  int64_t last_turn_ = 0;
  std::atomic<bool> closed_{false};
  std::vector<std::thread> threads_;
  std::thread late_;
};

// The pools of a server, by what they work on.
struct WorkPools {
  SearchPool& searches;
  SearchPool& admissions;
  SearchPool& replays;  // that take more than some milliseconds
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_LOAD_SEARCH_POOL_H_
