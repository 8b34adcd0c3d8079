// Random runs: written as the hook writes them and read again, with each field broken in turn; and
// shown as a table, as JSON and as a job, each read back and held against the run.
#include "client/measure/measurement.h"

#include <gmock/gmock.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/measure/measure_answer.h"
#include "client/measure/profiled_job.h"

namespace plimsoll {
namespace {

using Random = std::mt19937_64;
using google::protobuf::Struct;
using google::protobuf::Value;
using testing::HasSubstr;
using testing::Not;

constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
constexpr const char* kPhases[] = {"forward", "backward", "gradient_reduction", "optimizer"};
const MeasuredGpu kGpu = {
    .id = "h100-80gb-sxm", .usable_bytes = 85020639232, .context_bytes = 805306368};

int64_t AnyNumber(Random& random, int64_t most) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(most));
}

Peaks AnyPeaks(Random& random, int64_t step) {
  const int64_t allocated = AnyNumber(random, int64_t{60} << 30);
  return {.step = step,
          .allocated_bytes = allocated,
          .requested_bytes = allocated - AnyNumber(random, allocated / 8 + 1),
          .reserved_bytes = allocated + AnyNumber(random, int64_t{8} << 30)};
}

PhasePeaks AnyPhases(Random& random) {
  PhasePeaks phases;
  for (const char* const phase : kPhases) {
    if (random() % 4 != 0) phases[phase] = AnyPeaks(random, 0);
  }
  return phases;
}

RunProfile AnyProfile(Random& random) {
  RunProfile profile;
  profile.framework = random() % 2 == 0 ? "fsdp2" : "ddp";
  profile.ranks_per_node = AnyNumber(random, 9);
  profile.weight_bytes = AnyNumber(random, int64_t{1} << 36);
  profile.optimizer_state_bytes = AnyNumber(random, int64_t{1} << 37);
  profile.activation_bytes = AnyNumber(random, int64_t{1} << 35);
  profile.first_step = AnyPhases(random);
  profile.steady_step = AnyPhases(random);
  for (const char* const dtype : {"fp32", "bf16", "uint8"}) {
    if (random() % 2 == 0) continue;
    profile.parameter_counts[dtype] = 1 + AnyNumber(random, int64_t{1} << 40);
    profile.shard_parameter_counts[dtype] = 1 + AnyNumber(random, int64_t{1} << 34);
  }
  for (uint64_t left = random() % 4; left > 0; --left) {
    profile.communicators.emplace_back(1 + AnyNumber(random, 64), AnyNumber(random, 64));
  }
  return profile;
}

// Names of lines are the user's, whatever they hold.
std::string AnyLine(Random& random) {
  const char* const kLines[] = {"train.py:12", "a \"quoted\" \\ name.py:1", "schön/测试.py:7",
                                "{\"json\": [1]}", "tab\there.py:3"};
  return kLines[random() % std::size(kLines)];
}

Measurement AnyMeasurement(Random& random) {
  Measurement run;
  run.torch = "2.15.0+cu132";
  run.rank = AnyNumber(random, 16);
  run.rank_count = 16;
  run.step_count = AnyNumber(random, 40);
  run.whole = AnyPeaks(random, 0);
  run.retry_count = AnyNumber(random, 3);
  run.alive_step = AnyNumber(random, 3);
  const int64_t shown = std::min<int64_t>(run.step_count, 4);
  for (int64_t step = 1; step < shown; ++step) run.steps.push_back(AnyPeaks(random, step));
  if (shown > 0) run.steps.push_back(AnyPeaks(random, run.step_count));
  for (uint64_t left = random() % 20; left > 0; --left) {
    run.alive.push_back({.bytes = 1 + AnyNumber(random, int64_t{4} << 30),
                         .count = 1 + AnyNumber(random, 500),
                         .line = AnyLine(random),
                         .within = random() % 2 == 0 ? "" : AnyLine(random)});
    run.alive_bytes += run.alive.back().bytes;
  }
  run.alive_bytes += AnyNumber(random, int64_t{4} << 30);  // of those that are not listed
  if (random() % 3 == 0) {
    run.out_of_memory = {.step = AnyNumber(random, 3),
                         .requested_bytes = AnyNumber(random, int64_t{1} << 32),
                         .allocated_bytes = AnyNumber(random, int64_t{1} << 36),
                         .reserved_bytes = AnyNumber(random, int64_t{1} << 36)};
  }
  if (random() % 3 != 0) run.profile = AnyProfile(random);
  return run;
}

// A run as the hook's Python writes it, but for one field that may be missing or of another kind.
class HookFile {
 public:
  enum class Fault { kNone, kMissing, kWrong };

  HookFile(const Measurement& run, int broken, Fault fault)
      : broken_(broken), fault_(fault), text_(Run(run)) {}

  const std::string& text() const { return text_; }
  const std::string& broken_name() const { return broken_name_; }
  // Whether there was a field of that number.
  bool is_broken() const { return !broken_name_.empty(); }

 private:
  std::string Field(const std::string& name, const std::string& value) {
    if (next_++ != broken_) return absl::StrCat(",\"", name, "\": ", value);
    broken_name_ = name;
    // No field of a run is true or false.
    return fault_ == Fault::kMissing ? "" : absl::StrCat(",\"", name, "\": true");
  }
  // Fields are written with a comma before each; a first one takes the first comma.
  static std::string Object(const std::string& fields) {
    return absl::StrCat("{\"other\": null", fields, "}");
  }
  std::string Number(const std::string& name, int64_t value) {
    return Field(name, absl::StrCat(value));
  }
  std::string Text(const std::string& name, const std::string& value) {
    Value text;
    text.set_string_value(value);
    std::string json;
    EXPECT_TRUE(google::protobuf::util::MessageToJsonString(text, &json).ok());
    return Field(name, json);
  }
  template <typename List, typename Write>
  std::string ListOf(const std::string& name, const List& list, const Write& write) {
    std::vector<std::string> items;
    for (const auto& item : list) items.push_back(write(item));
    return Field(name, absl::StrCat("[", absl::StrJoin(items, ", "), "]"));
  }

  std::string PeaksOf(const Peaks& peaks) {
    return absl::StrCat(Number("allocated", peaks.allocated_bytes),
                        Number("requested", peaks.requested_bytes),
                        Number("reserved", peaks.reserved_bytes));
  }
  std::string Counts(const std::string& name, const std::map<std::string, int64_t>& counts) {
    std::vector<std::string> items;
    for (const auto& [dtype, count] : counts) {
      items.push_back(absl::StrCat("\"", dtype, "\": ", count));
    }
    return Field(name, absl::StrCat("{", absl::StrJoin(items, ", "), "}"));
  }
  std::string Phases(const std::string& name, const PhasePeaks& phases) {
    std::vector<std::string> items;
    for (const auto& [phase, peaks] : phases) {
      items.push_back(absl::StrCat("\"", phase, "\": ", Object(PeaksOf(peaks))));
    }
    return Field(name, absl::StrCat("{", absl::StrJoin(items, ", "), "}"));
  }
  std::string Alive(const Measurement& run) {
    return absl::StrCat(
        Number("step", run.alive_step), Number("requested_bytes", run.alive_bytes),
        ListOf("groups", run.alive, [&](const AliveGroup& group) {
          return Object(absl::StrCat(Number("bytes", group.bytes), Number("count", group.count),
                                     Text("line", group.line), Text("within", group.within)));
        }));
  }
  std::string Failed(const OutOfMemory& failed) {
    return absl::StrCat(Number("step", failed.step),
                        Number("requested_bytes", failed.requested_bytes),
                        Number("allocated_bytes", failed.allocated_bytes),
                        Number("reserved_bytes", failed.reserved_bytes));
  }
  std::string Profile(const RunProfile& profile) {
    return absl::StrCat(
        Text("framework", profile.framework),
        ListOf(
            "communicators", profile.communicators,
            [](const auto& pair) { return absl::StrCat("[", pair.first, ", ", pair.second, "]"); }),
        Number("ranks_per_node", profile.ranks_per_node),
        Counts("parameter_counts", profile.parameter_counts),
        Counts("shard_parameter_counts", profile.shard_parameter_counts),
        Number("weight_bytes", profile.weight_bytes),
        Number("optimizer_state_bytes", profile.optimizer_state_bytes),
        Number("activation_bytes", profile.activation_bytes),
        Phases("first_step", profile.first_step), Phases("steady_step", profile.steady_step));
  }
  std::string Run(const Measurement& run) {
    std::string text = absl::StrCat(
        Text("torch", run.torch), Number("rank", run.rank), Number("ranks", run.rank_count),
        Number("step_count", run.step_count), Number("retry_count", run.retry_count));
    absl::StrAppend(&text, ListOf("steps", run.steps, [&](const Peaks& peaks) {
      return Object(absl::StrCat(PeaksOf(peaks), Number("step", peaks.step)));
    }));
    absl::StrAppend(&text, ",\"whole\": ", Object(PeaksOf(run.whole)));
    absl::StrAppend(&text, ",\"alive\": ", Object(Alive(run)), ",\"out_of_memory\": ",
                    run.out_of_memory.has_value() ? Object(Failed(*run.out_of_memory)) : "null");
    if (run.profile.has_value()) {
      absl::StrAppend(&text, ",\"profile\": ", Object(Profile(*run.profile)));
    }
    return Object(text);
  }

  const int broken_;
  const Fault fault_;
  int next_ = 0;
  std::string broken_name_;
  const std::string text_;  // the last: it is written with the others
};

// Everything that is known of a run, in words.
std::string Described(const Peaks& peaks) {
  return absl::StrCat(peaks.step, ":", peaks.allocated_bytes, "/", peaks.requested_bytes, "/",
                      peaks.reserved_bytes, " ");
}
std::string Described(const PhasePeaks& phases) {
  std::string text = "; ";
  for (const auto& [phase, peaks] : phases) absl::StrAppend(&text, phase, " ", Described(peaks));
  return text;
}
std::string Described(const std::map<std::string, int64_t>& counts) {
  return absl::StrCat("; ", absl::StrJoin(counts, ",", absl::PairFormatter("=")));
}
std::string Described(const Measurement& run) {
  std::string text = absl::StrCat(run.torch, " ", run.rank, "/", run.rank_count, " ",
                                  run.step_count, " ", run.retry_count, " ", Described(run.whole));
  for (const Peaks& peaks : run.steps) absl::StrAppend(&text, Described(peaks));
  absl::StrAppend(&text, run.alive_step, " ", run.alive_bytes);
  for (const AliveGroup& group : run.alive) {
    absl::StrAppend(&text, "\n", group.count, "x", group.bytes, " ", group.line, "|", group.within);
  }
  if (const auto& failed = run.out_of_memory) {
    absl::StrAppend(&text, "\nfailed ", failed->step, " ", failed->requested_bytes, " ",
                    failed->allocated_bytes, " ", failed->reserved_bytes);
  }
  if (!run.profile.has_value()) return text;
  const RunProfile& profile = *run.profile;
  absl::StrAppend(&text, "\n", profile.framework, " ", profile.ranks_per_node, " ",
                  absl::StrJoin(profile.communicators, ",", absl::PairFormatter("x")),
                  Described(profile.parameter_counts), Described(profile.shard_parameter_counts));
  return absl::StrCat(text, " ", profile.weight_bytes, " ", profile.optimizer_state_bytes, " ",
                      profile.activation_bytes, Described(profile.first_step),
                      Described(profile.steady_step));
}

TEST(MeasurementRandomTest, AHooksFileReadsBack) {
  Random random(61);
  for (int i = 0; i < 200; ++i) {
    const Measurement run = AnyMeasurement(random);
    const HookFile file(run, -1, HookFile::Fault::kNone);
    const absl::StatusOr<Measurement> read = ReadMeasurement(file.text());
    ASSERT_TRUE(read.ok()) << read.status() << "\n" << file.text();
    EXPECT_EQ(Described(*read), Described(run));
    EXPECT_EQ(read->refused, "");
  }
}

// Whichever field is missing or no field of its kind, its name is what is said.
TEST(MeasurementRandomTest, EachFieldIsNeededAndIsOfItsKind) {
  Random random(62);
  for (int i = 0; i < 3; ++i) {
    Measurement run = AnyMeasurement(random);
    if (i == 0) run.profile = AnyProfile(random);
    int field = 0;
    for (;; ++field) {
      const HookFile missing(run, field, HookFile::Fault::kMissing);
      if (!missing.is_broken()) break;
      const HookFile wrong(run, field, HookFile::Fault::kWrong);
      for (const HookFile* const file : {&missing, &wrong}) {
        EXPECT_EQ(ReadMeasurement(file->text()).status().message(),
                  absl::StrCat("the hook's result: ", file->broken_name(), ": missing or wrong"));
      }
    }
    EXPECT_GE(field, 15) << "fields of a run";
  }
}

TEST(MeasurementRandomTest, CommunicatorsArePairsOfWholeNumbers) {
  Random random(63);
  Measurement run = AnyMeasurement(random);
  run.profile = AnyProfile(random);
  run.profile->communicators = {{5, 77}};
  const std::string good = HookFile(run, -1, HookFile::Fault::kNone).text();
  ASSERT_THAT(good, HasSubstr("[5, 77]"));
  for (const char* const bad : {"[5]", "[5, 77, 1]", "[5, \"77\"]", "[5.5, 77]", "5", "null",
                                "[5, 18446744073709551615]"}) {
    std::string text = good;
    text.replace(text.find("[5, 77]"), 7, bad);
    EXPECT_EQ(ReadMeasurement(text).status().message(),
              "the hook's result: communicators: missing or wrong")
        << bad;
  }
}

// The lines below a heading, up to an empty one, in their columns: two blanks or more are between.
std::vector<std::vector<std::string>> RowsBelow(const std::string& table,
                                                const std::string& heading) {
  std::vector<std::vector<std::string>> rows;
  const size_t at = table.find(heading);
  if (at == std::string::npos) return rows;
  const size_t begin = table.find('\n', at) + 1;
  for (const auto& line :
       absl::StrSplit(table.substr(begin, table.find("\n\n", begin) - begin), '\n')) {
    std::vector<std::string> cells;
    for (const auto& cell : absl::StrSplit(line, "  ", absl::SkipWhitespace())) {
      cells.emplace_back(absl::StripAsciiWhitespace(cell));
    }
    rows.push_back(cells);
  }
  return rows;
}

void ExpectGib(const std::string& cell, int64_t bytes) {
  double gib = 0;
  ASSERT_TRUE(absl::SimpleAtod(cell, &gib)) << cell;
  EXPECT_NEAR(gib, static_cast<double>(bytes) / kGib, 0.00501) << cell;
}

void ExpectPeaksRow(const std::vector<std::string>& cells, const std::string& name,
                    const Peaks& peaks) {
  ASSERT_EQ(cells.size(), 5U);
  EXPECT_EQ(cells[0], name);
  ExpectGib(cells[1], peaks.allocated_bytes);
  ExpectGib(cells[2], peaks.requested_bytes);
  ExpectGib(cells[3], peaks.reserved_bytes);
  ExpectGib(cells[4], peaks.reserved_bytes + kGpu.context_bytes);
}

const Terminal kWide = {.width = 400, .unicode = true};

TEST(MeasureTableRandomTest, PeaksReadBack) {
  Random random(64);
  for (int i = 0; i < 100; ++i) {
    const Measurement run = AnyMeasurement(random);
    const auto rows = RowsBelow(ToTable({run, kGpu}, kWide), "Peaks, GiB");
    ASSERT_EQ(rows.size(), run.steps.size() + 1);
    for (size_t step = 0; step < run.steps.size(); ++step) {
      const int64_t number = run.steps[step].step;
      const char* const which = number == 1                ? ", with what comes before"
                                : number == run.step_count ? ", the last"
                                                           : "";
      ExpectPeaksRow(rows[step], absl::StrCat("step ", number, which), run.steps[step]);
    }
    ExpectPeaksRow(rows.back(), "the whole run", run.whole);
  }
}

// Twelve lines at most, and what is left is all that the others hold.
TEST(MeasureTableRandomTest, WhatIsAliveAddsUp) {
  Random random(65);
  for (int i = 0; i < 100; ++i) {
    const Measurement run = AnyMeasurement(random);
    auto rows = RowsBelow(ToTable({run, kGpu}, kWide), "blocks  made by");
    const size_t shown = std::min<size_t>(run.alive.size(), 12);
    int64_t left = run.alive_bytes;
    for (size_t line = 0; line < shown; ++line) left -= run.alive[line].bytes;
    if (rows.size() == 1 && rows[0].empty()) rows.clear();
    ASSERT_EQ(rows.size(), shown + (left > 0 ? 1 : 0));
    for (size_t line = 0; line < shown; ++line) {
      ExpectGib(rows[line].at(0), run.alive[line].bytes);
      EXPECT_EQ(rows[line].at(1), absl::StrCat(run.alive[line].count));
    }
    if (left == 0) continue;
    ExpectGib(rows.back().at(0), left);
    EXPECT_EQ(rows.back().at(1), "others");
  }
}

// A phase that was not seen has no figures, in the first step or later.
TEST(MeasureTableRandomTest, PhasesReadBack) {
  Random random(66);
  for (int i = 0; i < 100; ++i) {
    Measurement run = AnyMeasurement(random);
    run.profile = AnyProfile(random);
    const auto rows = RowsBelow(ToTable({run, kGpu}, kWide), "By phase, GiB");
    ASSERT_GE(rows.size(), std::size(kPhases));
    for (size_t phase = 0; phase < std::size(kPhases); ++phase) {
      std::vector<int64_t> expected;
      for (const PhasePeaks* const step : {&run.profile->first_step, &run.profile->steady_step}) {
        if (step->count(kPhases[phase]) == 0) continue;
        expected.push_back(step->at(kPhases[phase]).allocated_bytes);
        expected.push_back(step->at(kPhases[phase]).reserved_bytes);
      }
      EXPECT_EQ(rows[phase].at(0), phase == 2 ? "clipping" : kPhases[phase]);
      ASSERT_EQ(rows[phase].size(), expected.size() + 1);
      for (size_t cell = 0; cell < expected.size(); ++cell) {
        ExpectGib(rows[phase][cell + 1], expected[cell]);
      }
    }
  }
}

// Each note stands where its reason is, and nowhere else.
TEST(MeasureTableRandomTest, NotesHaveTheirReasons) {
  Random random(67);
  for (int i = 0; i < 200; ++i) {
    const Measurement run = AnyMeasurement(random);
    const bool failed = run.out_of_memory.has_value();
    const std::pair<const char*, bool> notes[] = {
        {"No step of an optimizer was seen", run.step_count == 0},
        {" steps ran; the first ones and the last are shown", run.step_count > 4},
        {"The allocator gave back its cache", run.retry_count > 0 && !failed},
        {"to get memory, 2 times:", run.retry_count == 2 && !failed},
        {"Alive when memory ran out in ", failed},
        {"Alive at the peak of ", !failed},
        {"out of memory in ", failed},
        {"By phase, GiB", run.profile.has_value()},
        {" the run, as requested", run.alive_step == 0},
        {" context takes is not known", false},
        {"Not known to a phantom: ", true}};
    const std::string table = ToTable({run, kGpu}, kWide);
    for (const auto& [note, stands] : notes) {
      EXPECT_EQ(table.find(note) != std::string::npos, stands) << note << "\n" << table;
    }
    EXPECT_EQ(table.substr(0, table.find("  ")), failed ? "DOES NOT FIT" : "FITS");
  }
}

Struct ReadJson(const MeasureAnswer& answer) {
  Struct json;
  EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(ToJson(answer), &json).ok());
  return json;
}

// 64-bit numbers are strings, as ProtoJSON has them.
int64_t NumberOf(const Struct& json, const std::string& key) {
  int64_t number = -1;
  EXPECT_TRUE(absl::SimpleAtoi(json.fields().at(key).string_value(), &number)) << key;
  return number;
}
const Struct& ObjectOf(const Struct& json, const std::string& key) {
  return json.fields().at(key).struct_value();
}

Peaks ReadPeaks(const Struct& json) {
  const Peaks peaks = {.step = json.fields().count("step") > 0 ? NumberOf(json, "step") : 0,
                       .allocated_bytes = NumberOf(json, "allocatedBytes"),
                       .requested_bytes = NumberOf(json, "requestedBytes"),
                       .reserved_bytes = NumberOf(json, "reservedBytes")};
  EXPECT_EQ(NumberOf(json, "deviceBytes"), peaks.reserved_bytes + kGpu.context_bytes);
  return peaks;
}

PhasePeaks ReadPhases(const Struct& json) {
  PhasePeaks phases;
  for (const auto& [phase, peaks] : json.fields()) {
    phases[phase == "gradientReduction" ? "gradient_reduction" : phase] =
        ReadPeaks(peaks.struct_value());
  }
  return phases;
}

std::map<std::string, int64_t> ReadCounts(const Struct& json) {
  std::map<std::string, int64_t> counts;
  for (const auto& [dtype, count] : json.fields()) counts[dtype] = NumberOf(json, dtype);
  return counts;
}

// What a JSON answer says of the run.
Measurement ReadRun(const Struct& json) {
  Measurement run;
  run.torch = json.fields().at("torch").string_value();
  run.rank = NumberOf(json, "rank");
  run.rank_count = NumberOf(json, "rankCount");
  run.step_count = NumberOf(json, "stepCount");
  run.whole = ReadPeaks(ObjectOf(json, "wholeRun"));
  run.retry_count = NumberOf(json, "retryCount");
  run.alive_step = NumberOf(json, "aliveStep");
  run.alive_bytes = NumberOf(json, "aliveBytes");
  for (const Value& step : json.fields().at("steps").list_value().values()) {
    run.steps.push_back(ReadPeaks(step.struct_value()));
  }
  for (const Value& group : json.fields().at("alive").list_value().values()) {
    const Struct& of = group.struct_value();
    run.alive.push_back({.bytes = NumberOf(of, "bytes"),
                         .count = NumberOf(of, "count"),
                         .line = of.fields().at("line").string_value(),
                         .within = of.fields().at("within").string_value()});
  }
  if (json.fields().count("outOfMemory") > 0) {
    const Struct& failed = ObjectOf(json, "outOfMemory");
    run.out_of_memory = {.step = NumberOf(failed, "step"),
                         .requested_bytes = NumberOf(failed, "requestedBytes"),
                         .allocated_bytes = NumberOf(failed, "allocatedBytes"),
                         .reserved_bytes = NumberOf(failed, "reservedBytes")};
  }
  if (json.fields().count("framework") == 0) return run;
  RunProfile& profile = run.profile.emplace();
  profile.framework = json.fields().at("framework").string_value();
  profile.parameter_counts = ReadCounts(ObjectOf(json, "parameterCounts"));
  profile.shard_parameter_counts = ReadCounts(ObjectOf(json, "shardParameterCounts"));
  profile.weight_bytes = NumberOf(json, "weightBytes");
  profile.optimizer_state_bytes = NumberOf(json, "optimizerStateBytes");
  profile.activation_bytes = NumberOf(json, "activationBytes");
  profile.first_step = ReadPhases(ObjectOf(json, "firstStepPhases"));
  profile.steady_step = ReadPhases(ObjectOf(json, "steadyStepPhases"));
  return run;
}

TEST(MeasureJsonRandomTest, ReadsBack) {
  Random random(68);
  for (int i = 0; i < 200; ++i) {
    Measurement run = AnyMeasurement(random);
    const Struct json = ReadJson({run, kGpu});
    if (run.profile.has_value()) {  // of these the job alone says
      run.profile->communicators.clear();
      run.profile->ranks_per_node = 0;
    }
    EXPECT_EQ(Described(ReadRun(json)), Described(run));
    EXPECT_EQ(json.fields().at("gpu").string_value(), kGpu.id);
    EXPECT_EQ(NumberOf(json, "usableBytes"), kGpu.usable_bytes);
    EXPECT_EQ(json.fields().at("verdict").string_value(),
              run.out_of_memory.has_value() ? "VERDICT_DOES_NOT_FIT" : "VERDICT_FITS");
    EXPECT_EQ(json.fields().count("firstStep"), run.steps.empty() ? 0U : 1U);
    if (run.steps.empty()) continue;
    EXPECT_EQ(Described(ReadPeaks(ObjectOf(json, "firstStep"))), Described(run.steps.front()));
    EXPECT_EQ(Described(ReadPeaks(ObjectOf(json, "lastStep"))), Described(run.steps.back()));
  }
}

// A run of two steps or more, to its end, is a job, of which it says what it held.
TEST(ProfiledJobRandomTest, SaysWhatTheRunHeld) {
  Random random(69);
  int jobs = 0;
  for (int i = 0; i < 200; ++i) {
    const Measurement run = AnyMeasurement(random);
    const absl::StatusOr<v1::Job> job = ToProfiledJob(run, kGpu);
    const bool can = run.step_count >= 2 && run.profile.has_value() && !run.out_of_memory;
    ASSERT_EQ(job.ok(), can) << job.status();
    if (!can) continue;
    ++jobs;
    const v1::Profiled& said = job->model().profiled();
    const RunProfile& held = *run.profile;
    EXPECT_EQ(said.measured_rank(), run.rank);
    EXPECT_EQ(said.communicator_size_size(), static_cast<int>(held.communicators.size()));
    for (int at = 0; at < said.communicator_size_size(); ++at) {
      EXPECT_EQ(std::pair(said.communicator_size(at), said.communicator_stride(at)),
                held.communicators[static_cast<size_t>(at)]);
    }
    EXPECT_EQ(std::map(said.parameter_counts().begin(), said.parameter_counts().end()),
              (std::map<std::string, int64_t>(held.parameter_counts)));
    EXPECT_EQ(said.activation_bytes(), held.activation_bytes);
    EXPECT_EQ(job->cluster().has_gpus_per_node(), held.ranks_per_node > 0);
    const auto& backward = held.steady_step.find("backward");
    ASSERT_EQ(said.steady_step().has_backward(), backward != held.steady_step.end());
    if (!said.steady_step().has_backward()) continue;
    EXPECT_EQ(said.steady_step().backward().reserved_bytes(), backward->second.reserved_bytes);
    EXPECT_EQ(said.steady_step().backward().allocated_bytes(), backward->second.allocated_bytes);
  }
  EXPECT_GT(jobs, 50);
}

}  // namespace
}  // namespace plimsoll
