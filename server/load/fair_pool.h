// Threads that peers share: whoever has fewest of them is next, and nobody has the last
// quarter of them.
#ifndef PLIMSOLL_SERVER_LOAD_FAIR_POOL_H_
#define PLIMSOLL_SERVER_LOAD_FAIR_POOL_H_

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace plimsoll {

// Any thread may call.
class FairPool {
 public:
  using Task = std::function<void()>;

  // At most `max_tasks` run and wait.
  //
  // Requires: thread_count > 0
  FairPool(size_t thread_count, size_t max_tasks);
  ~FairPool() { Close(); }
  FairPool(const FairPool&) = delete;
  FairPool& operator=(const FairPool&) = delete;

  // Returns false where too many are there, and the task is not run. Tasks of one peer begin
  // in their order.
  bool Run(const std::string& peer, Task task);

  // Returns when all that were taken have ended. No more are to come.
  void Close();

 private:
  struct Peer {
    std::deque<Task> waiting;
    size_t running = 0;
  };
  using Peers = std::map<std::string, Peer>;

  void Work();
  Peers::iterator Next();

  const size_t max_of_peer_;
  const size_t max_tasks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Peers peers_;            // guarded by mutex_, as are the next two: those with tasks
  size_t task_count_ = 0;  // that run and wait
  bool closed_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_LOAD_FAIR_POOL_H_
