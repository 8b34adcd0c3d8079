// Predictions as they travel with jobs.
#include "client/report/prediction_text.h"

#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace plimsoll {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr char kJson[] =
    R"({"verdict":"VERDICT_FITS","device":{"expectedBytes":"5","boundBytes":"6"}})";

class PredictionTextTest : public testing::Test {
 protected:
  ~PredictionTextTest() override {
    unlink(path_);
    unsetenv("PLIMSOLL_PREDICTION");
  }

  absl::StatusOr<v1::Prediction> Read(const std::string& text) {
    std::ofstream(path_) << text;
    return ReadPrediction(path_);
  }

 private:
  char path_[32] = "/tmp/plimsoll_prediction_XXXXXX";
  const int file_ = mkstemp(path_);
};

TEST_F(PredictionTextTest, TakesJsonBareOrBehindItsPrefix) {
  for (const std::string& text :
       {std::string(kJson), std::string("plimsoll ") + kJson,
        std::string("plimsoll") + kJson + "\n", std::string("\n  plimsoll  ") + kJson}) {
    const absl::StatusOr<v1::Prediction> prediction = Read(text);
    ASSERT_TRUE(prediction.ok()) << prediction.status();
    EXPECT_EQ(prediction->verdict(), v1::VERDICT_FITS);
    EXPECT_EQ(prediction->device().bound_bytes(), 6);
  }
}

TEST_F(PredictionTextTest, TakesItFromTheEnvironment) {
  setenv("PLIMSOLL_PREDICTION", kJson, 1);
  const absl::StatusOr<v1::Prediction> prediction = ReadPrediction("");
  ASSERT_TRUE(prediction.ok()) << prediction.status();
  EXPECT_EQ(prediction->device().expected_bytes(), 5);
}

TEST_F(PredictionTextTest, SaysWhereThereIsNone) {
  for (const char* const value : {"", static_cast<const char*>(nullptr)}) {
    if (value != nullptr) setenv("PLIMSOLL_PREDICTION", value, 1);
    EXPECT_EQ(ReadPrediction("").status().message(),
              "--prediction: unset; must be a file, or PLIMSOLL_PREDICTION must be set");
    unsetenv("PLIMSOLL_PREDICTION");
  }
  EXPECT_EQ(ReadPrediction("/nonexistent").status().message(),
            "/nonexistent: No such file or directory; must be a readable file");
}

TEST_F(PredictionTextTest, SaysAllThatIsWrong) {
  EXPECT_EQ(Read(R"({"verdct": "VERDICT_FITS", "device": {"expectedBytes": "many"},
                     "verdict": "FITS"})")
                .status()
                .message(),
            "prediction.device.expected_bytes: \"many\"; must be an integer of 64 bits\n"
            "prediction.verdct: \"VERDICT_FITS\"; no such field, did you mean verdict\n"
            "prediction.verdict: \"FITS\"; must be one of VERDICT_FITS, VERDICT_AT_RISK, "
            "VERDICT_DOES_NOT_FIT");
}

// As a scheduler may have cut it, or a user written it.
TEST_F(PredictionTextTest, SaysWhatIsNoPrediction) {
  for (const char* const text :
       {"", "plimsoll", "my job", "plimsoll {\"verdict\": \"VERD", "plimsoll\x1b[31m{}"}) {
    const absl::Status status = Read(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    const std::string message(status.message());
    EXPECT_THAT(message, StartsWith("prediction: ")) << text;
    EXPECT_THAT(message, HasSubstr("must be JSON"));
    EXPECT_EQ(message.find('\x1b'), std::string::npos);
  }
  EXPECT_EQ(Read("7").status().message(), "prediction: 7; must be an object");
  EXPECT_EQ(Read(std::string(40, '[')).status().message(),
            "prediction: 40 levels; must nest at most 32 levels");
}

}  // namespace
}  // namespace plimsoll
