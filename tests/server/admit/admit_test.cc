// Decisions from end to end, with the real service in this process.
#include "server/admit/admit.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plimsoll/v1/planner.grpc.pb.h"
#include "server/admit/job_words.h"
#include "server/catalog/catalog.h"
#include "server/run/server.h"
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

// A service that is alone, with time enough.
class AdmitTest : public testing::Test {
 protected:
  AdmitTest() {
    v1::SchedulerRequest& scheduler = *request_.mutable_scheduler_request();
    scheduler.set_scheduler("slurm");
    scheduler.set_tres_per_node("gres:gpu:h100:8");
    rules_.set_mode("enforce");
    (*rules_.mutable_gpu_types())["h100"] = "h100-80gb-sxm";
  }

  static void SetUpTestSuite() {
    ServerOptions options;
    options.log_level = LogLevel::kOff;
    options.max_search_time = std::chrono::minutes(5);
    auto started = Server::Start(options);
    ASSERT_EQ(started.index(), 0u) << std::get<std::string>(started);
    server_ = std::get<std::unique_ptr<Server>>(std::move(started)).release();
    stub_ = v1::PlannerService::NewStub(server_->InProcessChannel()).release();
  }
  static void TearDownTestSuite() {
    delete stub_;
    delete server_;
  }

  // The answer to `request_` under `rules_`.
  v1::AdmissionDecision Decide() {
    *request_.mutable_policy()->mutable_rules() = rules_;
    grpc::ClientContext context;
    v1::AdmitResponse response;
    const grpc::Status status = stub_->Admit(&context, request_, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.decision();
  }

  v1::AdmissionDecision Decide(const std::string& words) {
    request_.mutable_scheduler_request()->set_environment_words(words);
    return Decide();
  }

  void AllowResize(const std::vector<std::string>& changes, const std::string& gpu_counts = "") {
    rules_.set_resize("allowed");
    for (const std::string& change : changes) rules_.add_allowed_changes(change);
    if (!gpu_counts.empty()) rules_.set_gpu_counts(gpu_counts);
  }

  static Server* server_;
  static v1::PlannerService::Stub* stub_;
  v1::AdmitRequest request_;
  v1::AdmissionRules rules_;
};

Server* AdmitTest::server_ = nullptr;
v1::PlannerService::Stub* AdmitTest::stub_ = nullptr;

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
  rules_.set_mode("off");
  EXPECT_EQ(Decide("not words at all").cause(), v1::CAUSE_NOT_ASKED);
}

TEST_F(AdmitTest, RejectsWithTheFix) {
  rules_.add_allowed_changes("parallelism.zero_stage");
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
  request_.mutable_scheduler_request()->set_command("sbatch");
  EXPECT_EQ(Decide(resizable).decision(), v1::DECISION_RESIZE);
  // These bring the job no environment.
  for (const char* command : {"salloc", "srun"}) {
    request_.mutable_scheduler_request()->set_command(command);
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
  request_.mutable_scheduler_request()->set_tres_per_node("gres:gpu:h100:1");
  request_.mutable_scheduler_request()->set_min_nodes(1);
  rules_.set_gpus_per_node(8);
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
  request_.mutable_scheduler_request()->set_tres_per_node("gres:gpu:h100:16");
  AllowResize({"cluster.gpu_count", "parallelism.zero_stage"}, "24..24");
  const v1::AdmissionDecision decision = Decide(std::string("resize=allowed ") + kTooLarge);
  EXPECT_EQ(decision.decision(), v1::DECISION_RESIZE) << decision.message();
  EXPECT_EQ(decision.job().cluster().gpu_count(), 16);
  EXPECT_EQ(decision.problem(),
            "policy gpu_counts: 24..24; has no whole number of nodes of 16 GPUs: the number of "
            "GPUs is kept");
}

TEST_F(AdmitTest, RejectsWhereTheSchedulersWordsCannotSayTheChange) {
  request_.mutable_scheduler_request()->clear_tres_per_node();
  request_.mutable_scheduler_request()->set_tres_per_socket("gres:gpu:h100:1");
  AllowResize({"cluster.gpu_count"}, "1,8");
  EXPECT_EQ(Decide(std::string("resize=allowed zero_stage=3 ") + kTooLarge).decision(),
            v1::DECISION_RESIZE);
  request_.mutable_scheduler_request()->clear_tres_per_socket();
  EXPECT_EQ(Decide(std::string("resize=allowed zero_stage=3 gpu=h100 gpu_count=1 ") + kTooLarge)
                .decision(),
            v1::DECISION_REJECT);
}

TEST_F(AdmitTest, SaysWhatWouldHelpWhereNothingFits) {
  request_.mutable_scheduler_request()->set_tres_per_node("gres:gpu:h100:1");
  const v1::AdmissionDecision decision = Decide("model=llama-3.1-70b sequence_length=8192");
  EXPECT_EQ(decision.decision(), v1::DECISION_REJECT);
  EXPECT_THAT(decision.message(), HasSubstr("no change that is allowed fits: the nearest, "));
}

TEST_F(AdmitTest, WarnsInModeWarnAndIsSilentInShadow) {
  rules_.set_mode("warn");
  const v1::AdmissionDecision warned = Decide(kTooLong);
  EXPECT_EQ(warned.decision(),
            warned.cause() == v1::CAUSE_FITS ? v1::DECISION_ADMIT : v1::DECISION_WARN);
  EXPECT_EQ(Decide(kTooLarge).decision(), v1::DECISION_WARN);
  EXPECT_EQ(Decide(kTooLarge).enforced(), v1::DECISION_REJECT);
  EXPECT_THAT(Decide(kTooLarge).message(), StartsWith("Plimsoll: needs "));
  rules_.set_mode("shadow");
  const v1::AdmissionDecision shadow = Decide(kTooLarge);
  EXPECT_EQ(shadow.decision(), v1::DECISION_ADMIT);
  EXPECT_EQ(shadow.enforced(), v1::DECISION_REJECT);
  EXPECT_EQ(shadow.message(), "");
  EXPECT_NE(shadow.prediction(), "");
  // What would be said is kept for whoever looks at the log.
  rules_.set_mode("enforce");
  const v1::AdmissionDecision enforced = Decide(kTooLarge);
  EXPECT_EQ(shadow.enforced_message(), enforced.message());
  EXPECT_EQ(enforced.enforced_message(), enforced.message());
  EXPECT_EQ(Decide(kFits).enforced_message(), "");
}

TEST_F(AdmitTest, KeepsInShadowWhatAResizeWouldHaveSaid) {
  AllowResize({"parallelism.zero_stage"});
  const std::string resizable = std::string("resize=allowed ") + kTooLarge;
  rules_.set_mode("shadow");
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
      {"model=llama-3.1-8b sequence_length=4096 peft_type=vera", v1::CAUSE_NOT_MODELLED,
       "job.training.adapter.method: vera; not modelled yet"},
      {R"({"model": {"hf_config": {"model_type": "llama", "num_local_experts": 8,
        "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 128, "vocab_size": 100}}, "training": {"sequence_length": 64}})",
       v1::CAUSE_NOT_MODELLED, "experts are not modelled yet"},
      // All at once: what can't be read, what the service refuses, what contradicts.
      {"model=llama-3.1-8b peft_type=vera zero_stage=9 gpu_count=16", v1::CAUSE_BAD_WORDS,
       "job.training.adapter.method: vera; "},
      {"model=llama-3.1-8b peft_type=vera zero_stage=9 gpu_count=16", v1::CAUSE_BAD_WORDS,
       "job.parallelism.zero_stage: 9; "},
      {"model=llama-3.1-8b peft_type=vera zero_stage=9 gpu_count=16", v1::CAUSE_BAD_WORDS,
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
  request_.mutable_scheduler_request()->set_tres_per_node("gres:shard:4");
  EXPECT_EQ(Decide(kFits).cause(), v1::CAUSE_NOT_MODELLED);
}

// A GPU's id and its alias are one GPU.
TEST_F(AdmitTest, TakesAnAliasForItsGpu) {
  request_.mutable_scheduler_request()->set_tres_per_node("gres:gpu:h200:8");
  EXPECT_EQ(Decide(std::string(kFits) + " gpu=h200-141gb-sxm gpu_count=8").cause(), v1::CAUSE_FITS);
}

// 40 or 80 GB: nothing is decided on a guess.
TEST_F(AdmitTest, RefusesATypeThatMayBeSeveralGpus) {
  request_.mutable_scheduler_request()->set_tres_per_node("gres:gpu:a100:8");
  const v1::AdmissionDecision refused = Decide(kFits);
  EXPECT_EQ(refused.cause(), v1::CAUSE_BAD_WORDS);
  EXPECT_EQ(refused.decision(), v1::DECISION_REJECT);
  EXPECT_THAT(refused.message(),
              HasSubstr("cluster.gpu: a100; must be one of a100-40gb-pcie, a100-40gb-sxm, "));
  EXPECT_EQ(Decide(std::string(kFits) + " gpu=a100-40gb-sxm").cause(), v1::CAUSE_DOES_NOT_FIT);
  (*rules_.mutable_gpu_types())["a100"] = "a100-80gb-sxm";
  EXPECT_EQ(Decide(kFits).cause(), v1::CAUSE_FITS);
}

// A planner whose searches end as they are told.
class Searching final : public JobPlanner {
 public:
  v1::RecommendConfigResponse found;
  absl::Status ended;

 private:
  absl::StatusOr<v1::EstimateMemoryResponse> Estimate(
      const v1::EstimateMemoryRequest& request) const override {
    v1::EstimateMemoryResponse response;
    response.set_verdict(v1::VERDICT_DOES_NOT_FIT);
    response.set_detail(request.detail());
    response.add_ranks();
    return response;
  }
  absl::StatusOr<v1::RecommendConfigResponse> Recommend(const v1::RecommendConfigRequest&,
                                                        const SearchStop&) const override {
    if (!ended.ok()) return ended;
    return found;
  }
  bool SameGpu(const std::string&, const std::string&) const override { return true; }
};

// Time that ran out tells nothing of the changes that there are: no "misses by", no "no
// change", and no rejection but where the rules reject what was not answered.
TEST_F(AdmitTest, RejectsNothingForASearchThatWasCutShort) {
  Searching planner;
  planner.found.set_truncated(true);
  planner.found.mutable_obstacle()->set_missing_bytes(int64_t{50} << 30);
  request_.mutable_scheduler_request()->set_environment_words(kTooLarge);
  const auto decide = [&] {
    v1::AdmissionPolicy policy;
    *policy.mutable_rules() = rules_;
    return Admit(request_, /*reading=*/{}, policy, planner, SearchStop());
  };
  for (const absl::Status& ended :
       {absl::OkStatus(), absl::ResourceExhaustedError(""), absl::DeadlineExceededError("")}) {
    planner.ended = ended;
    rules_.set_unreachable("admit");
    v1::AdmissionDecision decision = decide();
    EXPECT_EQ(decision.cause(), v1::CAUSE_DOES_NOT_FIT);
    EXPECT_EQ(decision.decision(), v1::DECISION_WARN) << ended;
    EXPECT_TRUE(decision.truncated());
    EXPECT_THAT(decision.message(), HasSubstr("\nPlimsoll: truncated: "));
    EXPECT_THAT(decision.message(), Not(HasSubstr("misses")));
    EXPECT_THAT(decision.message(), Not(HasSubstr("no change")));
    rules_.set_unreachable("reject");
    decision = decide();
    EXPECT_EQ(decision.decision(), v1::DECISION_REJECT);
    EXPECT_THAT(decision.message(), HasSubstr("takes no job without an answer"));
  }
  planner.found.set_truncated(false);
  planner.ended = absl::OkStatus();
  EXPECT_EQ(decide().decision(), v1::DECISION_REJECT);
  EXPECT_FALSE(decide().truncated());
  EXPECT_THAT(decide().message(), HasSubstr("misses by 50.0 GiB"));
}

// A job in the API's own words needs no scheduler.
TEST_F(AdmitTest, TakesAJobInThePlaceOfWords) {
  request_.clear_scheduler_request();
  v1::Job& job = *request_.mutable_job();
  job.mutable_model()->set_name("llama-3.1-8b");
  job.mutable_training()->set_sequence_length(2048);
  job.mutable_training()->set_global_batch_size(16);
  job.mutable_cluster()->set_gpu("h100-80gb-sxm");
  job.mutable_cluster()->set_gpu_count(8);
  EXPECT_EQ(Decide().decision(), v1::DECISION_REJECT);
  EXPECT_THAT(Decide().words(), StartsWith("{\"model\""));
  AllowResize({"parallelism.zero_stage"});
  EXPECT_EQ(Decide().decision(), v1::DECISION_REJECT);
  request_.set_resize_allowed(true);
  const v1::AdmissionDecision resized = Decide();
  EXPECT_EQ(resized.decision(), v1::DECISION_RESIZE) << resized.message();
  // With the scheduler's GPUs beside it.
  job.clear_cluster();
  request_.mutable_scheduler_request()->set_scheduler("slurm");
  request_.mutable_scheduler_request()->set_tres_per_node("gres:gpu:h100:8");
  EXPECT_EQ(Decide().environment().at("PLIMSOLL_PREDICTED_BYTES"),
            resized.environment().at("PLIMSOLL_PREDICTED_BYTES"));
}

TEST_F(AdmitTest, JudgesWhatTheCallerCouldNotRead) {
  v1::UnreadField& field = *request_.add_unread();
  field.set_field("#PLIMSOLL");
  field.set_value("job\x1b.yaml");
  field.set_rule("must be a readable file");
  field.set_reason(v1::VIOLATION_REASON_MALFORMED);
  v1::AdmissionDecision decision = Decide();
  EXPECT_EQ(decision.cause(), v1::CAUSE_BAD_WORDS);
  EXPECT_EQ(decision.message(),
            "Plimsoll: can't read what the job says:\n"
            "  #PLIMSOLL: job .yaml; must be a readable file");
  request_.mutable_job()->mutable_model()->set_name("nothing");
  decision = Decide();
  EXPECT_THAT(decision.message(), HasSubstr("\n  #PLIMSOLL: job .yaml; "));
  EXPECT_THAT(decision.message(), HasSubstr("\n  job.model.name: nothing; "));
  rules_.set_bad_words("warn");
  EXPECT_EQ(Decide().decision(), v1::DECISION_WARN);
}

// What is wrong with the request and not with the job is no decision.
TEST_F(AdmitTest, RefusesWhatIsNoRequest) {
  const auto refusal = [this](const std::function<void(v1::AdmitRequest*)>& spoil) {
    v1::AdmitRequest request = request_;
    request.mutable_scheduler_request()->set_environment_words(kFits);
    spoil(&request);
    grpc::ClientContext context;
    v1::AdmitResponse response;
    const grpc::Status status = stub_->Admit(&context, request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    return status.error_message();
  };
  EXPECT_EQ(refusal([](v1::AdmitRequest* request) {
              request->mutable_scheduler_request()->set_scheduler("pbs");
            }),
            "scheduler_request.scheduler: pbs; must be slurm");
  EXPECT_EQ(refusal([](v1::AdmitRequest* request) { request->mutable_job(); }),
            "job: given; must not be given beside words of scheduler_request");
  EXPECT_EQ(refusal([](v1::AdmitRequest* request) { request->set_resize_allowed(true); }),
            "resize_allowed: true; must not be given beside words of scheduler_request");
  EXPECT_EQ(refusal([](v1::AdmitRequest* request) {
              (*request->mutable_policy()->mutable_partitions())["h100"].set_mode("on");
              request->mutable_policy()->mutable_rules()->set_risk(2);
            }),
            "policy.partitions.h100.mode: on; must be one of off, shadow, warn, enforce\n"
            "policy.rules.risk: 2; must be from 0.0001 to 0.5");
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
  request_.mutable_scheduler_request()->clear_tres_per_node();
  std::vector<std::string> gpus;
  for (const auto& [id, gpu] : LoadCatalog().gpus) gpus.push_back(id);
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
      grpc::ClientContext context;
      ASSERT_TRUE(stub_->RecommendConfig(&context, request, &found).ok()) << words;
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
