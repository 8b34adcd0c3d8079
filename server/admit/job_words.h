// What a user says to Plimsoll beside the job: `#PLIMSOLL` lines of a batch script,
// PLIMSOLL_JOB, or --comment.
#ifndef PLIMSOLL_SERVER_ADMIT_JOB_WORDS_H_
#define PLIMSOLL_SERVER_ADMIT_JOB_WORDS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plimsoll/v1/admission.pb.h"
#include "server/words/job_translator.h"

namespace plimsoll {

// The most bytes of the lines of a script, and of PLIMSOLL_JOB.
inline constexpr size_t kMaxWordsBytes = 64 << 10;
// The most bytes of a comment: Slurm's own limit.
// Source: Slurm 22.05, src/slurmctld/job_mgr.c, _test_strlen of `comment`
inline constexpr size_t kMaxCommentBytes = 1024;

// So much of a word that cannot be read is repeated.
inline constexpr size_t kMostShownBytes = 72;

// The words of one source, apart.
struct JobWords {
  std::string source;      // "PLIMSOLL_JOB", "#PLIMSOLL" or "--comment"; empty: nothing is said
  std::string file;        // of a job; empty: none is named
  std::string inline_job;  // a job in JSON; empty: none
  std::vector<JobSetting> settings;
  bool resize_allowed = false;  // the job reads Plimsoll's environment

  bool said() const { return !source.empty(); }
};

// Reads the words of the first of PLIMSOLL_JOB, the script and the comment that
// says anything. Words are separated by blanks:
//   FIELD=VALUE      as a flag, `zero_stage=3`, or by path, `training.optimizer.name=lion`
//   resize=allowed   the job reads PLIMSOLL_ variables, so it may be changed
//   {...             the rest of the line is a job in JSON
//   unread=...       the rest of the line is what could not be read of the words where
//                    they were resolved (deploy/slurm/plimsoll/resolve.lua): wrong
//   anything else    is the name of a job file
// A comment has words only where it begins with `plimsoll:`.
//
// `violations` gets what is wrong; the field of each is the source.
JobWords ReadWords(const v1::SchedulerRequest& request, Violations* violations);

// Whether a document is a job script: it begins with `#!`, or has a line that begins with
// `#PLIMSOLL`.
bool IsJobScript(absl::string_view text);

// Reads the words of a script's `#PLIMSOLL` lines, as ReadWords does.
JobWords ReadScriptWords(absl::string_view script, Violations* violations);

// Reads the job in JSON that the words hold, if any, into `job`.
void ReadInlineJob(const JobWords& words, v1::Job* job, Violations* misread);

// Returns the job that the words describe; nothing where they name a file, which is not
// read. `misread` gets that, and what is wrong with fields, which the job then lacks.
std::optional<v1::Job> ReadJob(const JobWords& words, Violations* misread);

// Returns words that say what could not be read, a line each.
std::string UnreadWords(const Violations& wrong);

// Returns `job` in one line, as PLIMSOLL_JOB takes it.
std::string InlineWords(const v1::Job& job, bool resize_allowed);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_ADMIT_JOB_WORDS_H_
