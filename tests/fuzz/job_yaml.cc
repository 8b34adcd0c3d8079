// A job file, or a job script, as users write them.
#include "client/job/job_file.h"
#include "google/protobuf/util/message_differencer.h"
#include "server/words/yaml_writer.h"
#include "tests/fuzz/fuzzer.h"
#include "tests/fuzz/service.h"

namespace plimsoll {

void FuzzJobYaml(absl::string_view input) {
  v1::EstimateMemoryRequest request;
  request.set_detail("summary");
  Violations misread;
  const absl::StatusOr<v1::Job> job = ReadJob(FileWith(input), {}, &misread);
  if (!job.ok()) return Promise(!job.status().message().empty(), "a refusal has words");
  *request.mutable_job() = *job;
  Promise(request.ParseFromString(request.SerializeAsString()), "a job that is read can be sent");
  CheckEstimate(request, {.misread = misread});
  Violations misread_again;
  const absl::StatusOr<v1::Job> again = ReadJob(FileWith(ToJobFile(*job)), {}, &misread_again);
  if (!misread.empty()) return;
  Promise(again.ok() && misread_again.empty() &&
              google::protobuf::util::MessageDifferencer::Equals(*job, *again),
          "a job reads as it was written");
}

}  // namespace plimsoll
