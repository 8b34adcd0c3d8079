// What a measured command is started with, and how its end is told: its variables, its words, its
// exit status and its signals, with small shell scripts in its place.
#include "client/measure/run_child.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/measure/phantom_environment.h"
#include "tests/testing/test_files.h"

namespace plimsoll {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;
using testing::StartsWith;

using Variables = std::map<std::string, std::string>;

// Runs a script, of which nothing may fail before it begins.
ChildEnd RunScript(const std::string& script, const Variables& variables = {}) {
  const absl::StatusOr<ChildEnd> end = RunChild({"sh", "-c", script}, variables);
  EXPECT_TRUE(end.ok()) << end.status();
  return end.ok() ? *end : ChildEnd{-1, -1};
}

// The lines that a script wrote to the file that it knows as $OUT.
std::vector<std::string> LinesOf(const std::string& script, Variables variables = {}) {
  const std::string file = TestPath("out");
  variables["OUT"] = file;
  EXPECT_EQ(RunScript(script, variables).exit_status, 0);
  std::vector<std::string> lines;
  std::ifstream text(file);
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

TEST(RunChildTest, TellsHowItEnded) {
  const struct {
    const char* script;
    int exit_status, signal;
  } kCases[] = {
      {"true", 0, 0},           {"exit 1", 1, 0},     {"exit 255", 255, 0},
      {"exit 256", 0, 0},       {"kill -9 $$", 0, 9}, {"kill -15 $$", 0, 15},
      {"kill -6 $$", 0, 6},     {"(exit 7)", 7, 0},   {"kill -9 $$ & wait; exit 3", 0, 9},
      {"no-such-word", 127, 0},
  };
  for (const auto& [script, exit_status, signal] : kCases) {
    testing::internal::CaptureStderr();  // the shell says what it does not know
    const ChildEnd end = RunScript(script);
    testing::internal::GetCapturedStderr();
    EXPECT_EQ(end.exit_status, exit_status) << script;
    EXPECT_EQ(end.signal, signal) << script;
  }
}

// Standard output is for the answer: whatever the command prints is beside it.
TEST(RunChildTest, ItsWordsAreOnStandardError) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  EXPECT_EQ(RunScript("echo to people; echo to them too >&2; exit 4").exit_status, 4);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "to people\nto them too\n");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

TEST(RunChildTest, WordsOfACommandAreNotSplit) {
  const std::string file = TestPath("out");
  const absl::StatusOr<ChildEnd> end = RunChild(
      {"sh", "-c", "printf '%s\\n' \"$@\" > $OUT", "sh", "two words", "", "$HOME", "\"'\\"},
      {{"OUT", file}});
  ASSERT_TRUE(end.ok());
  std::ifstream text(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  EXPECT_THAT(lines, ElementsAre("two words", "", "$HOME", "\"'\\"));
}

// A variable that is given takes the place of this process's; all others stay, and it keeps its
// own.
TEST(RunChildTest, VariablesAreLaidOverThisProcesss) {
  setenv("PLIMSOLL_TEST_OLD", "old", 1);
  setenv("PLIMSOLL_TEST_OLDER", "older", 1);
  EXPECT_THAT(LinesOf("env > $OUT", {{"PLIMSOLL_TEST_OLD", "new = 1"}, {"PLIMSOLL_TEST_NEW", ""}}),
              AllOf(IsSupersetOf({"PLIMSOLL_TEST_OLD=new = 1", "PLIMSOLL_TEST_OLDER=older",
                                  "PLIMSOLL_TEST_NEW="}),
                    Not(testing::Contains("PLIMSOLL_TEST_OLD=old"))));
  EXPECT_STREQ(getenv("PLIMSOLL_TEST_OLD"), "old");
  EXPECT_EQ(getenv("PLIMSOLL_TEST_NEW"), nullptr);
}

TEST(RunChildTest, SaysWhyItCannotRun) {
  const std::string text = WriteTestFile("text", "no program");
  const std::pair<std::string, std::string> cases[] = {
      {"/no/such/program", "No such file or directory"},
      {"no-such-program-anywhere", "No such file or directory"},
      {text, "Permission denied"},
      {"/", "Permission denied"},
      {"/red\x1b[31m", "No such file or directory"},
  };
  for (const auto& [command, why] : cases) {
    const absl::StatusOr<ChildEnd> end = RunChild({command}, {});
    EXPECT_EQ(end.status().code(), absl::StatusCode::kUnknown);
    const std::string message(end.status().message());
    EXPECT_THAT(message, StartsWith("measure: "));
    EXPECT_THAT(message, HasSubstr(absl::StrCat(": ", why)));
    EXPECT_THAT(message, Not(HasSubstr("\x1b"))) << "a name may be anything";
  }
}

volatile sig_atomic_t heard_interrupts = 0;
void Hear(int signal) {
  if (signal == SIGINT) heard_interrupts = heard_interrupts + 1;
}

// What this process does with signals of its own, before and after.
class RunChildSignalTest : public testing::Test {
 protected:
  RunChildSignalTest() {
    struct sigaction hear = {};
    hear.sa_handler = Hear;
    sigaction(SIGINT, &hear, &interrupt_);
    sigaction(SIGTERM, &hear, &terminate_);
    heard_interrupts = 0;
  }
  ~RunChildSignalTest() override {
    struct sigaction after = {};
    for (const auto& [signal, before] : {std::pair(SIGINT, &interrupt_), {SIGTERM, &terminate_}}) {
      sigaction(signal, before, &after);
      EXPECT_EQ(after.sa_handler, Hear) << signal << " is this process's again";
    }
  }

  struct sigaction interrupt_ = {}, terminate_ = {};
};

// SIGTERM goes on to the command, which may end in its own way, however early it comes: a signal
// that was lost would leave the command waiting.
TEST_F(RunChildSignalTest, ItsEndIsPassedOn) {
  for (int i = 0; i < 20; ++i) {
    const std::string send = "kill -TERM $PPID; while :; do :; done";
    EXPECT_EQ(RunScript("trap 'exit 5' TERM; " + send).exit_status, 5);
    EXPECT_EQ(RunScript(send).signal, SIGTERM);
  }
}

// The command blocks what this process did, and no more.
TEST_F(RunChildSignalTest, BlocksNothingForIt) {
  EXPECT_EQ(RunScript("kill -TERM $$; exit 1").signal, SIGTERM);
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  EXPECT_EQ(sigismember(&blocked, SIGTERM), 0);
  EXPECT_EQ(sigismember(&blocked, SIGINT), 0);
}

// SIGINT is sent to both by a terminal, and is the command's alone.
TEST_F(RunChildSignalTest, AnInterruptIsTheCommands) {
  const ChildEnd end = RunScript("kill -INT $PPID; exit 6");
  EXPECT_EQ(end.exit_status, 6);
  EXPECT_EQ(heard_interrupts, 0);
  raise(SIGINT);
  EXPECT_EQ(heard_interrupts, 1) << "and this process's again";
}

// A folder with files of the phantom's names.
class PhantomEnvironmentTest : public testing::Test {
 protected:
  PhantomEnvironmentTest() {
    std::filesystem::create_directories(folder_ + "/hook");
    for (const char* const name : kFiles) std::ofstream(absl::StrCat(folder_, "/", name)) << "\n";
    setenv("PLIMSOLL_PHANTOM", folder_.c_str(), 1);
    unsetenv("LD_PRELOAD");
    unsetenv("PYTHONPATH");
  }
  ~PhantomEnvironmentTest() override {
    std::filesystem::remove_all(folder_);
    unsetenv("PLIMSOLL_PHANTOM");
    if (preload_.empty()) {
      unsetenv("LD_PRELOAD");
    } else {
      setenv("LD_PRELOAD", preload_.c_str(), 1);
    }
  }

  static absl::StatusOr<Variables> Environment() {
    const MeasuredGpu gpu = {.id = "t4-16gb",
                             .usable_bytes = 15843721216,
                             .context_bytes = 7,
                             .multiprocessor_count = 40};
    return PhantomEnvironment(gpu, *FindGpuFacts("t4-16gb"), {.rank = 3, .count = 8},
                              {.folder = "/results", .step_count = 5});
  }

  static constexpr const char* kFiles[] = {"hook/sitecustomize.py", "libplimsoll-phantom.so",
                                           "libplimsoll-phantom-nvml.so"};
  const std::string folder_ = TestPath("phantom");
  const std::string preload_ = getenv("LD_PRELOAD") != nullptr ? getenv("LD_PRELOAD") : "";
};

TEST_F(PhantomEnvironmentTest, SaysWhichGpuAndWhichRank) {
  const absl::StatusOr<Variables> variables = Environment();
  ASSERT_TRUE(variables.ok()) << variables.status();
  const Variables expected = {
      {"LD_PRELOAD",
       absl::StrCat(folder_, "/libplimsoll-phantom.so:", folder_, "/libplimsoll-phantom-nvml.so")},
      {"PYTHONPATH", folder_ + "/hook"},
      {"TRITON_LIBCUDA_PATH", folder_},
      {"CUDA_VISIBLE_DEVICES", "0"},
      {"PLIMSOLL_MEASURE_RESULTS", "/results"},
      {"TORCHINDUCTOR_CACHE_DIR", "/results/inductor"},
      {"TRITON_CACHE_DIR", "/results/triton"},
      {"PLIMSOLL_MEASURE_STEPS", "5"},
      {"PLIMSOLL_MEASURE_RANK", "3"},
      {"PLIMSOLL_MEASURE_RANKS", "8"},
      {"PLIMSOLL_PHANTOM_NAME", "Tesla T4"},
      {"PLIMSOLL_PHANTOM_BYTES", "15843721216"},
      {"PLIMSOLL_PHANTOM_CONTEXT_BYTES", "7"},
      {"PLIMSOLL_PHANTOM_CAPABILITY", "7.5"},
      {"PLIMSOLL_PHANTOM_MULTIPROCESSORS", "40"}};
  EXPECT_EQ(*variables, expected);
}

// What was preloaded or looked in before still is, after the phantom.
TEST_F(PhantomEnvironmentTest, GoesBeforeWhatIsThere) {
  const Variables bare = *Environment();
  for (const char* const variable : {"LD_PRELOAD", "PYTHONPATH"}) {
    for (const std::string now : {"", "/own", "/own:/more"}) {
      setenv(variable, now.c_str(), 1);
      const absl::StatusOr<Variables> variables = Environment();
      unsetenv(variable);
      ASSERT_TRUE(variables.ok());
      EXPECT_EQ(variables->at(variable),
                now.empty() ? bare.at(variable) : absl::StrCat(bare.at(variable), ":", now));
    }
  }
}

TEST_F(PhantomEnvironmentTest, SaysWhichFileIsNotThere) {
  for (const char* const name : kFiles) {
    const std::string file = absl::StrCat(folder_, "/", name);
    std::filesystem::rename(file, folder_ + "/away");
    EXPECT_EQ(Environment().status(),
              absl::NotFoundError(absl::StrCat(
                  file, ": not there; PLIMSOLL_PHANTOM must be the folder of the phantom")));
    std::filesystem::rename(folder_ + "/away", file);
  }
  EXPECT_TRUE(Environment().ok());
}

// LD_PRELOAD is divided by blanks and colons, and has no way to quote them.
TEST_F(PhantomEnvironmentTest, TheFolderHasNoBlankOrColon) {
  for (const char* const bad : {"/a folder", "/a:b", "relative folder"}) {
    setenv("PLIMSOLL_PHANTOM", bad, 1);
    EXPECT_EQ(Environment().status().code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(Environment().status().message()),
                HasSubstr("must have no blank or colon for LD_PRELOAD"));
  }
}

// The command may go to another folder: paths are whole.
TEST_F(PhantomEnvironmentTest, ARelativeFolderBecomesWhole) {
  const std::filesystem::path relative =
      std::filesystem::relative(folder_, std::filesystem::current_path());
  setenv("PLIMSOLL_PHANTOM", relative.c_str(), 1);
  const absl::StatusOr<Variables> variables = Environment();
  ASSERT_TRUE(variables.ok()) << variables.status();
  for (const auto& library : absl::StrSplit(variables->at("LD_PRELOAD"), ':')) {
    EXPECT_TRUE(std::filesystem::path(std::string(library)).is_absolute()) << library;
  }
}

}  // namespace
}  // namespace plimsoll
