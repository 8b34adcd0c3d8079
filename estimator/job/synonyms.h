// What others call the fields of a job, and their values: rows. They are for reading
// what people write, in job files and on the command line; the API takes its own names
// alone, and of what is refused it names these rows' fields. What was read is printed
// in the API's names.
#ifndef PLIMSOLL_ESTIMATOR_JOB_SYNONYMS_H_
#define PLIMSOLL_ESTIMATOR_JOB_SYNONYMS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "estimator/base/violation.h"

namespace plimsoll {

// How the value of a synonym becomes the field's.
//   kSame       as the field takes it
//   kSwitch     true is `on`, false is `off`; where `off` is empty, false says nothing
//   kMebibytes  a number of 2^20 bytes
//   kGpus       as the field takes it; beside a number of nodes it may be of each node
//   kNodes      a number of nodes: times cluster.gpus_per_node it is the field
//   kAccumulation  a number of micro-batches of each rank: times
//               training.micro_batch_size and parallelism.data_parallel_size it is the field
//   kHost       cpu is true, none says nothing
//   kImplied    true is `on` where nothing else says the field; beside it stand the words of `off`
//               too, a blank between. False says nothing
//   kBits       4 and 8 are as load-in-4bit and load-in-8bit that are true
//   kWords      as the field takes it, and no word but those of `on`, a blank between
//   kRefined    true makes `off`, or a field that nothing says, `on`. False says nothing
// Of all but kSame, of numbers and of what is true or false, auto says nothing either: DeepSpeed's
// and axolotl's word.
enum class WordReading : uint8_t {
  kSame,
  kSwitch,
  kMebibytes,
  kGpus,
  kNodes,
  kAccumulation,
  kHost,
  kImplied,
  kBits,
  kWords,
  kRefined,
};

// Whether a word is true or false.
constexpr bool IsBoolean(WordReading reading) {
  return reading == WordReading::kSwitch || reading == WordReading::kImplied ||
         reading == WordReading::kRefined;
}

// Another name of a field. It means exactly what the field means: what is merely near
// stands among the refused.
struct FieldSynonym {
  absl::string_view word;    // as NormalizedName returns it, or a path of such words
  absl::string_view field;   // path below "job."
  absl::string_view source;  // whose word it is; "usual" where everybody's
  WordReading reading = WordReading::kSame;
  absl::string_view on = "";
  absl::string_view off = "";
};

// Another word for a value of a field.
struct ValueSynonym {
  absl::string_view field;   // path below "job."
  absl::string_view word;    // lower case, with dashes
  absl::string_view value;   // the field's own word
  absl::string_view source;  // whose word it is
  // Counts with these trainers alone, a blank between; empty: with all that have no row of their
  // own.
  absl::string_view trainers = "";
  // What else it says, where the job leaves that open: a field and its value.
  absl::string_view other_field = "";
  absl::string_view other_value = "";
  absl::string_view note = "";  // what else the word may mean to some
  // Counts with these frameworks alone, a blank between, and there before what is refused; empty:
  // with all.
  absl::string_view frameworks = "";
};

// A word that is known and cannot be taken for a field or a value.
struct RefusedWord {
  absl::string_view field;  // whose value it is, below "job."; empty: it is a name itself
  absl::string_view word;   // as the words of the rows above
  ViolationCode code;
  absl::string_view rule;
  absl::string_view neutral = "";  // a value of the name that asks for nothing
  // A value is refused with these trainers alone, a blank between; empty: with all.
  absl::string_view trainers = "";
};

absl::Span<const FieldSynonym> FieldSynonyms();
absl::Span<const ValueSynonym> ValueSynonyms();
absl::Span<const RefusedWord> RefusedWords();

// Whether a list of words with blanks between, as rows have it, has `word`.
bool HasWord(absl::string_view words, absl::string_view word);

// Returns a name as the rows have it: "seqLength", "SEQ_LENGTH" and "seq-length" are
// "seq-length".
std::string NormalizedName(absl::string_view name);

// Each returns the row of a name, or of its longest end where it is a path:
// "training.seq_len" is "seq-len". Null where there is none.
const FieldSynonym* FindFieldSynonym(absl::string_view path);
const RefusedWord* FindRefusedName(absl::string_view path);

// Who runs a job, by the API's words; empty where the job does not say.
struct WordUser {
  absl::string_view trainer;
  absl::string_view framework;
};

// Each returns the row of a value of `field` under `user`; null where there is none.
const ValueSynonym* FindValueSynonym(absl::string_view field, absl::string_view value,
                                     const WordUser& user);
const RefusedWord* FindRefusedValue(absl::string_view field, absl::string_view value,
                                    const WordUser& user);

// Fields whose values are words, the trainer's and the framework's first.
std::vector<absl::string_view> VocabularyFields();

// Returns the field's own word that `value` is but for upper case and underscores;
// empty where it is none.
absl::string_view OwnWord(absl::string_view field, absl::string_view value);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_JOB_SYNONYMS_H_
