#include "server/load/fair_pool.h"

#include <algorithm>
#include <utility>

namespace plimsoll {

FairPool::FairPool(size_t thread_count, size_t max_tasks)
    : max_of_peer_(std::max<size_t>(thread_count - std::max<size_t>(thread_count / 4, 1), 1)),
      max_tasks_(max_tasks) {
  for (size_t i = 0; i < thread_count; ++i) threads_.emplace_back([this] { Work(); });
}

bool FairPool::Run(const std::string& peer, Task task) {
  {
    const std::lock_guard lock(mutex_);
    if (task_count_ >= max_tasks_) return false;
    ++task_count_;
    peers_[peer].waiting.push_back(std::move(task));
  }
  changed_.notify_one();
  return true;
}

void FairPool::Close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

// Of those with a task that waits, and with fewer than they may have, the one with fewest.
FairPool::Peers::iterator FairPool::Next() {
  auto next = peers_.end();
  for (auto peer = peers_.begin(); peer != peers_.end(); ++peer) {
    if (peer->second.waiting.empty() || peer->second.running >= max_of_peer_) continue;
    if (next == peers_.end() || peer->second.running < next->second.running) next = peer;
  }
  return next;
}

void FairPool::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    auto next = peers_.end();
    changed_.wait(lock, [this, &next] {
      next = Next();
      return next != peers_.end() || (closed_ && task_count_ == 0);
    });
    if (next == peers_.end()) return;
    const Task task = std::move(next->second.waiting.front());
    next->second.waiting.pop_front();
    ++next->second.running;
    lock.unlock();
    task();
    lock.lock();
    --task_count_;
    if (--next->second.running == 0 && next->second.waiting.empty()) peers_.erase(next);
    changed_.notify_all();  // its peer may have another, or all is done
  }
}

}  // namespace plimsoll
