// How the changes of a job speak, in words that fit a line.
#ifndef PLIMSOLL_SERVER_WORDS_CHANGE_WORDS_H_
#define PLIMSOLL_SERVER_WORDS_CHANGE_WORDS_H_

#include <cstdint>
#include <string>

#include "plimsoll/v1/planner.pb.h"

namespace plimsoll {

// Whether an arrow and a times sign can be shown, or `->` and `x` stand for them.
enum class Glyphs { kAscii, kUnicode };

// What differs from the job as it was asked for, as "ZeRO 1 → 3, recompute
// full"; "as asked" where nothing does. Data parallelism is not named where it
// only follows from other sizes.
std::string ChangeWords(const v1::Candidate& candidate, Glyphs glyphs);

// How a step's time compares with `asked` seconds: "4 % slower", "30 % less
// time", "2.1 times as long", "as fast".
//
// Requires: asked > 0
std::string PaceWords(double seconds, double asked);

// The job's number of GPUs: what it says, or the product of its parallel sizes.
int64_t GpuCount(const v1::Job& job);

// Bytes in GiB.
double Gib(int64_t bytes);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_WORDS_CHANGE_WORDS_H_
