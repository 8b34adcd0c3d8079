// Job files: a plimsoll.v1.Job in YAML or JSON, in the API's names or other people's
// (estimator/job/synonyms.h), and flags that override it.
#ifndef PLIMSOLL_CLIENT_JOB_JOB_FILE_H_
#define PLIMSOLL_CLIENT_JOB_JOB_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plimsoll/v1/job.pb.h"
#include "server/admit/job_words.h"
#include "server/words/job_translator.h"
#include "server/words/refusal.h"

namespace plimsoll {

// Reads a job from `file` ("-" is standard input, "" an empty job), then
// applies `settings` in order.
//
// `model.hf_config` may name a config.json, which is read relative to the job
// file, or to the working folder where a setting names it.
//
// `misread` gets what is wrong with fields, which the job then lacks; `read_as`, where it
// is not null, what the job says in other words than the API's: field, value, and as what it
// was written.
//
// Errors: INVALID_ARGUMENT where the file is no document at all, or a config.json.
absl::StatusOr<v1::Job> ReadJob(const std::string& file, const std::vector<JobSetting>& settings,
                                Violations* misread,
                                std::vector<v1::Assumption>* read_as = nullptr);

// Returns the job that words describe, with the files that they name.
//
// Errors: those of ReadJob.
absl::StatusOr<v1::Job> ReadNamedJob(const JobWords& words, Violations* misread);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_JOB_JOB_FILE_H_
