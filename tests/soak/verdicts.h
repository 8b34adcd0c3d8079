// What became of every call of a soak, by kind of call.
#ifndef PLIMSOLL_TESTS_SOAK_VERDICTS_H_
#define PLIMSOLL_TESTS_SOAK_VERDICTS_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <ostream>
#include <string>
#include <vector>

namespace plimsoll {

//   kRight    the known answer
//   kRefused  cleanly: a status with a reason of ours, or a connection that was closed in time
//   kBug      anything else
enum class SoakVerdict { kRight, kRefused, kBug };

// Any thread may call.
class Verdicts {
 public:
  // `what` says what was seen of a bug.
  void Add(const std::string& kind, SoakVerdict verdict, double seconds,
           const std::string& what = "");

  int64_t bugs() const;
  // A row for each kind, and what its first bugs were.
  void Print(std::ostream& out) const;

 private:
  struct Row {
    std::map<SoakVerdict, int64_t> counts;
    std::vector<double> seconds;    // of what was answered
    std::vector<std::string> bugs;  // the first
  };

  mutable std::mutex mutex_;
  std::map<std::string, Row> rows_;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_TESTS_SOAK_VERDICTS_H_
