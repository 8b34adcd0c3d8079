// Decisions from end to end, with the real service in this process.
#include "client/admit/admit.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/admit/policy.h"
#include "client/service.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
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
    (*submission_.rules.mutable_gpu_types())["h100"] = "h100-80gb-sxm";
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
  EXPECT_EQ(decision.job().cluster().gpu(), "h100-80gb-sxm");
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
  EXPECT_THAT(decision.message(), HasSubstr(", h100-80gb-sxm has 79.2\nPlimsoll: ZeRO 0 -> "));
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
  // What would be said is kept for whoever looks at the log.
  submission_.rules.set_mode("enforce");
  const v1::AdmissionDecision enforced = Decide(kTooLarge);
  EXPECT_EQ(shadow.enforced_message(), enforced.message());
  EXPECT_EQ(enforced.enforced_message(), enforced.message());
  EXPECT_EQ(Decide(kFits).enforced_message(), "");
}

TEST_F(AdmitTest, KeepsInShadowWhatAResizeWouldHaveSaid) {
  AllowResize({"parallelism.zero_stage"});
  const std::string resizable = std::string("resize=allowed ") + kTooLarge;
  submission_.rules.set_mode("shadow");
  const v1::AdmissionDecision shadow = Decide(resizable);
  EXPECT_EQ(shadow.enforced(), v1::DECISION_RESIZE);
  EXPECT_EQ(shadow.message(), "");
  EXPECT_THAT(shadow.enforced_message(), HasSubstr("\nPlimsoll: resized: ZeRO 0 -> "));
  EXPECT_THAT(shadow.scheduler_changes(), IsEmpty());
  EXPECT_EQ(shadow.environment().at("PLIMSOLL_ZERO_STAGE"), "0") << "the job runs as it is";
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
       "cluster.gpu: a100-40gb-sxm; the job asks the scheduler for h100-80gb-sxm"},
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
  submission_.request.set_tres_per_node("gres:gpu:h200:8");
  EXPECT_EQ(Decide(std::string(kFits) + " gpu=h200-141gb-sxm gpu_count=8").cause(), v1::CAUSE_FITS);
}

// 40 or 80 GB: nothing is decided on a guess.
TEST_F(AdmitTest, RefusesATypeThatMayBeSeveralGpus) {
  submission_.request.set_tres_per_node("gres:gpu:a100:8");
  const v1::AdmissionDecision refused = Decide(kFits);
  EXPECT_EQ(refused.cause(), v1::CAUSE_BAD_WORDS);
  EXPECT_EQ(refused.decision(), v1::DECISION_REJECT);
  EXPECT_THAT(refused.message(),
              HasSubstr("cluster.gpu: a100; must be one of a100-40gb-pcie, a100-40gb-sxm, "));
  EXPECT_EQ(Decide(std::string(kFits) + " gpu=a100-40gb-sxm").cause(), v1::CAUSE_DOES_NOT_FIT);
  (*submission_.rules.mutable_gpu_types())["a100"] = "a100-80gb-sxm";
  EXPECT_EQ(Decide(kFits).cause(), v1::CAUSE_FITS);
}

TEST_F(AdmitTest, LetsThePolicyDecideWithoutAnAnswer) {
  const auto nobody = [] { return ConnectTo("unix:/no/such/socket", absl::Seconds(30)); };
  submission_.request.set_environment_words(kFits);
  submission_.words = ReadWords(submission_.request, &submission_.misread);
  v1::AdmissionDecision decision = Admit(submission_, nobody, absl::Now() + absl::Seconds(30));
  EXPECT_EQ(decision.cause(), v1::CAUSE_UNREACHABLE);
  EXPECT_EQ(decision.decision(), v1::DECISION_ADMIT);
  EXPECT_THAT(decision.problem(), StartsWith("unix:/no/such/socket: out of reach; "));
  EXPECT_EQ(decision.message(), "Plimsoll: no answer in time: the job is queued unchecked");
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

// A service whose searches end as they are told.
class Searching final : public v1::PlannerService::Service {
 public:
  v1::RecommendConfigResponse found;
  grpc::Status ended;

 private:
  grpc::Status EstimateMemory(grpc::ServerContext*, const v1::EstimateMemoryRequest* request,
                              v1::EstimateMemoryResponse* response) override {
    response->set_verdict(v1::VERDICT_DOES_NOT_FIT);
    response->set_detail(request->detail());
    response->add_ranks();
    return grpc::Status::OK;
  }
  grpc::Status RecommendConfig(grpc::ServerContext*, const v1::RecommendConfigRequest*,
                               v1::RecommendConfigResponse* response) override {
    *response = found;
    return ended;
  }
};

// Time that ran out tells nothing of the changes that there are: no "misses by", no "no
// change", and no rejection but where the rules reject what was not answered.
TEST_F(AdmitTest, RejectsNothingForASearchThatWasCutShort) {
  Searching service;
  service.found.set_truncated(true);
  service.found.mutable_obstacle()->set_missing_bytes(int64_t{50} << 30);
  grpc::ServerBuilder builder;
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const auto channel = server->InProcessChannel({});
  submission_.request.set_environment_words(kTooLarge);
  submission_.words = ReadWords(submission_.request, &submission_.misread);
  const auto decide = [&] {
    return Admit(
        submission_, [&] { return PlannerClient(channel, "slow", absl::Minutes(1)); },
        absl::Now() + absl::Minutes(1));
  };
  for (const grpc::StatusCode code : {grpc::StatusCode::OK, grpc::StatusCode::RESOURCE_EXHAUSTED,
                                      grpc::StatusCode::DEADLINE_EXCEEDED}) {
    service.ended = {code, ""};
    submission_.rules.set_unreachable("admit");
    v1::AdmissionDecision decision = decide();
    EXPECT_EQ(decision.cause(), v1::CAUSE_DOES_NOT_FIT);
    EXPECT_EQ(decision.decision(), v1::DECISION_WARN) << code;
    EXPECT_TRUE(decision.truncated());
    EXPECT_THAT(decision.message(), HasSubstr("\nPlimsoll: truncated: "));
    EXPECT_THAT(decision.message(), Not(HasSubstr("misses")));
    EXPECT_THAT(decision.message(), Not(HasSubstr("no change")));
    submission_.rules.set_unreachable("reject");
    decision = decide();
    EXPECT_EQ(decision.decision(), v1::DECISION_REJECT);
    EXPECT_THAT(decision.message(), HasSubstr("takes no job without an answer"));
  }
  service.found.set_truncated(false);
  service.ended = grpc::Status::OK;
  EXPECT_EQ(decide().decision(), v1::DECISION_REJECT);
  EXPECT_FALSE(decide().truncated());
  EXPECT_THAT(decide().message(), HasSubstr("misses by 50.0 GiB"));
}

// What was seen: the closed form's bound of DeepSpeed's jobs is far above what they need,
// and the change that fits was denied by it.
TEST_F(AdmitTest, OffersDeepSpeedTheRecomputationThatFits) {
  const v1::AdmissionDecision decision = Decide(
      "model=llama-3.1-8b zero_stage=3 sequence_length=16384 global_batch_size=8 "
      "framework=deepspeed");
  EXPECT_EQ(decision.cause(), v1::CAUSE_DOES_NOT_FIT);
  EXPECT_THAT(decision.message(), HasSubstr("recompute full would need "));
  ASSERT_EQ(decision.changes_size(), 1);
  EXPECT_EQ(decision.changes(0).field(), "training.recompute");
}

void ChangeText(std::string* out, const v1::Change& change) {
  absl::StrAppend(out, change.field(), " ", change.from(), " -> ", change.to());
}

std::string OneOf(std::mt19937_64& random, const std::vector<std::string>& of) {
  return of[random() % of.size()];
}

// Words of a job of some framework, on some GPU, that seldom fits as it is.
std::string TightWords(std::mt19937_64& random, const std::vector<std::string>& gpus) {
  return absl::StrCat(
      "model=", OneOf(random, {"gpt2-xl", "llama-3.2-1b", "llama-3.1-8b", "qwen3-8b"}),
      " framework=",
      OneOf(random, {"ddp", "fsdp1", "fsdp2", "deepspeed", "megatron-core", "megatron-lm",
                     "megatron-deepspeed", "nanotron"}),
      " gpu=", OneOf(random, gpus), " gpu_count=", OneOf(random, {"1", "2", "8", "16"}),
      " global_batch_size=", OneOf(random, {"16", "64"}),
      " micro_batch_size=", OneOf(random, {"1", "2", "4"}),
      " sequence_length=", OneOf(random, {"1024", "4096", "16384"}),
      " zero_stage=", OneOf(random, {"0", "1", "2", "3"}));
}

// One search has one answer, whoever asks: `admit` names the change that `recommend`
// has as the smallest, and there is one wherever the fastest is found.
TEST_F(AdmitTest, AgreesWithRecommendOnEveryJob) {
  submission_.request.clear_tres_per_node();
  std::vector<std::string> gpus;
  const PlannerClient client = (*service_)->client.WithTimeout(absl::Minutes(5));
  const auto list = client.ListGpus();
  ASSERT_TRUE(list.ok());
  for (const v1::GpuInfo& gpu : list->gpus()) gpus.push_back(gpu.gpu());
  std::mt19937_64 random(20261122);
  int fixed = 0;
  int hopeless = 0;
  for (int i = 0; i < Rounds(200); ++i) {
    const std::string words = TightWords(random, gpus);
    const v1::AdmissionDecision decision = Decide(words);
    ASSERT_NE(decision.cause(), v1::CAUSE_UNREACHABLE) << words;
    if (decision.cause() != v1::CAUSE_DOES_NOT_FIT) continue;
    v1::RecommendConfigRequest request;
    *request.mutable_job() = decision.job();
    request.add_frozen("cluster");
    for (const char* objective : {"smallest-change", "fastest"}) {
      v1::RecommendConfigResponse found;
      request.set_objective(objective);
      ASSERT_TRUE(client.RecommendConfig(request, &found, nullptr).ok()) << words;
      ASSERT_EQ(found.candidates_size() > 0, decision.changes_size() > 0) << objective << words;
      if (found.candidates_size() == 0) {
        EXPECT_THAT(decision.message(), HasSubstr("no change that is allowed fits")) << words;
        ++hopeless;
      } else if (request.objective() == "smallest-change") {
        EXPECT_EQ(absl::StrJoin(decision.changes(), ";", ChangeText),
                  absl::StrJoin(found.candidates(0).changes(), ";", ChangeText))
            << words;
        ++fixed;
      }
    }
  }
  EXPECT_GT(fixed, Rounds(10));
  EXPECT_GT(hopeless, Rounds(10));
}

}  // namespace
}  // namespace plimsoll
