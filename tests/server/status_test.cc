// Refusals: complete where they can be, and never too large for a trailer.
#include "server/status.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "gtest/gtest.h"
#include "server/shorten.h"

namespace plimsoll {
namespace {

template <typename Detail>
Detail DetailOf(const grpc::Status& status) {
  Detail detail;
  const google::rpc::Status rpc_status = ToRpcStatus(status);
  for (const auto& any : rpc_status.details()) any.UnpackTo(&detail);
  return detail;
}

TEST(InvalidArgumentTest, CarriesEveryViolationTwice) {
  const grpc::Status status =
      InvalidArgument({{"job.a", "1", "must be 2"}, {"job.b", "\"x\"", "must be y"}});
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "job.a: 1; must be 2\njob.b: \"x\"; must be y");
  const auto bad_request = DetailOf<google::rpc::BadRequest>(status);
  ASSERT_EQ(bad_request.field_violations_size(), 2);
  EXPECT_EQ(bad_request.field_violations(1).field(), "job.b");
  EXPECT_EQ(bad_request.field_violations(1).description(), "\"x\"; must be y");
  const auto info = DetailOf<google::rpc::ErrorInfo>(status);
  EXPECT_EQ(info.reason(), "INVALID_JOB");
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

TEST(ListedViolationsTest, AreThoseOfTheRefusal) {
  const Violations listed = ListedViolations(ToRpcStatus(
      InvalidArgument({{"job.a", "unset", "must be set"}, {"job.b", "set", "no; never"}})));
  ASSERT_EQ(listed.size(), 2u);
  EXPECT_EQ(listed[0].value, "unset");
  EXPECT_EQ(ToText(listed[1]), "job.b: set; no; never");
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
