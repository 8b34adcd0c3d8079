#include "server/search_pool.h"

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

}  // namespace

int64_t DefaultSearchThreads() {
  return std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, 4);
}

int64_t DefaultMaxSearches() { return 3 * DefaultSearchThreads(); }

Clock::time_point StopTime(const SearchCaller& caller, Clock::time_point start,
                           std::chrono::milliseconds max_time) {
  const Clock::time_point latest = start + max_time;
  if (caller.deadline == Clock::time_point::max()) return latest;
  const Clock::duration given = caller.deadline - caller.arrival;
  return std::min(latest, caller.deadline - std::max<Clock::duration>(given / 10, kLeastReserve));
}

SearchPool::SearchPool(const Limits& limits, Metrics* metrics)
    : limits_(limits), metrics_(metrics) {
  for (int64_t i = 0; i < limits_.thread_count; ++i) threads_.emplace_back([this] { Work(); });
}

SearchPool::~SearchPool() {
  Close();
  for (std::thread& thread : threads_) thread.join();
}

grpc::Status SearchPool::Submit(const SearchCaller& caller, Search search, Done done) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return Closing();
    if (running_ + static_cast<int64_t>(waiting_.size()) >= limits_.max_searches) {
      metrics_->Searched(SearchOutcome::kShed);
      return Overloaded(limits_.max_searches, "searches", kRetryAfter);
    }
    waiting_.push_back({caller, std::move(search), std::move(done)});
    metrics_->AddSearches(SearchState::kWaiting, 1);
  }
  changed_.notify_one();
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
}

SearchStop SearchPool::StopFor(const SearchCaller& caller, bool begins_too_late) const {
  const Clock::time_point begin = Clock::now();
  const Clock::duration time = StopTime(caller, begin, limits_.max_time) - begin;
  return {.enough = [this, begin, time](
                        double share) { return closed_ || Clock::now() - begin >= share * time; },
          .given_up =
              [begins_too_late, given_up = caller.given_up] {
                return begins_too_late ? grpc::StatusCode::UNAVAILABLE : given_up();
              }};
}

void SearchPool::Work() {
  for (;;) {
    Task task;
    bool begins_too_late = false;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return closed_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      task = std::move(waiting_.front());
      waiting_.pop_front();
      begins_too_late = closed_;
      ++running_;
      metrics_->AddSearches(SearchState::kWaiting, -1);
      metrics_->AddSearches(SearchState::kRunning, 1);
    }
    Finish(task, begins_too_late);
  }
}

void SearchPool::Finish(const Task& task, bool begins_too_late) {
  grpc::Status status;
  try {
    status = task.search(StopFor(task.caller, begins_too_late));
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
