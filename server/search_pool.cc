#include "server/search_pool.h"

#include <sys/resource.h>

#include <algorithm>
#include <exception>
#include <future>
#include <utility>

#include "server/status.h"

namespace plimsoll {
namespace {

using Clock = std::chrono::system_clock;

// A search takes a tenth of a second to some seconds.
constexpr std::chrono::milliseconds kRetryAfter{1000};
// To encode the answer and to send it.
constexpr std::chrono::milliseconds kLeastReserve{20};

grpc::Status Closing() {
  return Refusal(grpc::StatusCode::UNAVAILABLE, "the server is about to end", "ENDING");
}

// When an answer has to leave, at the latest.
Clock::time_point DueTime(const SearchCaller& caller) {
  if (caller.deadline == Clock::time_point::max()) return caller.deadline;
  const Clock::duration given = caller.deadline - caller.arrival;
  return caller.deadline - std::max<Clock::duration>(given / 10, kLeastReserve);
}

}  // namespace

int64_t DefaultSearchThreads() {
  return std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, 4);
}

int64_t DefaultMaxSearches() { return 3 * DefaultSearchThreads(); }

Clock::time_point StopTime(const SearchCaller& caller, Clock::time_point start,
                           std::chrono::milliseconds max_time) {
  return std::min(start + max_time, DueTime(caller));
}

SearchPool::SearchPool(const Limits& limits, Metrics* metrics)
    : limits_(limits), metrics_(metrics) {
  for (int64_t i = 0; i < limits_.thread_count; ++i) threads_.emplace_back([this] { Work(); });
  late_ = std::thread([this] { GiveUpLate(); });
}

SearchPool::~SearchPool() {
  Close();
  for (std::thread& thread : threads_) thread.join();
  late_.join();
}

grpc::Status SearchPool::Submit(const SearchCaller& caller, Search search, Done done) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return Closing();
    if (running_ + static_cast<int64_t>(waiting_.size()) >= limits_.max_searches) {
      limits_.of_searches ? metrics_->Searched(SearchOutcome::kShed) : metrics_->Shed();
      return Overloaded(limits_.max_searches, limits_.what, kRetryAfter);
    }
    waiting_.push_back({caller, std::move(search), std::move(done)});
    metrics_->AddSearches(SearchState::kWaiting, 1);
  }
  changed_.notify_one();
  due_changed_.notify_one();
  return grpc::Status::OK;
}

grpc::Status SearchPool::Run(const SearchCaller& caller, Search search) {
  std::promise<grpc::Status> answer;
  const grpc::Status taken =
      Submit(caller, std::move(search),
             [&answer](const grpc::Status& status) { answer.set_value(status); });
  return taken.ok() ? answer.get_future().get() : taken;
}

void SearchPool::Close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  due_changed_.notify_all();
}

SearchStop SearchPool::StopFor(const SearchCaller& caller, grpc::StatusCode given_up) const {
  const Clock::time_point begin = Clock::now();
  const Clock::duration time = StopTime(caller, begin, limits_.max_time) - begin;
  return {.enough = [this, begin, time](
                        double share) { return closed_ || Clock::now() - begin >= share * time; },
          .given_up =
              [given_up, by_caller = caller.given_up] {
                return given_up != grpc::StatusCode::OK ? given_up : by_caller();
              }};
}

SearchPool::Task SearchPool::Take(std::deque<Task>::iterator task) {
  Task taken = std::move(*task);
  waiting_.erase(task);
  ++running_;
  metrics_->AddSearches(SearchState::kWaiting, -1);
  metrics_->AddSearches(SearchState::kRunning, 1);
  return taken;
}

void SearchPool::Work() {
  // Linux has a priority for each thread.
  setpriority(PRIO_PROCESS, 0, limits_.nice);
  for (;;) {
    Task task;
    grpc::StatusCode given_up = grpc::StatusCode::OK;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return closed_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      task = Take(waiting_.begin());
      if (closed_) given_up = grpc::StatusCode::UNAVAILABLE;
    }
    Finish(task, given_up);
  }
}

// Waits until some are due, or what waits has changed.
std::deque<SearchPool::Task> SearchPool::TakeLate(std::unique_lock<std::mutex>* lock) {
  const auto sooner = [](const Task& a, const Task& b) {
    return DueTime(a.caller) < DueTime(b.caller);
  };
  const auto next = std::min_element(waiting_.begin(), waiting_.end(), sooner);
  if (next == waiting_.end() || DueTime(next->caller) == Clock::time_point::max()) {
    due_changed_.wait(*lock);
  } else {
    due_changed_.wait_until(*lock, DueTime(next->caller));
  }
  std::deque<Task> late;
  const Clock::time_point now = Clock::now();
  for (size_t i = 0; i < waiting_.size();) {
    if (DueTime(waiting_[i].caller) > now) {
      ++i;
    } else {
      late.push_back(Take(waiting_.begin() + static_cast<ptrdiff_t>(i)));
    }
  }
  return late;
}

void SearchPool::GiveUpLate() {
  std::unique_lock lock(mutex_);
  while (!closed_) {
    const std::deque<Task> late = TakeLate(&lock);
    lock.unlock();
    for (const Task& task : late) Finish(task, grpc::StatusCode::DEADLINE_EXCEEDED);
    lock.lock();
  }
}

void SearchPool::Finish(const Task& task, grpc::StatusCode given_up) {
  grpc::Status status;
  try {
    status = task.search(StopFor(task.caller, given_up));
  } catch (const std::exception& error) {
    status = Refusal(grpc::StatusCode::INTERNAL, error.what(), "INTERNAL");
  }
  {
    const std::lock_guard lock(mutex_);
    --running_;
    metrics_->AddSearches(SearchState::kRunning, -1);
  }
  task.done(status);
}

}  // namespace plimsoll
