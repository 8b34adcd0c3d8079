// Refusals: complete where they can be, and never too large for a trailer.
#include "server/wire/status.h"

#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "gtest/gtest.h"
#include "plimsoll/v1/refusal.pb.h"
#include "server/wire/shorten.h"

namespace plimsoll {
namespace {

template <typename Detail>
Detail DetailOf(const grpc::Status& status) {
  Detail detail;
  const google::rpc::Status rpc_status = ToRpcStatus(status);
  for (const auto& any : rpc_status.details()) any.UnpackTo(&detail);
  return detail;
}

TEST(InvalidArgumentTest, CarriesEveryViolationInWordsAndAsData) {
  const grpc::Status status =
      InvalidArgument({{"job.a", "1", "must be 2", ViolationCode::kConflict, {"cluster.gpu_count"}},
                       {"job.b", "\"x\"", "must be y"}});
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "job.a: 1; must be 2\njob.b: \"x\"; must be y");
  const auto bad_request = DetailOf<google::rpc::BadRequest>(status);
  ASSERT_EQ(bad_request.field_violations_size(), 2);
  EXPECT_EQ(bad_request.field_violations(1).field(), "job.b");
  EXPECT_EQ(bad_request.field_violations(1).description(), "\"x\"; must be y");
  EXPECT_EQ(bad_request.field_violations(0).reason(), "CONFLICT");
  EXPECT_EQ(bad_request.field_violations(1).reason(), "INVALID_VALUE");
  const auto refused = DetailOf<v1::RefusedFields>(status);
  ASSERT_EQ(refused.fields_size(), 2);
  EXPECT_EQ(refused.fields(0).reason(), v1::VIOLATION_REASON_CONFLICT);
  EXPECT_EQ(refused.fields(0).other_fields(0), "cluster.gpu_count");
  EXPECT_EQ(refused.fields(1).value(), "\"x\"");
  const auto info = DetailOf<google::rpc::ErrorInfo>(status);
  EXPECT_EQ(info.reason(), "CONFLICT");
  EXPECT_EQ(info.domain(), "plimsoll");
  EXPECT_EQ(info.metadata().at("violationCount"), "2");
}

TEST(InvalidArgumentTest, CutsAListThatIsTooLongAndSaysSo) {
  Violations violations;
  for (int i = 0; i < 5000; ++i) {
    violations.push_back({absl::StrCat("job.field_", i), std::string(100000, '%'), "must not"});
  }
  const grpc::Status status = InvalidArgument(violations);
  // The worst case on the wire: each byte of the message percent-encoded.
  EXPECT_LE(status.error_message().size() + status.error_details().size() * 4 / 3,
            kMaxErrorMetadataBytes);
  const auto bad_request = DetailOf<google::rpc::BadRequest>(status);
  const auto info = DetailOf<google::rpc::ErrorInfo>(status);
  EXPECT_GT(bad_request.field_violations_size(), 10);
  EXPECT_EQ(info.metadata().at("violationCount"), "5000");
  EXPECT_EQ(info.metadata().at("listedCount"), absl::StrCat(bad_request.field_violations_size()));
  EXPECT_THAT(status.error_message(), testing::EndsWith(" more"));
}

TEST(InvalidArgumentTest, SurvivesTextThatIsNotUtf8) {
  const grpc::Status status = InvalidArgument({{"job.\xc3", "\xff\xfe", "must be text"}});
  EXPECT_EQ(status.error_message(), "job.?: ??; must be text");
  EXPECT_EQ(ToRpcStatus(status).message(), status.error_message());
}

TEST(InvalidArgumentTest, KeepsEachViolationInItsLine) {
  EXPECT_EQ(InvalidArgument({{"job.a", "1\n2\x1b[0m", "must be 2"}}).error_message(),
            "job.a: 1?2?[0m; must be 2");
}

// The codes are the proto's, in its words and its order.
TEST(InvalidArgumentTest, HasAReasonOfTheProtoForEachCode) {
  const auto& reasons = *v1::ViolationReason_descriptor();
  ASSERT_EQ(reasons.value_count(), static_cast<int>(std::size(kViolationCodes)) + 1);
  for (size_t i = 0; i < std::size(kViolationCodes); ++i) {
    const ViolationCodeRow& row = kViolationCodes[i];
    EXPECT_EQ(static_cast<size_t>(row.code), i);
    EXPECT_EQ(reasons.value(static_cast<int>(i) + 1)->name(),
              absl::StrCat("VIOLATION_REASON_", row.name));
    const Violations listed =
        ListedViolations(ToRpcStatus(InvalidArgument({{"job.a", "1", "no", row.code}})));
    ASSERT_EQ(listed.size(), 1u);
    EXPECT_EQ(listed[0].code, row.code) << row.name;
  }
}

TEST(ReasonOfTest, IsNotModelledOnlyWhereNothingIsAMistake) {
  const Violation planned = {"job.a", "1", "not modelled yet", ViolationCode::kNotModelled};
  const Violation misspelt = {"job.b", "1", "not modelled yet", ViolationCode::kUnknownField};
  const Violation missing = {"job.c", "unset", "must be set", ViolationCode::kMissing};
  EXPECT_EQ(ReasonOf({planned, planned}), "NOT_MODELLED");
  EXPECT_EQ(ReasonOf({planned, misspelt, missing}), "UNKNOWN_FIELD");
  EXPECT_EQ(ReasonOf(ToRpcStatus(InvalidArgument({planned, missing}))), "MISSING");
  EXPECT_EQ(ReasonOf(ToRpcStatus(grpc::Status::OK)), "");
}

// Values and rules may hold what separates them.
TEST(ListedViolationsTest, AreThoseOfTheRefusal) {
  const Violations violations = {
      {"job.a", "unset", "must be set", ViolationCode::kMissing},
      {"job.b", "x; y", "no; never", ViolationCode::kConflict, {"model", "cluster.gpu"}}};
  const Violations listed = ListedViolations(ToRpcStatus(InvalidArgument(violations)));
  ASSERT_EQ(listed.size(), 2u);
  EXPECT_EQ(listed[0].value, "unset");
  EXPECT_EQ(listed[1].value, "x; y");
  EXPECT_EQ(listed[1].rule, "no; never");
  EXPECT_EQ(listed[1].others, violations[1].others);
  EXPECT_TRUE(ListedViolations(ToRpcStatus(Overloaded(4, "requests", std::chrono::milliseconds(1))))
                  .empty());
}

TEST(OverloadedTest, SaysWhenToComeBack) {
  const grpc::Status status = Overloaded(4, "requests", std::chrono::milliseconds(1250));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.error_message(),
            "overloaded: 4 requests are in flight already; try again in 1250 ms");
  const auto retry = DetailOf<google::rpc::RetryInfo>(status);
  EXPECT_EQ(retry.retry_delay().seconds(), 1);
  EXPECT_EQ(retry.retry_delay().nanos(), 250000000);
}

TEST(ShortenTest, CutsBetweenCharacters) {
  EXPECT_EQ(Shorten("abc", 3), "abc");
  EXPECT_EQ(Shorten("abcdefg", 6), "abc...");
  EXPECT_EQ(Shorten("a\u00e9\u20ac\U0001f600", 10), "a\u00e9\u20ac\U0001f600");
  EXPECT_EQ(Shorten("a\u00e9\u20ac\U0001f600", 9), "a\u00e9\u20ac...");
  EXPECT_EQ(Shorten("a\u00e9\u20ac\U0001f600", 8), "a\u00e9...");
}

TEST(ShortenTest, ReplacesWhatIsNotUtf8) {
  EXPECT_EQ(Shorten("\xc0\xaf \xed\xa0\x80 \xf4\x90\x80\x80 \xe2\x82", 64), "?? ??? ???? ??");
}

TEST(CodeNameTest, IsAsDashboardsSpellIt) {
  EXPECT_EQ(CodeName(grpc::StatusCode::OK), "OK");
  EXPECT_EQ(CodeName(grpc::StatusCode::RESOURCE_EXHAUSTED), "ResourceExhausted");
  EXPECT_EQ(CodeName(grpc::StatusCode::UNAUTHENTICATED), "Unauthenticated");
}

}  // namespace
}  // namespace plimsoll
