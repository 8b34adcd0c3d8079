// A model's config.json, as the client sends it.
#include <string>

#include "server/wire/json.h"
#include "tests/fuzz/fuzzer.h"
#include "tests/fuzz/service.h"

namespace plimsoll {

void FuzzHfConfig(absl::string_view input) {
  google::protobuf::Value config;
  if (!ReadJsonValue(input, &config).empty() || !config.has_struct_value()) return;
  v1::EstimateMemoryRequest request;
  request.set_detail("summary");
  v1::Job& job = *request.mutable_job();
  *job.mutable_model()->mutable_hf_config() = config.struct_value();
  job.mutable_training()->set_sequence_length(1024);
  job.mutable_cluster()->set_gpu("h100-80gb-sxm");
  Promise(request.ParseFromString(request.SerializeAsString()),
          "a config that is read can be sent");
  CheckEstimate(request);
  request.mutable_job()->mutable_model()->set_accept_unknown_model_type(true);
  CheckEstimate(request);
}

}  // namespace plimsoll
