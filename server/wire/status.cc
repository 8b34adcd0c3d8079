#include "server/wire/status.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "google/rpc/error_details.pb.h"
#include "grpcpp/support/error_details.h"
#include "server/wire/ordered_bytes.h"
#include "server/wire/shorten.h"
#include "server/wire/violation_reason.h"

namespace plimsoll {
namespace {

constexpr char kDomain[] = "plimsoll";
constexpr size_t kMaxFieldBytes = 256;
constexpr size_t kMaxValueBytes = 72;
constexpr size_t kMaxRuleBytes = 512;
// What the message may take of the trailer; the details have the rest.
constexpr size_t kMaxMessageBytes = 1536;
// More than a trailer has room for.
constexpr size_t kMaxListed = 256;

// Short, and in one line.
std::string OneLine(absl::string_view text, size_t max_bytes) {
  std::string line = Shorten(text, max_bytes);
  for (char& c : line) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) c = '?';
  }
  return line;
}

Violation Bounded(const Violation& violation) {
  Violation bounded = violation;
  bounded.field = OneLine(violation.field, kMaxFieldBytes);
  bounded.value = OneLine(violation.value, kMaxValueBytes);
  bounded.rule = OneLine(violation.rule, kMaxRuleBytes);
  return bounded;
}

// Bytes of a status message in the trailer: gRPC percent-encodes all but
// printable ASCII.
size_t PercentEncodedBytes(absl::string_view text) {
  size_t bytes = 0;
  for (const char c : text) bytes += c >= 0x20 && c <= 0x7e && c != '%' ? 1 : 3;
  return bytes;
}

size_t TrailerBytes(const google::rpc::Status& status) {
  return PercentEncodedBytes(status.message()) + (status.ByteSizeLong() + 2) / 3 * 4;
}

google::rpc::ErrorInfo MakeErrorInfo(const std::string& reason) {
  google::rpc::ErrorInfo info;
  info.set_domain(kDomain);
  info.set_reason(reason);
  return info;
}

grpc::Status ToGrpcStatus(const google::rpc::Status& status) {
  grpc::Status result;
  grpc::SetErrorDetails(status, &result);
  return result;
}

// As many lines of `count` as the message has room for, then how many there are besides.
std::string MessageOf(const Violations& violations, size_t count) {
  std::string message;
  size_t told = 0;
  for (; told < violations.size(); ++told) {
    const std::string line = absl::StrCat(told > 0 ? "\n" : "", ToText(violations[told]));
    if (told > 0 && PercentEncodedBytes(message) + PercentEncodedBytes(line) > kMaxMessageBytes) {
      break;
    }
    message += line;
  }
  if (told < count) absl::StrAppend(&message, "\nand ", count - told, " more");
  return message;
}

std::string NameOf(ViolationCode code) {
  const absl::string_view name = RowOf(code).name;
  return std::string(name.data(), name.size());
}

// Of `count` violations, the first of which are given, and of these the first are listed.
google::rpc::Status WithDetails(const Violations& violations, size_t count, size_t listed) {
  google::rpc::BadRequest bad_request;
  v1::RefusedFields refused;
  for (size_t i = 0; i < listed; ++i) {
    const Violation& violation = violations[i];
    auto* const entry = bad_request.add_field_violations();
    entry->set_field(violation.field);
    entry->set_description(absl::StrCat(violation.value, "; ", violation.rule));
    entry->set_reason(NameOf(violation.code));
    auto* const field = refused.add_fields();
    field->set_value(violation.value);
    field->set_reason(ToProto(violation.code));
    *field->mutable_other_fields() = {violation.others.begin(), violation.others.end()};
  }
  google::rpc::ErrorInfo info = MakeErrorInfo(std::string(ReasonOf(violations)));
  (*info.mutable_metadata())["violationCount"] = absl::StrCat(count);
  (*info.mutable_metadata())["listedCount"] = absl::StrCat(listed);
  google::rpc::Status status;
  status.set_code(grpc::StatusCode::INVALID_ARGUMENT);
  status.set_message(MessageOf(violations, count));
  status.add_details()->PackFrom(bad_request);
  status.add_details()->PackFrom(refused);
  status.add_details()->PackFrom(info);
  status.mutable_details()->rbegin()->set_value(SerializeInOrder(info));
  return status;
}

}  // namespace

grpc::Status InvalidArgument(const Violations& violations) {
  const size_t count = violations.size();
  Violations shortened;
  for (size_t i = 0; i < std::min(count, kMaxListed); ++i) {
    shortened.push_back(Bounded(violations[i]));
  }
  // The most that can be listed, found by halving: the size grows with it.
  size_t fits = 0;
  size_t too_many = shortened.size() + 1;
  while (too_many - fits > 1) {
    const size_t middle = (fits + too_many) / 2;
    const bool small =
        TrailerBytes(WithDetails(shortened, count, middle)) <= kMaxErrorMetadataBytes;
    (small ? fits : too_many) = middle;
  }
  return ToGrpcStatus(WithDetails(shortened, count, fits));
}

absl::string_view ReasonOf(const Violations& violations) {
  const auto mistake = std::find_if(
      violations.begin(), violations.end(),
      [](const Violation& violation) { return violation.code != ViolationCode::kNotModelled; });
  return RowOf(mistake == violations.end() ? ViolationCode::kNotModelled : mistake->code).name;
}

Violations ListedViolations(const google::rpc::Status& refusal) {
  google::rpc::BadRequest bad_request;
  v1::RefusedFields refused;
  for (const google::protobuf::Any& detail : refusal.details()) {
    detail.UnpackTo(&bad_request) || detail.UnpackTo(&refused);
  }
  Violations violations;
  const int count = std::min(bad_request.field_violations_size(), refused.fields_size());
  for (int i = 0; i < count; ++i) {
    const auto& entry = bad_request.field_violations(i);
    const v1::RefusedField& field = refused.fields(i);
    absl::string_view rule = entry.description();
    absl::ConsumePrefix(&rule, absl::StrCat(field.value(), "; "));
    violations.push_back({entry.field(),
                          field.value(),
                          std::string(rule),
                          FromProto(field.reason()),
                          {field.other_fields().begin(), field.other_fields().end()}});
  }
  return violations;
}

std::string ReasonOf(const google::rpc::Status& refusal) {
  google::rpc::ErrorInfo info;
  for (const google::protobuf::Any& detail : refusal.details()) {
    if (detail.UnpackTo(&info)) return info.reason();
  }
  return "";
}

grpc::Status Refusal(grpc::StatusCode code, const std::string& message, const std::string& reason) {
  google::rpc::Status status;
  status.set_code(code);
  status.set_message(Shorten(message, kMaxMessageBytes));
  status.add_details()->PackFrom(MakeErrorInfo(reason));
  return ToGrpcStatus(status);
}

namespace {

constexpr char kOverloaded[] = "OVERLOADED";

grpc::Status RefuseForNow(const std::string& why, const std::string& reason,
                          std::chrono::milliseconds retry_after) {
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(retry_after.count() / 1000);
  retry.mutable_retry_delay()->set_nanos(
      static_cast<int32_t>(retry_after.count() % 1000 * 1000000));
  google::rpc::Status status;
  status.set_code(grpc::StatusCode::RESOURCE_EXHAUSTED);
  status.set_message(
      Shorten(absl::StrCat(why, "; try again in ", retry_after.count(), " ms"), kMaxMessageBytes));
  status.add_details()->PackFrom(retry);
  status.add_details()->PackFrom(MakeErrorInfo(reason));
  return ToGrpcStatus(status);
}

}  // namespace

grpc::Status Overloaded(int64_t max_in_flight, absl::string_view what,
                        std::chrono::milliseconds retry_after) {
  return RefuseForNow(
      absl::StrCat("overloaded: ", max_in_flight, " ", what, " are in flight already"), kOverloaded,
      retry_after);
}

grpc::Status OverShare(std::chrono::milliseconds retry_after) {
  return RefuseForNow("overloaded: calls wait, and this caller has asked for more than its share",
                      kOverloaded, retry_after);
}

grpc::Status OverLimit(const std::string& limit, std::chrono::milliseconds retry_after) {
  return RefuseForNow(absl::StrCat(limit, " here"), "CALLER_LIMIT", retry_after);
}

std::optional<std::chrono::milliseconds> RetryAfterOf(const grpc::Status& status) {
  if (status.error_code() != grpc::StatusCode::RESOURCE_EXHAUSTED) return std::nullopt;
  google::rpc::RetryInfo retry;
  const google::rpc::Status parsed = ToRpcStatus(status);
  for (const auto& detail : parsed.details()) {
    if (!detail.UnpackTo(&retry)) continue;
    return std::chrono::milliseconds(retry.retry_delay().seconds() * 1000 +
                                     retry.retry_delay().nanos() / 1000000);
  }
  return std::nullopt;
}

google::rpc::Status ToRpcStatus(const grpc::Status& status) {
  google::rpc::Status result;
  if (!status.error_details().empty() && result.ParseFromString(status.error_details())) {
    return result;
  }
  result.Clear();
  result.set_code(status.error_code());
  result.set_message(Shorten(status.error_message(), kMaxMessageBytes));
  return result;
}

absl::string_view CodeName(grpc::StatusCode code) {
  static constexpr std::array<const char*, 17> kNames = {
      "OK",       "Canceled",       "Unknown",          "InvalidArgument",   "DeadlineExceeded",
      "NotFound", "AlreadyExists",  "PermissionDenied", "ResourceExhausted", "FailedPrecondition",
      "Aborted",  "OutOfRange",     "Unimplemented",    "Internal",          "Unavailable",
      "DataLoss", "Unauthenticated"};
  return code >= 0 && code < static_cast<int>(kNames.size()) ? kNames[code] : "Unknown";
}

}  // namespace plimsoll
