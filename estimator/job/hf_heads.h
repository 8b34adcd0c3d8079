// What stands behind the last layer of a config.json's network: the class under
// `architectures` says which.
#ifndef PLIMSOLL_ESTIMATOR_JOB_HF_HEADS_H_
#define PLIMSOLL_ESTIMATOR_JOB_HF_HEADS_H_

#include "estimator/catalog/hf_families.h"
#include "estimator/job/hf_reader.h"

namespace plimsoll {

// Fills in the head of a model whose family and dropouts have been read. Without
// `architectures` it is a language model's, as AutoModelForCausalLM makes it. A
// class whose head is not modelled is a violation; a model without a head carries
// a warning, as its loss is not said.
//
// Source: transformers, modeling_layers.py (ForSequenceClassification and the like
// of decoders), models/bert/modeling_bert.py, models/roberta/modeling_roberta.py.
void ReadHead(const HfFamily& family, HfReader& reader, Transformer& model);

// Returns whether `architectures` name an encoder's class, which predicts what is
// masked.
bool NamesMaskedHead(const HfReader& reader);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_JOB_HF_HEADS_H_
