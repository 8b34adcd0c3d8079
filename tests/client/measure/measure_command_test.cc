// `plimsoll measure`, with a shell in the place of Python: what it is given, and what is made of
// how it ends. The phantom's own tests have the libraries.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/client/process.h"

namespace plimsoll {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// A folder with files of the right names: the loader says that it cannot preload them, and goes
// on.
class MeasureCommandTest : public testing::Test {
 protected:
  MeasureCommandTest() {
    std::filesystem::create_directory(folder_.folder() + "/hook");
    for (const char* const name :
         {"hook/sitecustomize.py", "libplimsoll-phantom.so", "libplimsoll-phantom-nvml.so"}) {
      std::ofstream(folder_.folder() + "/" + name) << "\n";
    }
  }

  ProcessResult Measure(std::vector<std::string> flags, const std::string& script) const {
    flags.insert(flags.begin(), "measure");
    flags.insert(flags.end(), {"--", "sh", "-c", script});
    return Plimsoll(flags, "", {"PLIMSOLL_PHANTOM=" + folder_.folder(), "PYTHONPATH=/own"});
  }

  // A script that leaves what a run left, and then goes on.
  static std::string Leave(const std::string& result, const std::string& then = "true") {
    return "cp " RESULTS "/" + result + ".hook.json $PLIMSOLL_MEASURE_RESULTS/1.json; " + then;
  }

  const TemporaryFile folder_{"", "here"};
};

TEST_F(MeasureCommandTest, SaysWhatTheProgramLeft) {
  const ProcessResult fits = Measure({"--gpu", "h100-80gb-sxm"}, Leave("one_gpu", "echo loss 7"));
  EXPECT_EQ(fits.code, 0) << fits.err;
  EXPECT_THAT(fits.out, StartsWith("FITS  9.49 of 79.18 GiB on h100-80gb-sxm, 69.69 free\n"));
  EXPECT_THAT(fits.err, HasSubstr("loss 7\n")) << "not among the answer";
  const ProcessResult json = Measure({"--gpu", "h100-80gb-sxm", "-o", "json"}, Leave("one_gpu"));
  EXPECT_THAT(json.out, HasSubstr("\"verdict\": \"VERDICT_FITS\",\n  \"basis\": \"phantom\""));
  EXPECT_THAT(json.out, HasSubstr("\"notKnown\": [\n    \"NCCL's own buffers\""));
}

// The whole way: a run becomes a job, of which the service says what the run held.
TEST_F(MeasureCommandTest, MakesAJobOfTheRun) {
  const std::string file = folder_.folder() + "/run.yaml";
  const ProcessResult result = Measure(
      {"--gpu", "h100-80gb-sxm", "--gpus", "16", "--rank", "3", "--job", file}, Leave("profiled"));
  EXPECT_EQ(result.code, 0) << result.err;
  const ProcessResult estimate = Plimsoll({"estimate", file, "-o", "json"});
  EXPECT_EQ(estimate.code, 0) << estimate.err;
  EXPECT_THAT(estimate.out, HasSubstr("\"detail\": \"profiled\""));
  for (const char* const gauge : {"allocated", "reserved"}) {
    const std::string key = std::string("\"") + gauge + "\": {\n        \"expectedBytes\": \"";
    const size_t at = estimate.out.find(key);
    ASSERT_NE(at, std::string::npos) << estimate.out;
    const size_t begin = at + key.size();
    const std::string bytes = estimate.out.substr(begin, estimate.out.find('"', begin) - begin);
    EXPECT_EQ(bytes, gauge == std::string("allocated") ? "3729940992" : "4680843264");
  }
  EXPECT_EQ(Plimsoll({"estimate", file}).code, 0);
  const ProcessResult admit = Plimsoll({"admit", file});
  EXPECT_EQ(admit.code, 0) << admit.err;
  const ProcessResult other = Plimsoll({"estimate", file, "--gpu-count", "8"});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("must be 16, the ranks of the run that was measured"));
  const ProcessResult search = Plimsoll({"recommend", file});
  EXPECT_EQ(search.code, 2);
  EXPECT_THAT(search.err, HasSubstr("model.profiled: set; not modelled"));
}

TEST_F(MeasureCommandTest, WritesNoJobOfARunThatShowsNoStep) {
  const std::string file = folder_.folder() + "/run.yaml";
  const ProcessResult failed =
      Measure({"--gpu", "rtx-4090-24gb", "--job", file}, Leave("out_of_memory", "exit 1"));
  EXPECT_EQ(failed.code, 3) << failed.err;
  EXPECT_THAT(failed.err, HasSubstr("--job: " + file + " is not written: out of memory; "));
  const ProcessResult unseen = Measure({"--gpu", "h100-80gb-sxm", "--job", file}, Leave("one_gpu"));
  EXPECT_EQ(unseen.code, 1);
  EXPECT_THAT(unseen.out, StartsWith("FITS  ")) << "the answer is given";
  EXPECT_THAT(unseen.err, HasSubstr("is not written: "));
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST_F(MeasureCommandTest, TakesRunningOutOfMemoryForAnAnswer) {
  const ProcessResult result =
      Measure({"--gpu", "rtx-4090-24gb"}, Leave("out_of_memory", "exit 1"));
  EXPECT_EQ(result.code, 3) << result.err;
  EXPECT_THAT(result.out, StartsWith("DOES NOT FIT  out of memory in step 1: asked for 3.1 GiB"));
}

TEST_F(MeasureCommandTest, TellsTheProgramItsGpu) {
  const ProcessResult result =
      Measure({"--gpu", "a100-40gb-sxm", "--gpus", "8", "--rank", "5", "--steps", "4"},
              "env | grep -E '^(PLIMSOLL_(PHANTOM_|MEASURE_(RANK|STEPS))|CUDA_VIS)' | sort; "
              "case $PYTHONPATH in */hook:/own) echo hook first;; esac");
  EXPECT_THAT(result.err, HasSubstr("CUDA_VISIBLE_DEVICES=0\n"
                                    "PLIMSOLL_MEASURE_RANK=5\n"
                                    "PLIMSOLL_MEASURE_RANKS=8\n"
                                    "PLIMSOLL_MEASURE_STEPS=4\n"
                                    "PLIMSOLL_PHANTOM_BYTES=42405462016\n"
                                    "PLIMSOLL_PHANTOM_CAPABILITY=8.0\n"
                                    "PLIMSOLL_PHANTOM_CONTEXT_BYTES=805306368\n"
                                    "PLIMSOLL_PHANTOM_MULTIPROCESSORS=108\n"
                                    "PLIMSOLL_PHANTOM_NAME=NVIDIA A100-SXM4-40GB\n"
                                    "hook first\n"));
}

TEST_F(MeasureCommandTest, MakesNoAnswerOfAProgramThatFailed) {
  const struct {
    std::string script;
    int code;
    const char* message;
  } kCases[] = {
      {"true", 1, "measure: the command did not use CUDA from PyTorch; there is no answer\n"},
      {"exit 7", 1, "measure: the command ended with exit status 7; there is no answer\n"},
      {Leave("one_gpu", "exit 7"), 1,
       "measure: the command ended with exit status 7; there is no answer\n"},
      {"kill -9 $$", 1, "measure: the command was ended by signal 9, Killed; there is no answer\n"},
      {"echo '{\"refused\": \"torch 1; too old\"}' > $PLIMSOLL_MEASURE_RESULTS/1.json; exit 2", 2,
       "measure: torch 1; too old\n"},
      {Leave("one_gpu", "cp $PLIMSOLL_MEASURE_RESULTS/1.json $PLIMSOLL_MEASURE_RESULTS/2.json"), 2,
       "measure: 2 processes used CUDA; must be one: a program that starts its ranks itself must "
       "start one\n"},
      {"echo > $PLIMSOLL_MEASURE_RESULTS/1.json", 1, "the hook's result: not a JSON object\n"},
  };
  for (const auto& [script, code, message] : kCases) {
    const ProcessResult result = Measure({"--gpu", "h100-80gb-sxm"}, script);
    EXPECT_EQ(result.code, code) << script;
    EXPECT_THAT(result.err, testing::EndsWith(message)) << script;
    EXPECT_EQ(result.out, "");
  }
}

TEST_F(MeasureCommandTest, RefusesWhatItCannotDo) {
  const struct {
    std::vector<std::string> flags;
    int code;
    const char* message;
  } kCases[] = {
      {{}, 2, "measure: too little given; must have --gpu, then -- and the command that trains\n"},
      {{"--gpu", "h100-80gb-sxm"}, 2, "measure: too little given; must have --gpu, then -- and"},
      {{"--", "true"}, 2, "measure: too little given; must have --gpu, then -- and the command"},
      {{"--gpu", "h100", "--", "true"}, 2, "--gpu: h100; must be one of h100-80gb-pcie, h100-80gb"},
      {{"--gpu", "abacus", "--", "true"}, 2, "--gpu: abacus; must be a GPU of the catalog: plims"},
      {{"--gpu", "mi300x-192gb", "--", "true"}, 2, "--gpu: mi300x-192gb; no phantom stands in for"},
      {{"--gpu", "t4", "--gpus", "0", "--", "true"}, 2, "--gpus: 0; must be at least 1\n"},
      {{"--gpu", "t4", "--rank", "1", "--", "true"}, 2, "--rank: 1; must be 0 to 0, as --gpus"},
      {{"--gpu", "t4", "--steps", "-1", "--", "true"}, 2, "--steps: -1; must be 0, for as many"},
      {{"--gpu", "t4", "-o", "yaml", "--", "true"}, 2, "--output: yaml not in {table,json}"},
      {{"--gpu", "t4", "--", "/no/such/program"},
       1,
       "measure: /no/such/program: No such file or directory\n"},
  };
  for (const auto& [flags, code, message] : kCases) {
    std::vector<std::string> arguments = {"measure"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const ProcessResult result = Plimsoll(arguments);
    EXPECT_EQ(result.code, code) << message;
    EXPECT_THAT(result.err, StartsWith(message));
  }
}

TEST_F(MeasureCommandTest, SaysWhereThePhantomIsNot) {
  const auto measure_in = [](const std::string& folder) {
    const ProcessResult result =
        Plimsoll({"measure", "--gpu", "t4", "--", "true"}, "", {"PLIMSOLL_PHANTOM=" + folder});
    EXPECT_EQ(result.code, 2);
    return result.err;
  };
  EXPECT_EQ(measure_in("/no/such/folder"),
            "/no/such/folder/hook/sitecustomize.py: not there; PLIMSOLL_PHANTOM must be the folder "
            "of the phantom\n");
  EXPECT_EQ(measure_in("/a folder"),
            "/a folder: the phantom's folder; must have no blank or colon for LD_PRELOAD\n");
}

}  // namespace
}  // namespace plimsoll
