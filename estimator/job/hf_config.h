// Reads a Hugging Face config.json into an architecture.
#ifndef PLIMSOLL_ESTIMATOR_JOB_HF_CONFIG_H_
#define PLIMSOLL_ESTIMATOR_JOB_HF_CONFIG_H_

#include "absl/strings/string_view.h"
#include "estimator/base/config_value.h"
#include "estimator/base/notice.h"
#include "estimator/base/violation.h"
#include "estimator/catalog/model.h"

namespace plimsoll {

// The code of a warning: the configuration has layers that predict further tokens.
inline constexpr char kNextTokensIgnored[] = "next-tokens-ignored";

// An architecture, or why there is none. `model` may be used only where
// `violations` is empty.
struct HfConfig {
  Transformer model;
  std::vector<Warning> warnings;
  Violations violations;
};

struct HfReading {
  // A model_type without a row that has the fields of a dense decoder is read as a
  // Llama, with a warning.
  bool accept_unknown_model_type = false;
};

// Reads a config.json as `transformers` would: a network of text alone, and the head
// that its `architectures` name. `field` is the path to put before names in
// violations and warnings, as "job.model.hf_config".
//
// A guess is no answer: a `model_type` that is not known, another network beside the
// text (vision, audio), and what no row describes (experts, state-space layers, an
// encoder with a decoder, cross attention, other heads) are violations, not modelled,
// that name the field which says so. A field that is missing, of a wrong type or out
// of range is one too.
//
// Source: the configuration and modelling files of each model in
// huggingface/transformers, src/transformers/models/.
HfConfig ReadHfConfig(const ConfigValue& config, absl::string_view field, HfReading reading = {});

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_JOB_HF_CONFIG_H_
