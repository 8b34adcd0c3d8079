// The program as its users meet it: what it prints where, and how it exits.
#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "plimsoll/v1/planner.pb.h"
#include "tests/client/process.h"

namespace plimsoll {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

using Words = std::vector<std::string>;

Words Llama(const Words& more = {}) {
  Words words = {
      "estimate",          "--model", "llama-3.1-8b", "--gpu", "h100-80gb-sxm", "--gpu-count", "8",
      "--sequence-length", "2048",    "--zero-stage", "3"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

v1::EstimateMemoryResponse ReadAnswer(const std::string& json) {
  v1::EstimateMemoryResponse response;
  EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(json, &response).ok()) << json;
  return response;
}

std::string ReadWhole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(CommandLineTest, AnswersFromFlagsAlone) {
  const ProcessResult result = Plimsoll(Llama());
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("FITS  "));
  EXPECT_THAT(result.out, HasSubstr("on each h100-80gb-sxm"));
  EXPECT_EQ(result.err, "");
}

TEST(CommandLineTest, AnswersAlikeFromAFileAndFromStandardInput) {
  const std::string job =
      "model: {name: llama-3.1-8b}\n"
      "training: {sequence_length: 2048}\n"
      "parallelism: {zero_stage: 3}\n"
      "cluster: {gpu: h100-80gb-sxm, gpu_count: 8}\n";
  const TemporaryFile file(job);
  const ProcessResult flags = Plimsoll(Llama({"-o", "json"}));
  EXPECT_EQ(flags.code, 0) << flags.err;
  EXPECT_EQ(Plimsoll({"estimate", file.path(), "-o", "json"}).out, flags.out);
  EXPECT_EQ(Plimsoll({"estimate", "-", "-o", "json"}, job).out, flags.out);
}

TEST(CommandLineTest, FormatsSayTheSame) {
  const v1::EstimateMemoryResponse json = ReadAnswer(Plimsoll(Llama({"-o", "json"})).out);
  const std::string line = Plimsoll(Llama({"-o", "jsonl"})).out;
  EXPECT_THAT(line, EndsWith("}\n"));
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_EQ(ReadAnswer(line).DebugString(), json.DebugString());
  EXPECT_THAT(Plimsoll(Llama({"-o", "yaml"})).out,
              HasSubstr("\nusable_bytes: " + std::to_string(json.usable_bytes()) + "\n"));
}

TEST(CommandLineTest, ExplainsWhereBytesCameFrom) {
  EXPECT_THAT(Plimsoll(Llama()).out, Not(HasSubstr("What each pass left")));
  const ProcessResult result = Plimsoll(Llama({"--explain"}));
  EXPECT_THAT(result.out, HasSubstr("What each pass left"));
  EXPECT_THAT(result.out, HasSubstr("shrunk by"));
}

// The memory of the GPU is set so that each verdict must come.
TEST(CommandLineTest, ExitCodeIsTheVerdict) {
  const v1::EstimateMemoryResponse answer = ReadAnswer(Plimsoll(Llama({"-o", "json"})).out);
  ASSERT_GT(answer.ranks_size(), 0);
  const v1::Gauge& device = answer.ranks(static_cast<int>(answer.limiting_rank())).device();
  const auto code_with = [&](int64_t memory_bytes) {
    const int64_t others = answer.usable_bytes() - memory_bytes;
    return Plimsoll(Llama({"--reserved-for-others-bytes", std::to_string(others)})).code;
  };
  EXPECT_EQ(code_with(device.bound_bytes()), 0);
  // Below the expected figure the allocator gives back its cache and goes on, for
  // certain while there is room; below what tensors hold it cannot.
  const int64_t cache =
      answer.ranks(static_cast<int>(answer.limiting_rank())).reserved().expected_bytes() -
      answer.ranks(static_cast<int>(answer.limiting_rank())).allocated().expected_bytes();
  const int64_t least = device.expected_bytes() - cache;
  EXPECT_EQ(code_with(least + least / 20), 5);
  EXPECT_EQ(code_with(least - 1), 3);
}

// What people write elsewhere, as flags: the same answer, and what became of it.
TEST(CommandLineTest, TakesOtherPeoplesWords) {
  const ProcessResult own = Plimsoll(
      {"estimate", "--model", "llama-3.1-8b", "--gpu", "h100-80gb-sxm", "--gpu-count", "8",
       "--sequence-length", "8192", "--zero-stage", "3", "--recompute", "full", "-o", "json"});
  ASSERT_EQ(own.code, 0) << own.err;
  const Words other = {"estimate",
                       "--model",
                       "meta-llama/Llama-3.1-8B",
                       "--gpu",
                       "h100-80gb-sxm",
                       "--gpus",
                       "8",
                       "--seq-len",
                       "8k",
                       "--zero=3",
                       "--gradient-checkpointing"};
  Words json = other;
  json.insert(json.end(), {"-o", "json"});
  v1::EstimateMemoryResponse read = ReadAnswer(Plimsoll(json).out);
  v1::EstimateMemoryResponse asked = ReadAnswer(own.out);
  // Which model the id is, and four other words.
  EXPECT_EQ(read.assumptions_size(), asked.assumptions_size() + 5);
  EXPECT_EQ(read.assumptions(0).value(), "llama-3.1-8b");
  read.clear_assumptions();
  asked.clear_assumptions();
  EXPECT_EQ(read.DebugString(), asked.DebugString());
  EXPECT_THAT(Plimsoll(other).out, HasSubstr(" 8192 (written as seq-len: 8k)"));
}

TEST(CommandLineTest, SaysWhatZeroWouldMakeOfAJobThatDoesNotFit) {
  const Words job = {"estimate",      "--model",           "llama-3.1-8b", "--gpu",
                     "h100-80gb-sxm", "--sequence-length", "4096"};
  const auto with = [&](const Words& more) {
    Words words = job;
    words.insert(words.end(), more.begin(), more.end());
    return Plimsoll(words);
  };
  const ProcessResult first = with({"--gpu-count", "8"});
  EXPECT_EQ(first.code, 3);
  const size_t at = first.out.find("\nWith --zero-stage 3 (fsdp2): ");
  ASSERT_NE(at, std::string::npos) << first.out;
  const std::string hint = first.out.substr(at);
  EXPECT_THAT(hint, EndsWith("; it fits\n"));
  // It is what the estimate with ZeRO 3 says.
  const std::string sharded = with({"--gpu-count", "8", "--zero-stage", "3"}).out;
  const std::string used = hint.substr(hint.find(": ") + 2, 4);
  EXPECT_THAT(sharded, StartsWith("FITS  " + used));
  EXPECT_THAT(sharded, Not(HasSubstr("With --zero-stage")));
  // Nothing to share it with; not legal; not asked of a program.
  EXPECT_THAT(with({"--gpu-count", "1"}).out, Not(HasSubstr("With --zero-stage")));
  EXPECT_THAT(with({"--gpu-count", "8", "--framework", "ddp"}).out,
              Not(HasSubstr("With --zero-stage")));
  EXPECT_THAT(with({"--gpu-count", "8", "-o", "yaml"}).out, Not(HasSubstr("With --zero-stage")));
  EXPECT_THAT(with({"--gpu-count", "2", "--set", "training.sequence_length=65536"}).out,
              EndsWith("; does not fit either; plimsoll recommend searches what does\n"));
}

// A flag that may be repeated takes one value each time.
TEST(CommandLineTest, AJobFileMayStandBehindAnyFlag) {
  const TemporaryFile job(
      "{model: llama-3.1-8b, sequence_length: 2048, zero_stage: 3, gpu: h100-80gb-sxm, gpu_count: "
      "8}");
  const std::string own = Plimsoll(Llama({"--micro-batch-size", "2"})).out;
  EXPECT_EQ(Plimsoll({"estimate", "--set", "training.micro_batch_size=2", job.path()}).out, own);
  const ProcessResult result = Plimsoll({"estimate", "--gradient-checkpointing", job.path()});
  EXPECT_EQ(result.code, 0) << result.err;
  const ProcessResult frozen =
      Plimsoll({"recommend", "--detail", "summary", "--freeze", "*", job.path()});
  EXPECT_EQ(frozen.code, 0) << frozen.err;
}

TEST(CommandLineTest, ReadsAJobScript) {
  const TemporaryFile script(
      "#!/bin/sh\n#PLIMSOLL model=llama-3.1-8b sequence_length=2048 zero_stage=3\n"
      "#PLIMSOLL gpu=h100-80gb-sxm gpu_count=8\nsrun python train.py\n",
      "train.sh");
  EXPECT_EQ(Plimsoll({"estimate", script.path()}).out, Plimsoll(Llama()).out);
}

struct Mistake {
  const char* name;
  Words words;
  const char* err;
};

TEST(CommandLineTest, SaysWhatIsWrongInOneLine) {
  const Mistake kMistakes[] = {
      {"nothing",
       {"estimate"},
       "estimate: nothing given; must have a job file or flags such as --model, or --jobs\n"},
      {"no file",
       {"estimate", "none.yaml"},
       "none.yaml: No such file or directory; must be a readable file\n"},
      {"value", Llama({"--set", "training.sequence_length=x"}),
       "job.training.sequence_length: x; must be an integer\n"},
      {"set", Llama({"--set", "x"}),
       "--set: x; must be FIELD=VALUE\nSee plimsoll estimate --help\n"},
      {"timeout", Llama({"--timeout", "soon"}),
       "--timeout: soon; must be a duration up to 24h, as 10s or 500ms\n"},
      {"jobs and table",
       {"estimate", "--jobs", "-", "-o", "table"},
       "--output: table; must be jsonl with --jobs\n"},
      {"jobs and file",
       {"estimate", "--jobs", "-", "job.yaml"},
       "JOB: job.yaml; must not be given with --jobs\n"},
      {"jobs and flags",
       {"estimate", "--jobs", "-", "--explain"},
       "--jobs: with flags of one job; each line must say all that it asks\n"},
      {"no jobs",
       {"estimate", "--jobs", "none.jsonl"},
       "none.jsonl: No such file or directory; must be a readable file\n"},
      {"a flag that is near another", Llama({"--sequence-lenght", "8k"}),
       "--sequence-lenght: no such flag, did you mean --sequence-length\n"
       "See plimsoll estimate --help\n"},
      {"a word of several meanings", Llama({"--batch-size", "8"}),
       "job.batch-size: 8; may be training.micro_batch_size (of one GPU at once) or "
       "training.global_batch_size (of an optimizer step)\n"},
      {"not modelled", Llama({"--cpu-offload"}),
       "job.cpu-offload: true; not modelled yet: what is moved to the host's memory\n"},
      {"a trainer as the framework", Llama({"--framework", "hf-trainer"}),
       "job.runtime.framework: hf-trainer; is a trainer: it goes to runtime.trainer, with one of "
       "ddp, fsdp1, fsdp2, deepspeed as the framework\n"},
      {"words that no command takes",
       {"admit", "one", "two", "three"},
       "two three; not expected here\nSee plimsoll admit --help\n"},
      {"command",
       {"destimate"},
       "command: destimate; must be one of estimate, recommend, diff, admit, submit, report, "
       "measure, models, gpus, serve, completion\n"
       "See plimsoll --help\n"},
  };
  for (const Mistake& mistake : kMistakes) {
    const ProcessResult result = Plimsoll(mistake.words);
    EXPECT_EQ(result.code, 2) << mistake.name;
    EXPECT_EQ(result.err, mistake.err) << mistake.name;
    EXPECT_EQ(result.out, "") << mistake.name;
  }
}

TEST(CommandLineTest, PrintsEveryViolationOfTheService) {
  const ProcessResult result = Plimsoll(
      Llama({"--set", "training.micro_batch_size=0", "--set", "cluster.gpus_per_node=-1"}));
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("job.training.micro_batch_size: 0; "));
  EXPECT_THAT(result.err, HasSubstr("job.cluster.gpus_per_node: -1; "));
}

TEST(CommandLineTest, PrintsWhatItCannotReadAndWhatTheServiceRefuses) {
  const TemporaryFile file(
      "model: {name: llama-3.1-8b}\n"
      "training: {sequence_lenght: 2048, micro_batch_size: 0}\n"
      "parallelism: {zero_stage: three, tensor_parallel_size: 2}\n"
      "cluster: {gpu: h100-79gb, gpu_count: 8}\n");
  const Words words = {"estimate", file.path(), "--set", "cluster.gpus_per_node=x"};
  const std::string misread =
      "job.training.sequence_lenght: 2048; no such field, did you mean sequence_length\n"
      "job.parallelism.zero_stage: three; must be an integer\n"
      "job.cluster.gpus_per_node: x; must be an integer\n";
  const ProcessResult result = Plimsoll(words);
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err, misread +
                            "job.cluster.gpu: h100-79gb; is not known; nearest: gh200-96gb\n"
                            "job.training.micro_batch_size: 0; must be from 1 to 1048576\n");
  Words unreachable = words;
  unreachable.insert(unreachable.end(), {"--server", "unix:nowhere.sock"});
  const ProcessResult alone = Plimsoll(unreachable);
  EXPECT_EQ(alone.code, 2);
  EXPECT_EQ(alone.err, misread);
}

TEST(CommandLineTest, ListsTheCatalog) {
  EXPECT_THAT(Plimsoll({"models"}).out, HasSubstr("\nllama-3.1-8b "));
  EXPECT_THAT(Plimsoll({"models"}).out, HasSubstr("meta-llama/Llama-3.1-8B-Instruct"));
  EXPECT_THAT(Plimsoll({"gpus"}).out, HasSubstr("\nh100-80gb-sxm "));
  EXPECT_THAT(Plimsoll({"gpus", "-o", "jsonl"}).out, StartsWith("{\"gpu\":\""));
  EXPECT_THAT(Plimsoll({"models", "-o", "json"}).out, StartsWith("{\n  \"models\": ["));
  EXPECT_THAT(Plimsoll({"models", "-o", "yaml"}).out, StartsWith("models:\n  - name: "));
}

TEST(CommandLineTest, HelpHasExamplesAndCodes) {
  for (const Words& words :
       {Words{"--help"}, Words{"estimate", "--help"}, Words{"recommend", "--help"},
        Words{"measure", "-h"}, Words{"models", "-h"}, Words{"gpus", "-h"}, Words{"serve", "-h"},
        Words{"completion", "-h"}}) {
    const ProcessResult result = Plimsoll(words);
    EXPECT_EQ(result.code, 0);
    EXPECT_THAT(result.out, HasSubstr("\nExamples:\n  ")) << words[0];
    EXPECT_EQ(result.err, "");
  }
  EXPECT_THAT(Plimsoll({"--help"}).out, HasSubstr("3  the job does not fit"));
  EXPECT_THAT(Plimsoll({"--version"}).out, StartsWith("plimsoll "));
}

TEST(CommandLineTest, ColoursOnlyWhereTheyAreWanted) {
  EXPECT_THAT(Plimsoll(Llama()).out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(Plimsoll(Llama({"--color", "always"})).out, HasSubstr("\x1b["));
  std::string command = PLIMSOLL;
  for (const std::string& word : Llama()) command += " " + word;
  const auto on_terminal = [&](const Words& environment) {
    return RunProcess({"script", "-qec", command, "/dev/null"}, "", environment).out;
  };
  EXPECT_THAT(on_terminal({"TERM=xterm"}), HasSubstr("\x1b["));
  EXPECT_THAT(on_terminal({"TERM=xterm", "NO_COLOR=1"}), Not(HasSubstr("\x1b")));
  EXPECT_THAT(on_terminal({"TERM=dumb"}), Not(HasSubstr("\x1b")));
}

TEST(CommandLineTest, FollowsTheLocale) {
  EXPECT_THAT(Plimsoll(Llama()).out, HasSubstr("█"));
  EXPECT_THAT(Plimsoll(Llama(), "", {"LC_ALL=C"}).out, Not(HasSubstr("█")));
}

TEST(CommandLineTest, SaysThatOutputIsFull) {
  const ProcessResult result =
      RunProcess({"sh", "-c", std::string(PLIMSOLL) + " gpus > /dev/full"});
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.err, "standard output: cannot be written to\n");
}

TEST(RemoteTest, AnswersAsTheEmbeddedServiceDoes) {
  ServerProcess server;
  ASSERT_NE(server.address(), "");
  const ProcessResult embedded = Plimsoll(Llama({"-o", "json"}));
  const ProcessResult remote = Plimsoll(Llama({"-o", "json", "--server", server.address()}));
  EXPECT_EQ(remote.code, embedded.code) << remote.err;
  EXPECT_EQ(remote.out, embedded.out);
  const std::string variable = "PLIMSOLL_SERVER=" + server.address();
  EXPECT_EQ(Plimsoll({"gpus"}, "", {variable}).out, Plimsoll({"gpus"}).out);
  const ProcessResult bad =
      Plimsoll(Llama({"--server", server.address(), "--micro-batch-size", "0"}));
  EXPECT_EQ(bad.code, 2);
  EXPECT_EQ(bad.err, Plimsoll(Llama({"--micro-batch-size", "0"})).err);
  EXPECT_EQ(server.Stop(), 0);
  EXPECT_EQ(Plimsoll({"gpus"}, "", {variable}).code, 4);
}

TEST(RemoteTest, SaysThatTheServiceIsOutOfReach) {
  const TemporaryFile file("");
  const std::string address = "unix:" + file.folder() + "/none.sock";
  const ProcessResult result = Plimsoll(Llama({"--server", address}));
  EXPECT_EQ(result.code, 4);
  EXPECT_THAT(result.err, StartsWith(address + ": out of reach; "));
}

// A site's own table of upper bounds, for the service in this process alone.
TEST(CalibrationTest, IsReadFromAFile) {
  const TemporaryFile table(R"(id: site-7
gpus: [h100-80gb-sxm]
risks: [0.5, 0.01]
shares:
- {gauge: allocated, detail: replay, rows: 9, shares: [0, 0]}
- {gauge: reserved, detail: replay, rows: 9, shares: [0, 0]}
- {gauge: device, detail: replay, rows: 9, shares: [0, 0]}
- {gauge: capacity, detail: replay, rows: 9, shares: [0, 0]}
- {gauge: allocated, detail: summary, rows: 9, shares: [0, 0]}
- {gauge: reserved, detail: summary, rows: 9, shares: [0, 0]}
- {gauge: device, detail: summary, rows: 9, shares: [0, 0]}
)");
  const ProcessResult result = Plimsoll(Llama({"-o", "json", "--calibration", table.path()}));
  EXPECT_THAT(result.out, HasSubstr("site-7"));
  EXPECT_THAT(result.out, HasSubstr("uncalibrated")) << "no row is of the framework";
}

TEST(CalibrationTest, ABadFileIsOneLine) {
  const TemporaryFile table("id: site-7\n");
  const ProcessResult result = Plimsoll(Llama({"--calibration", table.path()}));
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr(table.path() + ": risks: must be numbers"));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1);
}

TEST(CalibrationTest, IsNotForAServiceElsewhere) {
  const ProcessResult result =
      Plimsoll(Llama({"--server", "unix:none.sock", "--calibration", "t.yaml"}));
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("--calibration: t.yaml; must not be given with --server"));
}

TEST(TlsFlagsTest, AreForAServiceElsewhere) {
  const ProcessResult result = Plimsoll(Llama({"--tls-ca", "ca.pem"}));
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("--tls-ca: ca.pem; must be given with --server"));
}

// A socket that takes connections and says nothing.
class SilentServer {
 public:
  SilentServer() {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(socket_, any, size), 0);
    EXPECT_EQ(listen(socket_, 8), 0);
    EXPECT_EQ(getsockname(socket_, any, &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~SilentServer() { close(socket_); }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  int socket_ = socket(AF_INET, SOCK_STREAM, 0);
  int port_ = 0;
};

TEST(RemoteTest, SaysThatTheAnswerIsLate) {
  const SilentServer server;
  const ProcessResult result =
      Plimsoll(Llama({"--server", server.address(), "--timeout", "100ms"}));
  EXPECT_EQ(result.code, 4);
  EXPECT_EQ(result.err, server.address() + ": no answer in 100ms\n");
}

// A search that takes longer than a second says so on a terminal, and nowhere
// else; the line is gone afterwards.
TEST(RemoteTest, ALongSearchShowsProgressOnATerminal) {
  const SilentServer server;
  const std::string command = std::string(PLIMSOLL) + " recommend --model gpt2 --server " +
                              server.address() + " --timeout 1200ms";
  const ProcessResult shown =
      RunProcess({"script", "-qec", command, "/dev/null"}, "", {"TERM=xterm"});
  EXPECT_THAT(shown.out, HasSubstr("Searching, 1 s of at most 1200ms\r\x1b[K"));
  const ProcessResult dumb =
      RunProcess({"script", "-qec", command, "/dev/null"}, "", {"TERM=dumb"});
  EXPECT_THAT(dumb.out, Not(HasSubstr("Searching")));
  const ProcessResult piped = RunProcess({"sh", "-c", command}, "", {"TERM=xterm"});
  EXPECT_EQ(piped.err, server.address() + ": no answer in 1.2s\n");
}

TEST(CommandLineTest, DetailChoosesHowTheFiguresAreMade) {
  EXPECT_EQ(ReadAnswer(Plimsoll(Llama({"-o", "json"})).out).detail(), "replay");
  for (const char* detail : {"summary", "replay"}) {
    const ProcessResult result = Plimsoll(Llama({"-o", "json", "--detail", detail}));
    EXPECT_EQ(ReadAnswer(result.out).detail(), detail) << result.err;
  }
  const ProcessResult result = Plimsoll(Llama({"--detail", "guess"}));
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("--detail: guess not in {summary,replay}"));
}

TEST(CommandLineTest, TheTimelineGoesToItsFileAndTheAnswerToStandardOutput) {
  const TemporaryFile beside("");
  const std::string data = beside.folder() + "/memory.json";
  const ProcessResult result = Plimsoll(Llama({"-o", "json", "--timeline", data}));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, Plimsoll(Llama({"-o", "json"})).out);
  v1::Timeline timeline;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(ReadWhole(data), &timeline).ok());
  ASSERT_GT(timeline.points_size(), 100);
  const v1::RankMemory rank = ReadAnswer(result.out).ranks(0);
  EXPECT_EQ(timeline.points(static_cast<int>(timeline.peak_point())).allocated_bytes(),
            rank.allocated().expected_bytes());
  EXPECT_EQ(timeline.largest_size(), 20);
  std::remove(data.c_str());
}

TEST(CommandLineTest, ATimelineThatCannotBeIsRefused) {
  ProcessResult result = Plimsoll(Llama({"--timeline", "memory.png"}));
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err, "--timeline: memory.png; must end in .svg, .html or .json\n");
  result = Plimsoll(Llama({"--timeline", "memory.svg", "--detail", "summary"}));
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.err, "include_timeline: true; needs detail replay\n");
  result = Plimsoll({"estimate", "--jobs", "-", "--timeline", "memory.svg"});
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.err, "--jobs: with flags of one job; each line must say all that it asks\n");
  result = Plimsoll(Llama({"--timeline", "/no/such/folder/memory.svg"}));
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, StartsWith("FITS  "));
  EXPECT_EQ(result.err, "--timeline: /no/such/folder/memory.svg; No such file or directory\n");
}

TEST(CommandLineTest, ExplainListsTheLargestAtThePeakOfAReplay) {
  const char* heading = "The largest at the peak of a steady step";
  EXPECT_THAT(Plimsoll(Llama({"--explain"})).out, HasSubstr(heading));
  const ProcessResult summary = Plimsoll(Llama({"--explain", "--detail", "summary"}));
  EXPECT_EQ(summary.code, 0) << summary.err;
  EXPECT_THAT(summary.out, Not(HasSubstr(heading)));
  EXPECT_THAT(Plimsoll(Llama()).out, Not(HasSubstr(heading)));
}

}  // namespace
}  // namespace plimsoll
