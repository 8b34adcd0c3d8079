#include "tests/fuzz/service.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "server/catalog/catalog.h"
#include "server/wire/status.h"
#include "tests/fuzz/fuzzer.h"

namespace plimsoll {
namespace {

constexpr SearchPool::Limits kOneThread = {
    .thread_count = 1, .max_searches = 4, .max_time = std::chrono::milliseconds(50)};

v1::AdmissionPolicy Policy() {
  v1::AdmissionPolicy policy;
  v1::AdmissionRules& rules = *policy.mutable_rules();
  rules.set_mode("enforce");
  rules.set_resize("allowed");
  rules.set_detail("summary");
  rules.set_gpu_counts("1..64");
  for (const char* const change : {"cluster.gpu_count", "training", "parallelism"}) {
    rules.add_allowed_changes(change);
  }
  return policy;
}

}  // namespace

FuzzedService::FuzzedService()
    : access(*Access::Load({.accept_reports = true})),
      gate({.max_in_flight = 256, .slow = std::chrono::hours(1)}, access.get(), &metrics, &log),
      planner(LoadCatalog(), Policy(), &metrics, &log),
      searches(kOneThread, &metrics),
      admissions(kOneThread, &metrics),
      replays(kOneThread, &metrics) {}

FuzzedService& Service() {
  static FuzzedService service;
  return service;
}

SearchStop EnoughSoon() {
  const auto asked = std::make_shared<int>(0);
  return {.enough = [asked](double) { return ++*asked > 3; },
          .given_up = [] { return grpc::StatusCode::OK; }};
}

void CheckStatus(const grpc::Status& status) {
  if (status.ok()) return;
  Promise(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT,
          absl::StrCat("a refusal is INVALID_ARGUMENT, not ", CodeName(status.error_code()), ": ",
                       status.error_message()));
  const google::rpc::Status refusal = ToRpcStatus(status);
  Promise(!status.error_message().empty(), "a refusal has words");
  Promise(!ReasonOf(refusal).empty(), "a refusal has a reason");
  Promise(!ListedViolations(refusal).empty(), "a refusal lists what is wrong");
  Promise(status.error_message().size() + status.error_details().size() * 4 / 3 <=
              kMaxErrorMetadataBytes,
          "a refusal has room in a trailer");
}

void CheckAnswer(const grpc::Status& status, const WireWriter& written,
                 google::protobuf::Message* answer) {
  CheckStatus(status);
  if (!status.ok()) return;
  Promise(answer->ParseFromArray(written.bytes().data(), static_cast<int>(written.bytes().size())),
          "an answer is a message");
}

void CheckEstimate(const v1::EstimateMemoryRequest& request, const Reading& reading) {
  WireWriter written;
  const auto status =
      Service().planner.EstimateMemoryAtOnce(request, reading, /*bytes=*/{}, &written);
  if (!status.has_value()) return;  // a long replay
  v1::EstimateMemoryResponse answer;
  CheckAnswer(*status, written, &answer);
  Promise(!status->ok() || answer.ranks_size() > answer.limiting_rank(), "a rank decides");
}

}  // namespace plimsoll
