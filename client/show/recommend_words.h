// How a recommendation speaks: times, rates and parts of a step in words that fit a
// line. Changes: server/words/change_words.h.
#ifndef PLIMSOLL_CLIENT_SHOW_RECOMMEND_WORDS_H_
#define PLIMSOLL_CLIENT_SHOW_RECOMMEND_WORDS_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "plimsoll/v1/planner.pb.h"
#include "server/words/change_words.h"

namespace plimsoll {

// "8 × h100-80gb-sxm"; "8 GPUs" where the job's GPU has no id.
std::string GpuWords(const v1::Job& job, Glyphs glyphs);

// "llama-3.1-8b", or what can be said of a model without a name.
std::string ModelWords(const v1::Model& model);

// "61.3 of 79.2 GiB".
std::string MemoryWords(int64_t bytes, const v1::Candidate& candidate);

// How a step's time compares with `asked` seconds, in a column: "+4%", "-30%".
//
// Requires: asked > 0
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

#endif  // PLIMSOLL_CLIENT_SHOW_RECOMMEND_WORDS_H_
