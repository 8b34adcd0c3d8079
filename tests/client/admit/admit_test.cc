// Decisions from end to end, with the real service in this process.
#include "client/admit/admit.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "client/admit/policy.h"
#include "client/service.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"

namespace plimsoll {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

constexpr char kFits[] = "model=llama-3.1-8b zero_stage=3 sequence_length=4096 framework=fsdp2";
constexpr char kTooLong[] =
    "model=llama-3.1-8b zero_stage=3 sequence_length=65536 framework=fsdp2 recompute=full";
// On one GPU of 80 GiB nothing helps, on several ZeRO does.
constexpr char kTooLarge[] = "model=llama-3.1-8b sequence_length=2048 global_batch_size=16";

class AdmitTest : public testing::Test {
 protected:
  AdmitTest() {
    submission_.request.set_scheduler("slurm");
    submission_.request.set_tres_per_node("gres:gpu:h100:8");
    submission_.rules = RulesFor({}, "", "");
    submission_.rules.set_mode("enforce");
  }

  static void SetUpTestSuite() {
    service_ = new absl::StatusOr<Service>(OpenService(Connection()));
    ASSERT_TRUE(service_->ok()) << service_->status();
  }
  static void TearDownTestSuite() { delete service_; }

  v1::AdmissionDecision Decide(const std::string& words) {
    submission_.request.set_environment_words(words);
    submission_.misread.clear();
    submission_.words = ReadWords(submission_.request, &submission_.misread);
    return Admit(
        submission_, [] { return (*service_)->client.WithTimeout(absl::Minutes(1)); },
        absl::Now() + absl::Minutes(1));
  }

  void AllowResize(const std::vector<std::string>& changes, const std::string& gpu_counts = "") {
    submission_.rules.set_resize("allowed");
    for (const std::string& change : changes) submission_.rules.add_allowed_changes(change);
    if (!gpu_counts.empty()) submission_.rules.set_gpu_counts(gpu_counts);
  }

  static absl::StatusOr<Service>* service_;
  Submission submission_;
};

absl::StatusOr<Service>* AdmitTest::service_ = nullptr;

TEST_F(AdmitTest, AdmitsWhatFitsWithItsPrediction) {
  const v1::AdmissionDecision decision = Decide(kFits);
  EXPECT_EQ(decision.decision(), v1::DECISION_ADMIT);
  EXPECT_EQ(decision.cause(), v1::CAUSE_FITS);
  EXPECT_EQ(decision.message(), "");
  EXPECT_EQ(decision.job().cluster().gpu(), "h100");
  EXPECT_EQ(decision.job().cluster().gpu_count(), 8);
  EXPECT_EQ(decision.environment().at("PLIMSOLL_ZERO_STAGE"), "3");
  EXPECT_EQ(decision.environment().at("PLIMSOLL_GPU_COUNT"), "8");
  EXPECT_EQ(decision.environment().at("PLIMSOLL_DATA_PARALLEL_SIZE"), "8");
  v1::Prediction prediction;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(decision.prediction(), &prediction).ok());
  EXPECT_EQ(std::to_string(prediction.device().expected_bytes()),
            decision.environment().at("PLIMSOLL_PREDICTED_BYTES"));
  EXPECT_THAT(decision.scheduler_changes(), IsEmpty());
}

TEST_F(AdmitTest, TouchesNothingThatSaysNothing) {
  const v1::AdmissionDecision decision = Decide("");
  EXPECT_EQ(decision.decision(), v1::DECISION_ADMIT);
  EXPECT_EQ(decision.cause(), v1::CAUSE_NOT_ASKED);
  EXPECT_THAT(decision.environment(), IsEmpty());
  EXPECT_EQ(decision.prediction(), "");
}

TEST_F(AdmitTest, LooksAtNothingInModeOff) {
  submission_.rules.set_mode("off");
  EXPECT_EQ(Decide("not words at all").cause(), v1::CAUSE_NOT_ASKED);
}

TEST_F(AdmitTest, RejectsWithTheFix) {
  submission_.rules.add_allowed_changes("parallelism.zero_stage");
  const v1::AdmissionDecision decision = Decide(kTooLarge);
  EXPECT_EQ(decision.decision(), v1::DECISION_REJECT);
  EXPECT_EQ(decision.cause(), v1::CAUSE_DOES_NOT_FIT);
  EXPECT_THAT(decision.message(), StartsWith("Plimsoll: needs "));
  EXPECT_THAT(decision.message(), HasSubstr(" GiB on each GPU (up to "));
  EXPECT_THAT(decision.message(), HasSubstr(", h100 has 79.2\nPlimsoll: ZeRO 0 -> "));
  EXPECT_EQ(decision.changes(0).field(), "parallelism.zero_stage");
}

TEST_F(AdmitTest, ResizesOnlyWhereTheJobAndThePolicyAllow) {
  const std::string resizable = std::string("resize=allowed ") + kTooLarge;
  EXPECT_EQ(Decide(resizable).decision(), v1::DECISION_REJECT);
  AllowResize({"parallelism.zero_stage"});
  EXPECT_EQ(Decide(kTooLarge).decision(), v1::DECISION_REJECT);
  EXPECT_THAT(Decide(kTooLarge).message(), HasSubstr("#PLIMSOLL resize=allowed"));
  const v1::AdmissionDecision decision = Decide(resizable);
  EXPECT_EQ(decision.decision(), v1::DECISION_RESIZE);
  EXPECT_THAT(decision.message(), HasSubstr("\nPlimsoll: resized: ZeRO 0 -> "));
  EXPECT_NE(decision.environment().at("PLIMSOLL_ZERO_STAGE"), "0");
  EXPECT_EQ(decision.environment().at("PLIMSOLL_ZERO_STAGE"),
            std::to_string(decision.job().parallelism().zero_stage()));
  EXPECT_THAT(decision.scheduler_changes(), IsEmpty());
  submission_.request.set_command("sbatch");
  EXPECT_EQ(Decide(resizable).decision(), v1::DECISION_RESIZE);
  // These bring the job no environment.
  for (const char* command : {"salloc", "srun"}) {
    submission_.request.set_command(command);
    EXPECT_EQ(Decide(resizable).decision(), v1::DECISION_REJECT);
    EXPECT_THAT(Decide(resizable).message(), HasSubstr("\nPlimsoll: ZeRO 0 -> "));
  }
  // What is admitted then fits, asked again.
  const v1::AdmissionDecision again = Decide(InlineWords(decision.job(), false));
  EXPECT_EQ(again.cause(), v1::CAUSE_FITS) << again.message();
  EXPECT_EQ(again.environment().at("PLIMSOLL_PREDICTED_BYTES"),
            decision.environment().at("PLIMSOLL_PREDICTED_BYTES"));
}

TEST_F(AdmitTest, ResizesTheNumberOfGpusInTheSchedulersWords) {
  submission_.request.set_tres_per_node("gres:gpu:h100:1");
  submission_.request.set_min_nodes(1);
  submission_.rules.set_gpus_per_node(8);
  AllowResize({"cluster.gpu_count", "parallelism"}, "1..16");
  const v1::AdmissionDecision decision =
      Decide(std::string("resize=allowed zero_stage=3 ") + kTooLarge);
  ASSERT_EQ(decision.decision(), v1::DECISION_RESIZE) << decision.message();
  // The nearest number that fits.
  const int64_t count = decision.job().cluster().gpu_count();
  EXPECT_GT(count, 1);
  EXPECT_LE(count, 4);
  EXPECT_EQ(decision.environment().at("PLIMSOLL_GPU_COUNT"), std::to_string(count));
  ASSERT_GT(decision.scheduler_changes_size(), 0);
  EXPECT_EQ(decision.scheduler_changes(0).field(), "tres_per_node");
  EXPECT_EQ(decision.scheduler_changes(0).value(), "gres:gpu:h100:" + std::to_string(count));
  EXPECT_THAT(decision.message(), HasSubstr("the job now asks for tres_per_node=gres:gpu:h100:" +
                                            std::to_string(count)));
}

// A range without a whole number of this request's nodes is no reason to fall over;
// the operator reads of it in the log.
TEST_F(AdmitTest, TakesARangeThatSuitsNoNode) {
  submission_.request.set_tres_per_node("gres:gpu:h100:16");
  AllowResize({"cluster.gpu_count", "parallelism.zero_stage"}, "24..24");
  const v1::AdmissionDecision decision = Decide(std::string("resize=allowed ") + kTooLarge);
  EXPECT_EQ(decision.decision(), v1::DECISION_RESIZE) << decision.message();
  EXPECT_EQ(decision.job().cluster().gpu_count(), 16);
  EXPECT_EQ(decision.problem(),
            "policy gpu_counts: 24..24; has no whole number of nodes of 16 GPUs: the number of "
            "GPUs is kept");
}

TEST_F(AdmitTest, RejectsWhereTheSchedulersWordsCannotSayTheChange) {
  submission_.request.clear_tres_per_node();
  submission_.request.set_tres_per_socket("gres:gpu:h100:1");
  AllowResize({"cluster.gpu_count"}, "1,8");
  EXPECT_EQ(Decide(std::string("resize=allowed zero_stage=3 ") + kTooLarge).decision(),
            v1::DECISION_RESIZE);
  submission_.request.clear_tres_per_socket();
  EXPECT_EQ(Decide(std::string("resize=allowed zero_stage=3 gpu=h100 gpu_count=1 ") + kTooLarge)
                .decision(),
            v1::DECISION_REJECT);
}

TEST_F(AdmitTest, SaysWhatWouldHelpWhereNothingFits) {
  submission_.request.set_tres_per_node("gres:gpu:h100:1");
  const v1::AdmissionDecision decision = Decide("model=llama-3.1-70b sequence_length=8192");
  EXPECT_EQ(decision.decision(), v1::DECISION_REJECT);
  EXPECT_THAT(decision.message(), HasSubstr("no change that is allowed fits: the nearest, "));
}

TEST_F(AdmitTest, WarnsInModeWarnAndIsSilentInShadow) {
  submission_.rules.set_mode("warn");
  const v1::AdmissionDecision warned = Decide(kTooLong);
  EXPECT_EQ(warned.decision(),
            warned.cause() == v1::CAUSE_FITS ? v1::DECISION_ADMIT : v1::DECISION_WARN);
  EXPECT_EQ(Decide(kTooLarge).decision(), v1::DECISION_WARN);
  EXPECT_EQ(Decide(kTooLarge).enforced(), v1::DECISION_REJECT);
  EXPECT_THAT(Decide(kTooLarge).message(), StartsWith("Plimsoll: needs "));
  submission_.rules.set_mode("shadow");
  const v1::AdmissionDecision shadow = Decide(kTooLarge);
  EXPECT_EQ(shadow.decision(), v1::DECISION_ADMIT);
  EXPECT_EQ(shadow.enforced(), v1::DECISION_REJECT);
  EXPECT_EQ(shadow.message(), "");
  EXPECT_NE(shadow.prediction(), "");
}

TEST_F(AdmitTest, TellsBadWordsFromWhatIsNotModelled) {
  const struct {
    const char* words;
    v1::Cause cause;
    const char* message;
  } kCases[] = {
      {"model=llama-3.1-8x zero_stage=9", v1::CAUSE_BAD_WORDS, "job.model.name: llama-3.1-8x; "},
      {"model=llama-3.1-8b gpu_count=16", v1::CAUSE_BAD_WORDS,
       "cluster.gpu_count: 16; the job asks the scheduler for 8 GPUs"},
      {"model=llama-3.1-8b gpu=a100-40gb-sxm", v1::CAUSE_BAD_WORDS,
       "cluster.gpu: a100-40gb-sxm; the job asks the scheduler for h100"},
      {"job.yaml", v1::CAUSE_BAD_WORDS, "PLIMSOLL_JOB: job.yaml; must say the job itself: "},
      {"model=llama-3.1-8b sequence_length=4096 peft=lora", v1::CAUSE_NOT_MODELLED,
       "job.peft: lora; not modelled yet"},
      {R"({"model": {"hf_config": {"model_type": "mixtral", "num_local_experts": 8,
        "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 128, "vocab_size": 100}}, "training": {"sequence_length": 64}})",
       v1::CAUSE_NOT_MODELLED, "experts are not modelled yet"},
      // All at once: what can't be read, what the service refuses, what contradicts.
      {"model=llama-3.1-8b peft=lora zero_stage=9 gpu_count=16", v1::CAUSE_BAD_WORDS,
       "job.peft: lora; "},
      {"model=llama-3.1-8b peft=lora zero_stage=9 gpu_count=16", v1::CAUSE_BAD_WORDS,
       "job.parallelism.zero_stage: 9; "},
      {"model=llama-3.1-8b peft=lora zero_stage=9 gpu_count=16", v1::CAUSE_BAD_WORDS,
       "cluster.gpu_count: 16; "},
  };
  for (const auto& row : kCases) {
    std::string words = row.words;
    for (char& c : words) c = c == '\n' ? ' ' : c;
    const v1::AdmissionDecision decision = Decide(words);
    EXPECT_EQ(decision.cause(), row.cause) << row.words << "\n" << decision.message();
    EXPECT_THAT(decision.message(), HasSubstr(row.message));
    EXPECT_EQ(decision.decision(),
              row.cause == v1::CAUSE_BAD_WORDS ? v1::DECISION_REJECT : v1::DECISION_WARN);
    EXPECT_FALSE(decision.has_job());
  }
  submission_.request.set_tres_per_node("gres:shard:4");
  EXPECT_EQ(Decide(kFits).cause(), v1::CAUSE_NOT_MODELLED);
}

// A GPU's id and its alias are one GPU.
TEST_F(AdmitTest, TakesAnAliasForItsGpu) {
  EXPECT_EQ(Decide(std::string(kFits) + " gpu=h100-80gb-sxm gpu_count=8").cause(), v1::CAUSE_FITS);
}

TEST_F(AdmitTest, LetsThePolicyDecideWithoutAnAnswer) {
  const auto nobody = [] { return ConnectTo("unix:/no/such/socket", absl::Seconds(30)); };
  submission_.request.set_environment_words(kFits);
  submission_.words = ReadWords(submission_.request, &submission_.misread);
  v1::AdmissionDecision decision = Admit(submission_, nobody, absl::Now() + absl::Seconds(30));
  EXPECT_EQ(decision.cause(), v1::CAUSE_UNREACHABLE);
  EXPECT_EQ(decision.decision(), v1::DECISION_ADMIT);
  EXPECT_THAT(decision.problem(), StartsWith("unix:/no/such/socket: out of reach; "));
  submission_.rules.set_unreachable("reject");
  decision = Admit(submission_, nobody, absl::Now() + absl::Seconds(30));
  EXPECT_EQ(decision.decision(), v1::DECISION_REJECT);
  EXPECT_THAT(decision.message(), HasSubstr("takes no job without one"));
}

TEST_F(AdmitTest, EndsAtItsDeadline) {
  submission_.request.set_environment_words(kFits);
  submission_.words = ReadWords(submission_.request, &submission_.misread);
  const v1::AdmissionDecision decision = Admit(
      submission_, [] { return (*service_)->client.WithTimeout(absl::Minutes(1)); },
      absl::Now() - absl::Seconds(1));
  EXPECT_EQ(decision.cause(), v1::CAUSE_UNREACHABLE);
  EXPECT_EQ(decision.problem(), "no time is left");
}

// A service that has no time for a replay.
class NoReplay final : public v1::PlannerService::Service {
  grpc::Status EstimateMemory(grpc::ServerContext*, const v1::EstimateMemoryRequest* request,
                              v1::EstimateMemoryResponse* response) override {
    if (request->detail() == "replay") return {grpc::StatusCode::DEADLINE_EXCEEDED, ""};
    response->set_verdict(v1::VERDICT_FITS);
    response->set_detail(request->detail());
    response->add_ranks();
    return grpc::Status::OK;
  }
};

// A job that takes longer to replay than there is time is judged in closed form: that it
// is slow is no sign of a service out of reach.
TEST_F(AdmitTest, JudgesASlowJobInClosedForm) {
  NoReplay service;
  grpc::ServerBuilder builder;
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const auto channel = server->InProcessChannel({});
  submission_.request.set_environment_words(kFits);
  submission_.words = ReadWords(submission_.request, &submission_.misread);
  const v1::AdmissionDecision decision = Admit(
      submission_, [&] { return PlannerClient(channel, "slow", absl::Minutes(1)); },
      absl::Now() + absl::Minutes(1));
  EXPECT_EQ(decision.cause(), v1::CAUSE_FITS) << decision.problem();
  v1::Prediction prediction;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(decision.prediction(), &prediction).ok());
  EXPECT_EQ(prediction.detail(), "summary");
}

}  // namespace
}  // namespace plimsoll
