#include "server/load/search_pool.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <exception>
#include <future>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/string_view.h"
#include "server/load/crowding.h"
#include "server/load/thread_time.h"
#include "server/wire/status.h"

namespace plimsoll {
namespace {

using Clock = std::chrono::system_clock;

constexpr std::chrono::milliseconds kLeastPatience{5}, kMostPatience{40};
constexpr std::chrono::milliseconds kLongestRetry{10000};
constexpr size_t kMaxTurns = 1024;
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
  cpu_set_t allowed;  // to this process: fewer than there are, in a container
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof(allowed), &allowed);
  return std::clamp<int64_t>(CPU_COUNT(&allowed), 1, 4);
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
  std::optional<Task> evicted;
  grpc::Status full;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return Closing();
    const bool is_full = running_ + static_cast<int64_t>(waiting_.size()) >= limits_.max_searches;
    if (is_full) full = Full();
    waiting_.push_back({caller, std::move(search), std::move(done)});
    metrics_->AddSearches(SearchState::kWaiting, 1);
    if (is_full) {
      CountShed();
      const auto last = LastCrowding();
      const bool is_newcomer = last == std::prev(waiting_.end());
      evicted = Remove(last);
      if (is_newcomer) return full;
    }
  }
  if (evicted.has_value()) evicted->done(full);
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

SearchPool::Task SearchPool::Remove(const Tasks::iterator& task) {
  Task removed = std::move(*task);
  waiting_.erase(task);
  metrics_->AddSearches(SearchState::kWaiting, -1);
  return removed;
}

SearchPool::Task SearchPool::Take(const Tasks::iterator& task) {
  ++running_;
  Turns& turns = turns_[task->caller.name];
  turns.last = ++last_turn_;
  ++turns.running;
  metrics_->AddSearches(SearchState::kRunning, 1);
  return Remove(task);
}

// The first of the caller who has not had a turn for longest.
SearchPool::Tasks::iterator SearchPool::Next() {
  const auto turn_of = [this](const Task& task) {
    const auto found = turns_.find(task.caller.name);
    return found == turns_.end() ? 0 : found->second.last;
  };
  return std::min_element(waiting_.begin(), waiting_.end(),
                          [&](const Task& a, const Task& b) { return turn_of(a) < turn_of(b); });
}

// The last of the caller who has most waiting.
SearchPool::Tasks::iterator SearchPool::LastCrowding() {
  const auto name_of = [](const Task& task) { return absl::string_view(task.caller.name); };
  return std::prev(FirstCrowding(waiting_.rbegin(), waiting_.rend(), name_of).base());
}

// Where a thread is free, one is about to be taken.
SearchPool::Clock::time_point SearchPool::EndOfWait(const Task& task, bool is_next) const {
  const Clock::time_point due = DueTime(task.caller);
  if (limits_.patient || running_ < limits_.thread_count) return due;
  const auto turns = turns_.find(task.caller.name);
  const bool is_first = turns == turns_.end() || turns->second.running == 0;
  Clock::duration patience =
      std::clamp<Clock::duration>(usual_time_ / 2, kLeastPatience, kMostPatience);
  if (is_next && is_first) patience = std::max(patience, usual_time_ * 9 / 10);
  return std::min(due, task.begin + patience);
}

// When what is there will have ended, by what a search took of late.
grpc::Status SearchPool::Full() const {
  const int64_t there = running_ + static_cast<int64_t>(waiting_.size());
  const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(usual_time_ * there /
                                                                          limits_.thread_count);
  return Overloaded(there, limits_.what, std::clamp(time, kRetrySoon, kLongestRetry));
}

bool SearchPool::WaitForTask(std::unique_lock<std::mutex>* lock) {
  changed_.wait(*lock, [this] { return closed_ || !waiting_.empty(); });
  return !waiting_.empty();
}

void SearchPool::Work() {
  // Linux has a priority for each thread.
  setpriority(PRIO_PROCESS, 0, limits_.nice);
  for (;;) {
    Task task;
    grpc::StatusCode given_up = grpc::StatusCode::OK;
    {
      std::unique_lock lock(mutex_);
      if (!WaitForTask(&lock)) return;
      task = Take(Next());
      if (closed_) given_up = grpc::StatusCode::UNAVAILABLE;
    }
    due_changed_.notify_one();
    Finish(task, given_up);
  }
}

// Whose wait ends first, and when.
std::pair<SearchPool::Tasks::iterator, SearchPool::Clock::time_point> SearchPool::FirstToEnd() {
  std::pair first(waiting_.end(), Clock::time_point::max());
  const auto next = limits_.patient ? waiting_.end() : Next();
  for (auto task = waiting_.begin(); task != waiting_.end(); ++task) {
    const Clock::time_point end = EndOfWait(*task, task == next);
    if (end < first.second) first = {task, end};
  }
  return first;
}

// Waits until some have waited too long, or what waits has changed.
SearchPool::Late SearchPool::TakeLate(std::unique_lock<std::mutex>* lock) {
  const Clock::time_point first_end = FirstToEnd().second;
  if (first_end == Clock::time_point::max()) {
    due_changed_.wait(*lock);
  } else {
    due_changed_.wait_until(*lock, first_end);
  }
  Late late;
  if (closed_) return late;  // what waits is told so
  const Clock::time_point now = Clock::now();
  for (auto [task, end] = FirstToEnd(); end <= now; std::tie(task, end) = FirstToEnd()) {
    if (DueTime(task->caller) <= now) {
      late.due.push_back(Remove(task));
    } else {
      late.shed.push_back(Remove(task));
    }
  }
  return late;
}

// The oldest of too many.
void SearchPool::ForgetTurns() {
  if (turns_.size() <= kMaxTurns) return;
  auto oldest = turns_.end();
  for (auto one = turns_.begin(); one != turns_.end(); ++one) {
    if (one->second.running > 0) continue;
    if (oldest == turns_.end() || one->second.last < oldest->second.last) oldest = one;
  }
  if (oldest != turns_.end()) turns_.erase(oldest);
}

void SearchPool::GiveUpLate() {
  std::unique_lock lock(mutex_);
  while (!closed_) {
    const Late late = TakeLate(&lock);
    const grpc::Status full = late.shed.empty() ? grpc::Status::OK : Full();
    lock.unlock();
    for (const Task& task : late.due) {
      task.done(AnswerTo(task, grpc::StatusCode::DEADLINE_EXCEEDED));
    }
    for (const Task& task : late.shed) {
      CountShed();
      task.done(full);
    }
    lock.lock();
  }
}

void SearchPool::CountShed() {
  if (limits_.of_searches) {
    metrics_->Searched(SearchOutcome::kShed);
  } else {
    metrics_->Shed();
  }
}

grpc::Status SearchPool::AnswerTo(const Task& task, grpc::StatusCode given_up) const {
  try {
    return task.search(StopFor(task.caller, given_up));
  } catch (const std::exception& error) {
    return Refusal(grpc::StatusCode::INTERNAL, error.what(), "INTERNAL");
  }
}

void SearchPool::Finish(const Task& task, grpc::StatusCode given_up) {
  const Clock::time_point begin = Clock::now();
  const std::chrono::nanoseconds worked = ThreadTime();
  const grpc::Status status = AnswerTo(task, given_up);
  {
    const std::lock_guard lock(mutex_);
    --running_;
    --turns_[task.caller.name].running;
    ForgetTurns();
    if (status.ok()) usual_time_ += (Clock::now() - begin - usual_time_) / 8;
    metrics_->AddSearches(SearchState::kRunning, -1);
  }
  task.caller.charge(ThreadTime() - worked);
  task.done(status);
}

}  // namespace plimsoll
