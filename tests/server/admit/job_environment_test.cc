// What travels with a job.
#include "server/admit/job_environment.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace plimsoll {
namespace {

using testing::ElementsAre;
using testing::Pair;

template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message)) << text;
  return message;
}

v1::EstimateMemoryResponse Answer() {
  return Parse<v1::EstimateMemoryResponse>(R"(
    verdict: VERDICT_FITS limiting_rank: 1 usable_bytes: 100 detail: "replay"
    estimator_version: "1.2" calibration_id: "c"
    ranks { device { expected_bytes: 1 bound_bytes: 2 } }
    ranks { allocated { expected_bytes: 50 bound_bytes: 51 } reserved { expected_bytes: 60
            bound_bytes: 66 } device { expected_bytes: 70 bound_bytes: 77 } }
    assumptions { field: "parallelism.data_parallel_size" value: "4" reason: "follows" }
    assumptions { field: "parallelism.pipeline_layout" value: "3" reason: "the first's" }
    assumptions { field: "training.attention" value: "flash" reason: "auto" }
    assumptions { field: "runtime.framework" value: "ddp" reason: "ZeRO 0" }
    assumptions { field: "runtime.versions" value: "torch 2.8 and later" reason: "era" }
  )");
}

TEST(JobEnvironmentTest, HasEveryFieldOfTrainingAndParallelism) {
  const auto job = Parse<v1::Job>(R"(
    model { name: "m" }
    training { sequence_length: 4096 optimizer { name: "adamw" }
               recompute { mode: "selective" modules: "mlp" modules: "core-attention" } }
    parallelism { tensor_parallel_size: 2 sequence_parallel: true pipeline_layout: [3, 4] }
    cluster { gpu: "h100" gpu_count: 8 })");
  EXPECT_THAT(
      JobEnvironment(Complete(job, Answer()), Answer()),
      ElementsAre(
          Pair("PLIMSOLL_ATTENTION", "flash"), Pair("PLIMSOLL_BOUND_BYTES", "77"),
          Pair("PLIMSOLL_CONTEXT_PARALLEL_SIZE", "1"), Pair("PLIMSOLL_DATA_PARALLEL_SIZE", "4"),
          Pair("PLIMSOLL_FRAMEWORK", "ddp"), Pair("PLIMSOLL_GPU_COUNT", "8"),
          Pair("PLIMSOLL_OPTIMIZER_NAME", "adamw"), Pair("PLIMSOLL_PIPELINE_LAYOUT", "3,4"),
          Pair("PLIMSOLL_PIPELINE_PARALLEL_SIZE", "1"), Pair("PLIMSOLL_PREDICTED_BYTES", "70"),
          Pair("PLIMSOLL_RECOMPUTE_MODE", "selective"),
          Pair("PLIMSOLL_RECOMPUTE_MODULES", "mlp,core-attention"),
          Pair("PLIMSOLL_SEQUENCE_LENGTH", "4096"), Pair("PLIMSOLL_SEQUENCE_PARALLEL", "true"),
          Pair("PLIMSOLL_TENSOR_PARALLEL_SIZE", "2"), Pair("PLIMSOLL_USABLE_BYTES", "100"),
          Pair("PLIMSOLL_ZERO_STAGE", "0")));
}

TEST(PredictionTest, IsTheLimitingRanks) {
  const auto job = Parse<v1::Job>("model { name: 'm' } parallelism { zero_stage: 3 }");
  EXPECT_EQ(PredictionText(MakePrediction(job, Answer())),
            R"({"job":{"model":{"name":"m"},"parallelism":{"zero_stage":"3"}},)"
            R"("verdict":"VERDICT_FITS","allocated":{"expected_bytes":"50","bound_bytes":"51"},)"
            R"("reserved":{"expected_bytes":"60","bound_bytes":"66"},)"
            R"("device":{"expected_bytes":"70","bound_bytes":"77"},"usable_bytes":"100",)"
            R"("detail":"replay","estimator_version":"1.2","calibration_id":"c"})");
}

TEST(PredictionTest, LeavesTheJobOutWhereItIsTooLarge) {
  v1::Job job;
  auto& fields = *job.mutable_model()->mutable_hf_config()->mutable_fields();
  for (int i = 0; i < 1000; ++i) {
    fields[absl::StrCat("field_number_", i)].set_string_value("a value of some length");
  }
  const std::string text = PredictionText(MakePrediction(job, Answer()));
  EXPECT_LT(text.size(), kMaxPredictionBytes);
  v1::Prediction prediction;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(text, &prediction).ok());
  EXPECT_FALSE(prediction.has_job());
  EXPECT_EQ(prediction.device().bound_bytes(), 77);
}

}  // namespace
}  // namespace plimsoll
