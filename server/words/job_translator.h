// Reads what people write of a job into the API's own names: other names of fields and
// of values, one word where a section is due, sizes with a unit.
#ifndef PLIMSOLL_SERVER_WORDS_JOB_TRANSLATOR_H_
#define PLIMSOLL_SERVER_WORDS_JOB_TRANSLATOR_H_

#include <google/protobuf/descriptor.h>
#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "plimsoll/v1/job.pb.h"
#include "plimsoll/v1/planner.pb.h"
#include "server/wire/field_names.h"

namespace plimsoll {

// One field of a job and what to set it to, as "training.sequence_length" and
// "8192". Lists and mappings are written in YAML.
struct JobSetting {
  std::string field;
  std::string value;
};

// Returns the setting of a model that is given in one word: a config.json where it ends
// in .json or is a path (./llama, ../llama, /models/llama), else a name: of the catalog, or
// of the hub, as meta-llama/Llama-3.1-8B.
JobSetting ModelSetting(const std::string& model);

// Translates one job: its file and settings in turn, then what follows from all. What
// is nobody's word is left as it is, for the reader of the API's names to refuse.
class JobTranslator {
 public:
  // Returns the mapping of a job in the API's names. Merge keys are left alone, as is all
  // that stands behind them.
  YAML::Node Translate(const YAML::Node& job);

  // Returns nothing where the word says nothing, or is refused.
  std::optional<JobSetting> Translate(const JobSetting& setting);

  // Translates the words of `job`, which was read from what the others returned, and
  // sets what follows from numbers of nodes and of micro-batches.
  void Finish(v1::Job* job);

  // What was read otherwise than it was written: field, value, and as what.
  const std::vector<v1::Assumption>& read() const { return read_; }

  // What is wrong, with paths below "job.".
  const Violations& violations() const { return violations_; }

 private:
  // A number that another field follows from, as it was written.
  struct Written {
    int64_t number = 0;
    std::string name;
    bool by_setting = false;
  };

  // A word that is true, and settles a field once all others are read.
  struct Truth {
    const FieldSynonym* row;
    std::string path;
    std::string text;
    bool by_setting = false;
  };

  // A field that is to be set, and where it was found.
  struct Moved {
    std::string field;
    YAML::Node value;
  };

  void Fail(absl::string_view path, absl::string_view value, absl::string_view rule,
            ViolationCode code);
  void Forget(const std::string& field);
  void Note(absl::string_view field, absl::string_view name, absl::string_view value);
  YAML::Node TranslateMapping(const YAML::Node& node, const google::protobuf::Descriptor& type,
                              const std::string& path, std::vector<Moved>* moved);
  YAML::Node TranslateValue(const YAML::Node& node, const google::protobuf::FieldDescriptor& field,
                            const std::string& path, std::vector<Moved>* moved);
  bool Move(const std::string& path, const YAML::Node& node, std::vector<Moved>* moved);
  bool TakeWord(const FieldSynonym& row, const std::string& path, const std::string& text);
  bool MoveSynonym(const FieldSynonym& row, const std::string& path, const YAML::Node& node,
                   std::vector<Moved>* moved);
  bool MoveSection(const std::string& path, const YAML::Node& node, std::vector<Moved>* moved);
  bool MoveBelow(const std::string& path, const YAML::Node& node, std::vector<Moved>* moved);
  void Place(const Moved& moved, YAML::Node* root);
  std::optional<JobSetting> Resolve(const std::string& path, const std::string& value);
  std::string Sized(const std::string& field, const std::string& text);
  void TranslateWords(const std::string& path, v1::Job* job);
  std::string TranslateWord(const std::string& path, const std::string& word, v1::Job* job);
  void Settle(const Truth& truth, v1::Job* job);
  bool Stands(const Written& written, absl::string_view field) const;
  void CountNodes(v1::Cluster* cluster);
  void CountMicroBatches(v1::Job* job);
  void FillNotes(const v1::Job& job);

  std::vector<v1::Assumption> read_;
  Violations violations_;
  std::vector<Truth> truths_;
  std::optional<Written> nodes_;
  std::optional<Written> accumulation_;
  std::optional<Written> gpus_;                             // that may be of all nodes or of each
  std::set<std::string> set_;                               // paths of what settings set
  std::map<absl::string_view, const FieldSynonym*> named_;  // by which one, of those with own words
  bool in_settings_ = false;
  bool engine_ = false;  // the job has DeepSpeed's own section
  int value_count_ = 0;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_WORDS_JOB_TRANSLATOR_H_
