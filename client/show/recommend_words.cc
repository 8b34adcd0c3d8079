#include "client/show/recommend_words.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/io/text.h"
#include "server/wire/shorten.h"

namespace plimsoll {
namespace {

// By the number of v1::StepTerm.
constexpr const char* kTerms[] = {
    "other",
    "matrix products",
    "attention",
    "memory-bound work",
    "recomputation",
    "kernel launches",
    "tensor communication",
    "pipeline communication",
    "pipeline bubble",
    "data communication",
    "optimizer step",
    "fixed cost",
    "context communication",
};

}  // namespace

std::string GpuWords(const v1::Job& job, Glyphs glyphs) {
  const int64_t count = GpuCount(job);
  if (!job.cluster().has_gpu()) return absl::StrCat(count, count == 1 ? " GPU" : " GPUs");
  return absl::StrCat(count, glyphs == Glyphs::kUnicode ? " × " : " x ",
                      Clean(job.cluster().gpu()));
}

std::string ModelWords(const v1::Model& model) {
  if (model.has_name()) return Clean(model.name());
  const auto& config = model.hf_config().fields();
  const auto type = config.find("model_type");
  if (type != config.end() && !type->second.string_value().empty()) {
    return Clean(type->second.string_value());
  }
  const v1::Transformer& transformer = model.transformer();
  if (!transformer.has_layer_count() || !transformer.has_hidden_size()) return "the model";
  return absl::StrCat(transformer.layer_count(), " layers of ", transformer.hidden_size());
}

std::string MemoryWords(int64_t bytes, const v1::Candidate& candidate) {
  std::string part = FormatBytes(bytes);
  const std::string whole = FormatBytes(candidate.usable_bytes());
  if (part.substr(part.find(' ')) == whole.substr(whole.find(' '))) part.resize(part.find(' '));
  return absl::StrCat(part, " of ", whole);
}

std::string PacePercent(double seconds, double asked) {
  const long percent = std::lround((seconds / asked - 1) * 100);
  return absl::StrCat(percent > 0 ? "+" : "", percent, "%");
}

std::string FormatSeconds(double seconds) {
  if (seconds >= 999.5) return absl::StrCat(FormatGrouped(std::llround(seconds)), " s");
  const double value = seconds < 0.9995 ? seconds * 1000 : seconds;
  const char* const unit = seconds < 0.9995 ? " ms" : " s";
  const int digits = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return absl::StrFormat("%.*f%s", digits, value, unit);
}

std::string FormatGrouped(int64_t count) {
  const std::string digits = absl::StrCat(count);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    const bool boundary = (digits.size() - i) % 3 == 0 && !text.empty() && text != "-";
    if (boundary) text += ',';
    text += digits[i];
  }
  return text;
}

std::string TermName(v1::StepTerm term) {
  return kTerms[term >= 0 && term < static_cast<int>(std::size(kTerms)) ? term : 0];
}

std::string CountWords(const v1::RecommendConfigResponse& response) {
  return absl::StrCat(FormatGrouped(response.legal_count()), " legal configuration",
                      response.legal_count() == 1 ? "" : "s", ", ",
                      FormatGrouped(response.estimated_count()), " estimated, ",
                      FormatGrouped(response.fit_count()),
                      response.fit_count() == 1 ? " fits" : " fit");
}

}  // namespace plimsoll
