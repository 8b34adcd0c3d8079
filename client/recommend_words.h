// How a recommendation speaks: changes, times, rates and parts of a step in
// words that fit a line.
#ifndef PLIMSOLL_CLIENT_RECOMMEND_WORDS_H_
#define PLIMSOLL_CLIENT_RECOMMEND_WORDS_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "plimsoll/v1/planner.pb.h"

namespace plimsoll {

// Whether an arrow and a times sign can be shown, or `->` and `x` stand for them.
enum class Glyphs { kAscii, kUnicode };

// What differs from the job as it was asked for, as "ZeRO 1 → 3, recompute
// full"; "as asked" where nothing does. Data parallelism is not named where it
// only follows from other sizes.
std::string ChangeWords(const v1::Candidate& candidate, Glyphs glyphs);

// "8 × h100-80gb-sxm"; "8 GPUs" where the job's GPU has no id.
std::string GpuWords(const v1::Job& job, Glyphs glyphs);

// The job's number of GPUs: what it says, or the product of its parallel sizes.
int64_t GpuCount(const v1::Job& job);

// "llama-3.1-8b", or what can be said of a model without a name.
std::string ModelWords(const v1::Model& model);

// Bytes in GiB.
double Gib(int64_t bytes);

// "61.3 of 79.2 GiB".
std::string MemoryWords(int64_t bytes, const v1::Candidate& candidate);

// How a step's time compares with `asked` seconds: "4 % slower", "30 % less
// time", "2.1 times as long", "as fast".
//
// Requires: asked > 0
std::string PaceWords(double seconds, double asked);

// The same in a column: "+4%", "-30%".
std::string PacePercent(double seconds, double asked);

// Three digits: "3.21 s", "45.2 ms", "2,140 s".
std::string FormatSeconds(double seconds);

// An integer with commas: "3,412".
std::string FormatGrouped(int64_t count);

// The part of a step, as "tensor communication".
std::string TermName(v1::StepTerm term);

// How much was searched: "3,412 legal configurations, 210 estimated, 96 fit".
std::string CountWords(const v1::RecommendConfigResponse& response);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_RECOMMEND_WORDS_H_
