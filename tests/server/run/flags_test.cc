// Every setting of the server by its flag, its variable and its line of a config file: each is
// read, in this order, and what is out of its range is refused by whichever it comes.
#include "server/run/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "tests/testing/test_files.h"

namespace plimsoll {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A setting, three values of it, and what they are read as.
struct Setting {
  const char* name;  // "--<name>"
  bool is_text;      // quoted in a config file
  const char* values[3];
  std::function<std::string(const ServerOptions&)> read;  // as it is written
};

std::string Milliseconds(std::chrono::milliseconds time) { return absl::StrCat(time.count()); }
std::string Truth(bool value) { return value ? "true" : "false"; }
std::string Level(LogLevel level) {
  for (const char* const name : {"debug", "info", "warning", "error", "off"}) {
    if (ParseLogLevel(name) == level) return name;
  }
  return "none of them";
}

const std::vector<Setting>& Settings() {
  using Options = const ServerOptions&;
  static const auto* const kSettings = new std::vector<Setting>{
      {"listen",
       true,
       {"127.0.0.1:1", "unix:/a", "[::1]:3"},
       [](Options of) { return absl::StrJoin(of.listen, ","); }},
      {"http-listen",
       true,
       {"0.0.0.0:1", "unix:/b", "localhost:0"},
       [](Options of) { return absl::StrJoin(of.http_listen, ","); }},
      {"max-in-flight",
       false,
       {"1", "77", "1000000"},
       [](Options of) { return absl::StrCat(of.max_in_flight); }},
      {"max-connections",
       false,
       {"1", "78", "100000"},
       [](Options of) { return absl::StrCat(of.max_connections); }},
      {"max-connection-age-ms",
       false,
       {"100", "5000", "86400000"},
       [](Options of) { return Milliseconds(of.max_connection_age); }},
      {"max-searches",
       false,
       {"1", "9", "64"},
       [](Options of) { return absl::StrCat(of.max_searches); }},
      {"max-search-seconds",
       false,
       {"1", "60", "3600"},
       [](Options of) { return absl::StrCat(of.max_search_time.count() / 1000); }},
      {"max-kept-answer-mib",
       false,
       {"0", "3", "1024"},
       [](Options of) { return absl::StrCat(of.max_kept_answer_bytes / (1024 * 1024)); }},
      {"slow-request-ms",
       false,
       {"0", "250", "86400000"},
       [](Options of) { return Milliseconds(of.slow_request); }},
      {"drain-delay-ms",
       false,
       {"0", "251", "86400000"},
       [](Options of) { return Milliseconds(of.drain_delay); }},
      {"drain-timeout-ms",
       false,
       {"0", "252", "86400000"},
       [](Options of) { return Milliseconds(of.drain_timeout); }},
      {"log-level",
       true,
       {"debug", "warning", "off"},
       [](Options of) { return Level(of.log_level); }},
      {"calibration",
       true,
       {"a.yaml", "b c.yaml", "/d"},
       [](Options of) { return of.calibration; }},
      {"speed", true, {"e.yaml", "f g.yaml", "/h"}, [](Options of) { return of.speed; }},
      {"admission-policy",
       true,
       {"i.yaml", "j k.yaml", "/l"},
       [](Options of) { return of.admission_policy; }},
      {"access-policy",
       true,
       {"m.yaml", "n o.yaml", "/p"},
       [](Options of) { return of.access_policy; }},
      {"reflection",
       false,
       {"false", "true", "false"},
       [](Options of) { return Truth(of.reflection); }},
  };
  return *kSettings;
}

std::string VariableOf(const std::string& name) {
  return absl::StrCat("PLIMSOLL_", absl::AsciiStrToUpper(absl::StrReplaceAll(name, {{"-", "_"}})));
}

std::string FlagOf(const Setting& setting, const std::string& value) {
  return absl::StrCat("--", setting.name, "=", value);
}

std::string LineOf(const Setting& setting, const std::string& value) {
  const char* const quote = setting.is_text ? "\"" : "";
  return absl::StrCat(setting.name, " = ", quote, value, quote, "\n");
}

// Settings of the environment while it lives.
class Environment {
 public:
  void Set(const std::string& name, const std::string& value) {
    names_.insert(VariableOf(name));
    setenv(VariableOf(name).c_str(), value.c_str(), 1);
  }
  Environment() = default;
  ~Environment() {
    for (const std::string& name : names_) unsetenv(name.c_str());
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::set<std::string> names_;
};

// Reads a command line, or says what is wrong with it.
std::optional<ServerOptions> Read(std::vector<std::string> words, std::string* wrong = nullptr) {
  CLI::App app;
  ServerFlags flags(&app);
  std::reverse(words.begin(), words.end());  // as CLI11 takes them
  try {
    app.parse(words);
    return flags.Read();
  } catch (const CLI::ParseError& error) {
    if (wrong != nullptr) *wrong = error.what();
    return std::nullopt;
  }
}

std::string ReadOne(const Setting& setting, const std::vector<std::string>& words) {
  std::string wrong;
  const std::optional<ServerOptions> options = Read(words, &wrong);
  return options.has_value() ? setting.read(*options) : absl::StrCat("refused: ", wrong);
}

TEST(ServerFlagsTest, EachSettingIsAFlagAVariableAndALine) {
  for (const Setting& setting : Settings()) {
    for (const std::string value : setting.values) {
      EXPECT_EQ(ReadOne(setting, {FlagOf(setting, value)}), value) << setting.name;
      const std::string config = WriteTestFile("config", LineOf(setting, value));
      EXPECT_EQ(ReadOne(setting, {"--config", config}), value) << setting.name;
      Environment environment;
      environment.Set(setting.name, value);
      EXPECT_EQ(ReadOne(setting, {}), value) << setting.name;
    }
  }
}

// Any settings by any of the three, some by several: a flag goes before a variable, and that before
// a line of a file.
TEST(ServerFlagsTest, FlagsGoBeforeVariablesAndThoseBeforeTheFile) {
  std::mt19937_64 random(81);
  const std::optional<ServerOptions> defaults = Read({});
  ASSERT_TRUE(defaults.has_value());
  for (int i = 0; i < 100; ++i) {
    Environment environment;
    std::string config;
    std::vector<std::string> words, expected;
    for (const Setting& setting : Settings()) {
      const uint64_t ways = random() % 8;
      std::string wins = setting.read(*defaults);
      if ((ways & 1) != 0) {
        wins = setting.values[0];
        config += LineOf(setting, wins);
      }
      if ((ways & 2) != 0) {
        wins = setting.values[1];
        environment.Set(setting.name, wins);
      }
      if ((ways & 4) != 0) {
        wins = setting.values[2];
        words.push_back(FlagOf(setting, wins));
      }
      expected.push_back(absl::StrCat(setting.name, "=", wins));
    }
    const std::string file = WriteTestFile("config", config);
    if (i % 2 == 0) environment.Set("config", file);
    if (i % 2 != 0) words.insert(words.end(), {"--config", file});
    std::string wrong;
    const std::optional<ServerOptions> options = Read(words, &wrong);
    ASSERT_TRUE(options.has_value()) << wrong;
    std::vector<std::string> read;
    for (const Setting& setting : Settings()) {
      read.push_back(absl::StrCat(setting.name, "=", setting.read(*options)));
    }
    EXPECT_EQ(read, expected);
  }
}

// What a flag may not be, a variable and a file may not say either.
TEST(ServerFlagsTest, RangesHoldByWhicheverItComes) {
  const struct {
    const char* name;
    std::vector<const char*> bad;
  } kCases[] = {
      {"listen", {"localhost", "50051", "127.0.0.1:65536", "::1:3"}},
      {"http-listen", {"localhost", "127.0.0.1:x", "unix:"}},
      {"max-in-flight", {"0", "1000001", "-1", "many", "1.5"}},
      {"max-connections", {"0", "100001"}},
      {"max-connection-age-ms", {"99", "86400001"}},
      {"max-searches", {"0", "65"}},
      {"max-search-seconds", {"0", "3601"}},
      {"max-kept-answer-mib", {"-1", "1025"}},
      {"slow-request-ms", {"-1", "86400001"}},
      {"drain-delay-ms", {"-1", "86400001"}},
      {"drain-timeout-ms", {"-1", "86400001"}},
      {"log-level", {"loud", "INFO"}},
  };
  for (const auto& [name, bad] : kCases) {
    const auto setting = std::find_if(
        Settings().begin(), Settings().end(),
        [wanted = name](const auto& one) { return absl::string_view(one.name) == wanted; });
    ASSERT_NE(setting, Settings().end());
    for (const std::string value : bad) {
      EXPECT_THAT(ReadOne(*setting, {FlagOf(*setting, value)}), HasSubstr("refused: "))
          << name << " " << value;
      const std::string config = WriteTestFile("config", LineOf(*setting, value));
      EXPECT_THAT(ReadOne(*setting, {"--config", config}), HasSubstr("refused: "))
          << name << " " << value;
      Environment environment;
      environment.Set(name, value);
      EXPECT_THAT(ReadOne(*setting, {}), HasSubstr("refused: ")) << name << " " << value;
    }
  }
}

TEST(ServerFlagsTest, AddressesAreSeveralOrNone) {
  const struct {
    const char* said;
    std::vector<std::string> read;
  } kCases[] = {
      {"none", {}},
      {"127.0.0.1:1,unix:/a", {"127.0.0.1:1", "unix:/a"}},
      {"none,127.0.0.1:1", {"127.0.0.1:1"}},
      {"[::]:1,0.0.0.0:1,unix:/b", {"[::]:1", "0.0.0.0:1", "unix:/b"}},
  };
  for (const auto& [said, read] : kCases) {
    const std::optional<ServerOptions> options =
        Read({absl::StrCat("--listen=", said), absl::StrCat("--http-listen=", said)});
    ASSERT_TRUE(options.has_value()) << said;
    EXPECT_EQ(options->listen, read) << said;
    EXPECT_EQ(options->http_listen, read) << said;
  }
  const std::string config = WriteTestFile("config", "listen = [\"unix:/a\", \"unix:/b\"]\n");
  EXPECT_THAT(Read({"--config", config})->listen, ElementsAre("unix:/a", "unix:/b"));
}

// Flags that stand for each other's half, or against each other.
TEST(ServerFlagsTest, SomeNeedOrExcludeOthers) {
  const std::pair<std::vector<std::string>, bool> cases[] = {
      {{"--tls-certificate", "a", "--tls-key", "b"}, true},
      {{"--tls-certificate", "a", "--tls-key", "b", "--tls-client-ca", "c"}, true},
      {{"--tls-certificate", "a"}, false},
      {{"--tls-key", "b"}, false},
      {{"--tls-client-ca", "c"}, false},
      {{"--access-policy", "a", "--accept-reports"}, false},
      {{"--accept-reports"}, true},
      {{"--access-policy", "a"}, true},
  };
  for (const auto& [words, good] : cases) {
    EXPECT_EQ(Read(words).has_value(), good) << absl::StrJoin(words, " ");
  }
  const std::optional<ServerOptions> tls = Read(cases[1].first);
  EXPECT_EQ(tls->tls.certificate, "a");
  EXPECT_EQ(tls->tls.key, "b");
  EXPECT_EQ(tls->tls.client_ca, "c");
  EXPECT_TRUE(Read({"--accept-reports"})->accept_reports);
  EXPECT_FALSE(Read({})->accept_reports);
  EXPECT_FALSE(Read({"--no-reflection"})->reflection);
  EXPECT_TRUE(Read({"--reflection"})->reflection);
}

TEST(ServerFlagsTest, AFileSaysNothingElse) {
  const char* const kBad[] = {
      "no-such-setting = 1\n",
      "config = \"other\"\n",          // a file names no other
      "help = true\n",                 // no setting
      "[server]\nmax-searches = 3\n",  // settings are in no section
      "max_searches = 3\n",
  };
  for (const char* const text : kBad) {
    std::string wrong;
    EXPECT_FALSE(Read({"--config", WriteTestFile("config", text)}, &wrong).has_value()) << text;
    EXPECT_NE(wrong, "") << text;
  }
  EXPECT_TRUE(Read({"--config", WriteTestFile("config", "# nothing\n")}).has_value());
  EXPECT_FALSE(Read({"--config", TestPath("nowhere")}).has_value());
}

// Each flag has a variable of its name, so that containers can be told anything.
TEST(ServerFlagsTest, EachFlagHasItsVariableAndItsWords) {
  CLI::App app;
  const ServerFlags flags(&app);
  std::set<std::string> known;
  for (const Setting& setting : Settings()) known.insert(setting.name);
  for (const CLI::Option* const option : app.get_options()) {
    const std::string name = option->get_lnames().at(0);
    if (name == "help") continue;
    EXPECT_EQ(option->get_envname(), VariableOf(name));
    EXPECT_NE(option->get_description(), "") << name;
    known.erase(name);
  }
  EXPECT_THAT(known, IsEmpty());
}

}  // namespace
}  // namespace plimsoll
