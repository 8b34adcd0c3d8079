// ProtoJSON: all that is wrong at once, in our words.
#include "server/wire/json.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plimsoll/v1/planner.pb.h"

namespace plimsoll {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> Lines(const Violations& violations) {
  std::vector<std::string> lines;
  for (const Violation& violation : violations) lines.push_back(ToText(violation));
  return lines;
}

std::vector<std::string> Refusals(const std::string& text) {
  v1::EstimateMemoryRequest request;
  return Lines(ReadJsonMessage(text, &request));
}

TEST(ReadJsonMessageTest, TakesBothSpellingsAndInt64AsNumberOrString) {
  v1::EstimateMemoryRequest snake;
  EXPECT_THAT(ReadJsonMessage(R"({"job": {"training": {"sequence_length": 4096}},
                                  "include_trace": true, "risk": 0.5})",
                              &snake),
              IsEmpty());
  v1::EstimateMemoryRequest camel;
  EXPECT_THAT(ReadJsonMessage(R"({"job": {"training": {"sequenceLength": "4096"}},
                                  "includeTrace": true, "risk": 5e-1})",
                              &camel),
              IsEmpty());
  EXPECT_EQ(snake.SerializeAsString(), camel.SerializeAsString());
  EXPECT_EQ(snake.job().training().sequence_length(), 4096);
}

TEST(ReadJsonMessageTest, TakesEnumsByNameAndByNumber) {
  v1::Prediction prediction;
  EXPECT_THAT(ReadJsonMessage(R"({"verdict": "VERDICT_AT_RISK"})", &prediction), IsEmpty());
  EXPECT_EQ(prediction.verdict(), v1::VERDICT_AT_RISK);
  EXPECT_THAT(ReadJsonMessage(R"({"verdict": 3})", &prediction), IsEmpty());
  EXPECT_EQ(prediction.verdict(), v1::VERDICT_DOES_NOT_FIT);
  EXPECT_THAT(ReadJsonMessage(R"({"verdict": "VERDICT_UNSPECIFIED"})", &prediction), IsEmpty());
  EXPECT_EQ(prediction.verdict(), v1::VERDICT_UNSPECIFIED);
}

TEST(ReadJsonMessageTest, RefusesWhatIsNoValueOfAnEnum) {
  const std::string rule = "must be one of VERDICT_FITS, VERDICT_AT_RISK, VERDICT_DOES_NOT_FIT";
  const std::pair<const char*, std::string> cases[] = {
      {R"("fits")", absl::StrCat("verdict: \"fits\"; ", rule)},
      {"true", absl::StrCat("verdict: true; ", rule)},
      {"{}", absl::StrCat("verdict: an object; ", rule)},
      {"1.5", "verdict: 1.5; must be a name, or an integer of 32 bits"},
      {"3000000000", "verdict: 3000000000; must be a name, or an integer of 32 bits"},
  };
  for (const auto& [verdict, line] : cases) {
    v1::Prediction prediction;
    EXPECT_THAT(Lines(ReadJsonMessage(absl::StrCat("{\"verdict\": ", verdict, "}"), &prediction)),
                ElementsAre(line));
  }
}

TEST(ReadJsonMessageTest, NullIsUnset) {
  v1::EstimateMemoryRequest request;
  EXPECT_THAT(ReadJsonMessage(R"({"job": {"training": {"sequence_length": null}, "model": null}})",
                              &request),
              IsEmpty());
  EXPECT_FALSE(request.job().training().has_sequence_length());
  EXPECT_FALSE(request.job().has_model());
}

TEST(ReadJsonMessageTest, KeepsIntegersThatADoubleCannotHold) {
  v1::EstimateMemoryRequest request;
  EXPECT_THAT(
      ReadJsonMessage(R"({"job": {"cluster": {"gpu_memory_bytes": 9007199254740993}}})", &request),
      IsEmpty());
  EXPECT_EQ(request.job().cluster().gpu_memory_bytes(), 9007199254740993);
}

TEST(ReadJsonMessageTest, AnHfConfigIsFreeForm) {
  v1::EstimateMemoryRequest request;
  EXPECT_THAT(ReadJsonMessage(
                  R"({"job": {"model": {"hf_config": {"any": [1, {"thing": null}], "x": "y"}}}})",
                  &request),
              IsEmpty());
  EXPECT_EQ(request.job().model().hf_config().fields_size(), 2);
}

TEST(ReadJsonMessageTest, FindsEverythingAtOnceInOrderOfNames) {
  EXPECT_THAT(Refusals(R"({"job": {"training": {"sequence_length": "long", "recompute": 5},
                                   "parallelism": {"pipeline_layout": 4}, "nonsense": [1]},
                           "risk": "high"})"),
              ElementsAre("job.nonsense: a list; no such field",
                          "job.parallelism.pipeline_layout: 4; must be a list",
                          "job.training.recompute: 5; must be an object",
                          "job.training.sequence_length: \"long\"; must be an integer of 64 bits",
                          "risk: \"high\"; must be a number"));
}

TEST(ReadJsonMessageTest, SaysWhatWasMeant) {
  EXPECT_THAT(
      Refusals(R"({"job": {"training": {"sequenceLenght": 1, "tensor_parallel_size": 2}}})"),
      ElementsAre("job.training.sequenceLenght: 1; no such field, did you mean sequence_length",
                  "job.training.tensor_parallel_size: 2; no such field here, it is "
                  "job.parallelism.tensor_parallel_size"));
}

TEST(ReadJsonMessageTest, SaysWhatIsNotModelledYet) {
  EXPECT_THAT(Refusals(R"({"job": {
                             "training": {"activation_offload": {}, "offload": {}},
                             "parallelism": {"optimizerOffload": 2, "record_stream": 2},
                             "runtime": {"prefetch": 2}}})"),
              ElementsAre("job.parallelism.optimizerOffload: 2; not modelled yet",
                          "job.parallelism.record_stream: 2; not modelled yet",
                          "job.runtime.prefetch: 2; not modelled yet",
                          "job.training.activation_offload: an object; not modelled yet: what is "
                          "moved to the host's memory",
                          "job.training.offload: an object; not modelled yet"));
}

TEST(ReadJsonMessageTest, ReadsWhatItCanOfABadRequest) {
  v1::EstimateMemoryRequest request;
  EXPECT_THAT(
      Lines(ReadJsonMessage(R"({"job": {"training": {"sequence_length": "long", "microBatchSize": 4,
                                                     "attention": "eager", "colour": 1},
                                        "model": {"hf_config": {"a": 1}, "name": "gpt2"},
                                        "parallelism": {"pipeline_layout": [1, null]},
                                        "cluster": {"gpu_count": 8, "gpuCount": 9},
                                        "runtime": {"versions": {"torch": 2.4, "nccl": "2.20"}}},
                                "risk": 0.25})",
                            &request)),
      ElementsAre("job.cluster.gpu_count: 8; must not be given twice, in both spellings",
                  "job.model.name: \"gpt2\"; must not stand beside hf_config",
                  "job.parallelism.pipeline_layout[1]: null; must be an integer of 64 bits",
                  "job.runtime.versions.torch: 2.4; must be a string, as \"2.4\"",
                  "job.training.colour: 1; no such field",
                  "job.training.sequence_length: \"long\"; must be an integer of 64 bits"));
  v1::EstimateMemoryRequest expected;
  ASSERT_THAT(ReadJsonMessage(R"({"job": {"training": {"micro_batch_size": 4,
                                                       "attention": "eager"},
                                          "model": {"hf_config": {"a": 1}},
                                          "parallelism": {}, "cluster": {},
                                          "runtime": {"versions": {"nccl": "2.20"}}},
                                  "risk": 0.25})",
                              &expected),
              IsEmpty());
  EXPECT_EQ(request.SerializeAsString(), expected.SerializeAsString());
}

TEST(ReadJsonMessageTest, RefusesOneFieldTwice) {
  EXPECT_THAT(Refusals(R"({"include_trace": true, "includeTrace": false})"),
              ElementsAre("include_trace: true; must not be given twice, in both spellings"));
  EXPECT_THAT(Refusals(R"({"job": {"model": {"name": "a", "transformer": {}}}})"),
              ElementsAre("job.model.transformer: an object; must not stand beside name"));
}

TEST(ReadJsonMessageTest, ChecksTheMembersOfListsAndMaps) {
  EXPECT_THAT(Refusals(R"({"job": {"runtime": {"versions": {"torch": 2.4}},
                                   "parallelism": {"pipeline_layout": [4, null, "5", 1.5]},
                                   "training": {"recompute": {"modules": ["mlp", true]}}}})"),
              ElementsAre("job.parallelism.pipeline_layout[1]: null; must be an integer of 64 bits",
                          "job.parallelism.pipeline_layout[3]: 1.5; must be an integer of 64 bits",
                          "job.runtime.versions.torch: 2.4; must be a string, as \"2.4\"",
                          "job.training.recompute.modules[1]: true; must be a string"));
}

TEST(ReadJsonMessageTest, RefusesIntegersBeyond64Bits) {
  for (const char* const number :
       {"1e19", "-1e300", "\"9223372036854775808\"", "\"1e3\"", "\"\""}) {
    EXPECT_THAT(
        Refusals(absl::StrCat(R"({"job": {"training": {"sequence_length": )", number, "}}}")),
        ElementsAre(HasSubstr("; must be an integer of 64 bits")))
        << number;
  }
}

TEST(ReadJsonMessageTest, RefusesWhatIsNotAnObject) {
  EXPECT_THAT(Refusals("[]"), ElementsAre("request: a list; must be an object"));
  EXPECT_THAT(Refusals("7"), ElementsAre("request: 7; must be an object"));
  EXPECT_THAT(Refusals("null"), ElementsAre("request: null; must be an object"));
}

TEST(ReadJsonMessageTest, RefusesWhatIsNotJson) {
  EXPECT_THAT(Refusals(R"({"job": )"), ElementsAre(HasSubstr("; must be JSON: ")));
  EXPECT_THAT(Refusals("job: {}"), ElementsAre(HasSubstr("; must be JSON: ")));
  EXPECT_THAT(Refusals(R"({"a": 1, "a": 2})"), ElementsAre(HasSubstr("; must be JSON: ")));
  EXPECT_THAT(Refusals("{\"a\": \"\xff\"}"), ElementsAre(HasSubstr("; must be JSON: ")));
}

// What a config.json says with Python's numbers arrives whole, whatever else the
// request has; elsewhere they are refused by the field's own rule.
TEST(ReadJsonMessageTest, KeepsPythonsNumbersInAStruct) {
  v1::EstimateMemoryRequest request;
  EXPECT_THAT(Lines(ReadJsonMessage(R"({"job": {"cluster": {"gpuCount": 8.0}, "model":
                  {"hfConfig": {"a": [0, Infinity], "b": {"c": -Infinity}}}}})",
                                    &request)),
              IsEmpty());
  EXPECT_EQ(request.job().cluster().gpu_count(), 8);
  const auto& fields = request.job().model().hf_config().fields();
  EXPECT_EQ(fields.at("a").list_value().values(1).number_value(), HUGE_VAL);
  EXPECT_EQ(fields.at("b").struct_value().fields().at("c").number_value(), -HUGE_VAL);
  EXPECT_THAT(Lines(ReadJsonMessage(R"({"risk": Infinity, "job": {"cluster": {"gpu_count": NaN},
                  "model": {"hf_config": {"a": Infinity}}}})",
                                    &request)),
              ElementsAre("job.cluster.gpu_count: nan; must be an integer of 64 bits",
                          "risk: inf; must be a number"));
  EXPECT_EQ(request.job().model().hf_config().fields().at("a").number_value(), HUGE_VAL);
}

TEST(ReadJsonMessageTest, BoundsNesting) {
  const auto nested = [](int levels) {
    return absl::StrCat(std::string(levels, '['), std::string(levels, ']'));
  };
  EXPECT_THAT(
      Refusals(absl::StrCat(R"({"job": {"model": {"hf_config": {"x": )", nested(28), "}}}}")),
      IsEmpty());
  EXPECT_THAT(
      Refusals(absl::StrCat(R"({"job": {"model": {"hf_config": {"x": )", nested(29), "}}}}")),
      ElementsAre("request: 33 levels; must nest at most 32 levels"));
  EXPECT_THAT(Refusals(nested(400000)),
              ElementsAre("request: 400000 levels; must nest at most 32 levels"));
  EXPECT_THAT(Refusals(R"({"job": "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[ \" [[[["})"),
              ElementsAre(HasSubstr("must be an object")));
}

TEST(ReadJsonMessageTest, RepeatsLongTextShortened) {
  const std::vector<std::string> lines = Refusals(absl::StrCat(
      R"({")", std::string(500000, 'k'), R"(": ")", std::string(500000, 'v'), R"("})"));
  EXPECT_THAT(lines, ElementsAre(absl::StrCat(std::string(61, 'k'), "...: \"", std::string(59, 'v'),
                                              "...\"; no such field")));
}

TEST(ReadJsonMessageTest, ReadsAValueThatIsNotText) {
  google::protobuf::Value value;
  auto& job = *(*value.mutable_struct_value()->mutable_fields())["job"].mutable_struct_value();
  auto& training = *(*job.mutable_fields())["training"].mutable_struct_value();
  (*training.mutable_fields())["sequence_length"].set_number_value(1 << 20);
  v1::EstimateMemoryRequest request;
  EXPECT_THAT(ReadJsonMessage(value, "", &request), IsEmpty());
  EXPECT_EQ(request.job().training().sequence_length(), 1 << 20);
  (*training.mutable_fields())["sequence_length"].set_number_value(
      std::numeric_limits<double>::infinity());
  EXPECT_THAT(Lines(ReadJsonMessage(value, "", &request)),
              ElementsAre("job.training.sequence_length: inf; must be an integer of 64 bits"));
}

TEST(ToJsonTest, PrintsZerosAndInt64AsStrings) {
  v1::Gauge gauge;
  gauge.set_bound_bytes(int64_t{1} << 60);
  EXPECT_EQ(ToJson(gauge), R"({"expectedBytes":"0","boundBytes":"1152921504606846976"})");
}

// Objects of many members, as an attacker sends them.
std::string ManyMembers(int count, const std::string& value) {
  std::string object = "{";
  for (int i = 0; i < count; ++i) {
    absl::StrAppend(&object, i > 0 ? "," : "", "\"x", i, "\":", value);
  }
  return object + "}";
}

TEST(ReadJsonMessageTest, ExplainsSomeOfManyMistakesAndCountsTheRest) {
  const std::vector<std::string> lines =
      Refusals(absl::StrCat("{\"job\":", ManyMembers(20000, "1"), "}"));
  ASSERT_EQ(lines.size(), 257u);
  EXPECT_EQ(lines[0], "request: 20000 mistakes; must have at most 256 to have each explained");
  EXPECT_EQ(lines[1], "job.x0: 1; no such field");
  EXPECT_EQ(Refusals(ManyMembers(256, "1")).size(), 256u) << "not too many";
}

TEST(ReadJsonMessageTest, AMapHasSoManyNames) {
  const auto with_versions = [](int count) {
    return absl::StrCat("{\"job\":{\"runtime\":{\"versions\":", ManyMembers(count, "\"1\""), "}}}");
  };
  EXPECT_THAT(Refusals(with_versions(256)), IsEmpty());
  EXPECT_THAT(Refusals(with_versions(257)),
              ElementsAre("job.runtime.versions: 257 names; must have at most 256"));
}

}  // namespace
}  // namespace plimsoll
