// Pictures and pages of random steps, parsed as XML and measured: areas, lines and figures are read
// back from their coordinates and words, and held against the step that was drawn.
#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/draw/timeline_html.h"
#include "client/draw/timeline_svg.h"
#include "client/io/text.h"
#include "client/show/role_style.h"

namespace plimsoll {
namespace {

using Random = std::mt19937_64;
using testing::ElementsAre;

// An element: what stands in its start, and between that and its end.
struct Xml {
  std::string name;
  std::map<std::string, std::string> attributes;
  std::string text;  // of its own, with what is escaped as it was
  std::vector<Xml> children;

  std::string at(const std::string& attribute) const {
    const auto found = attributes.find(attribute);
    return found == attributes.end() ? "" : found->second;
  }
  double number(const std::string& attribute) const {
    double value = 0;
    EXPECT_TRUE(absl::SimpleAtod(at(attribute), &value)) << name << " " << attribute;
    return value;
  }
};

// Reads what XmlWriter writes, and refuses what is not well formed. Elements of a page that HTML
// leaves open are closed here too, but for scripts and styles, whose text is their own.
class XmlReader {
 public:
  explicit XmlReader(const std::string& text) : text_(text) {}

  Xml Read() {
    if (absl::StartsWith(text_, "<!")) at_ = text_.find('\n') + 1;
    Xml root = Element();
    EXPECT_EQ(absl::StripAsciiWhitespace(text_.substr(at_)), "") << "behind the root";
    return root;
  }

 private:
  static std::string Plain(absl::string_view text) {
    return absl::StrReplaceAll(
        text, {{"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&#39;", "'"}, {"&amp;", "&"}});
  }

  std::string Until(const std::string& end) {
    const size_t found = text_.find(end, at_);
    EXPECT_NE(found, std::string::npos) << end;
    const std::string before = text_.substr(at_, found - at_);
    at_ = found + end.size();
    return before;
  }

  Xml Element() {
    EXPECT_EQ(text_[at_], '<');
    ++at_;
    std::string start = Until(">");
    const bool is_empty = absl::EndsWith(start, "/");
    if (is_empty) start.pop_back();
    Xml element = Start(start);
    if (is_empty) return element;
    if (element.name == "script" || element.name == "style") {
      element.text = Until(absl::StrCat("</", element.name, ">"));
      return element;
    }
    Content(&element);
    return element;
  }

  static Xml Start(const std::string& start) {
    Xml element;
    const size_t end = start.find(' ');
    element.name = start.substr(0, end);
    for (size_t at = end; at < start.size();) {
      const size_t equals = start.find("=\"", at);
      const size_t quote = start.find('"', equals + 2);
      const std::string name = start.substr(at + 1, equals - at - 1);
      const std::string value = start.substr(equals + 2, quote - equals - 2);
      EXPECT_TRUE(element.attributes.emplace(name, Plain(value)).second) << name << " twice";
      at = quote + 1;
    }
    return element;
  }

  void Content(Xml* element) {
    for (;;) {
      const size_t next = text_.find('<', at_);
      ASSERT_NE(next, std::string::npos) << element->name << " does not end";
      element->text += Plain(text_.substr(at_, next - at_));
      at_ = next;
      if (text_.compare(at_, 2, "</") != 0) {
        element->children.push_back(Element());
        continue;
      }
      at_ += 2;
      EXPECT_EQ(Until(">"), element->name) << "ends what began last";
      return;
    }
  }

  const std::string& text_;
  size_t at_ = 0;
};

// All elements of a name and class, in the order of the file.
void Collect(const Xml& from, const std::string& name, const std::string& of_class,
             std::vector<const Xml*>* to) {
  if (from.name == name && (of_class.empty() || from.at("class") == of_class)) to->push_back(&from);
  for (const Xml& child : from.children) Collect(child, name, of_class, to);
}
std::vector<const Xml*> All(const Xml& from, const std::string& name,
                            const std::string& of_class = "") {
  std::vector<const Xml*> found;
  Collect(from, name, of_class, &found);
  return found;
}

const v1::Role kRoles[] = {v1::ROLE_LOSS, v1::ROLE_WEIGHT, v1::ROLE_ACTIVATION,
                           v1::ROLE_OPTIMIZER_STATE};
// The roles from the axis up: states of the training first, what comes and goes last.
const char* const kFromBelow[] = {"optimizer states", "weights", "activations", "loss"};

std::string AnyName(Random& random) {
  const char* const kNames[] = {"mlp.up", "<b>&\"'</b>", "</script>", "größe", "a & b"};
  return kNames[random() % std::size(kNames)];
}

void AddPhases(Random& random, v1::Timeline* timeline) {
  int64_t event = 0;
  const auto add = [&](v1::Phase phase) {
    v1::TimelinePhase* const added = timeline->add_phases();
    added->set_phase(phase);
    added->set_begin_event(event);
    event += 1 + static_cast<int64_t>(random() % 30);
    added->set_end_event(event);
  };
  for (uint64_t left = 1 + random() % 3; left > 0; --left) {
    for (const v1::Phase phase : {v1::PHASE_FORWARD, v1::PHASE_LOSS, v1::PHASE_BACKWARD}) {
      add(phase);
    }
  }
  add(v1::PHASE_OPTIMIZER);
  add(v1::PHASE_END_OF_STEP);
}

// A point at each event but some, which change nothing.
void AddPoints(Random& random, v1::Timeline* timeline) {
  const int64_t end = timeline->phases().rbegin()->end_event();
  int64_t most = -1;
  for (int64_t event = 0; event < end; event += 1 + static_cast<int64_t>(random() % 3)) {
    v1::TimelinePoint* const point = timeline->add_points();
    point->set_event(event);
    point->set_phase(v1::PHASE_FORWARD);
    int64_t sum = 0;
    for (size_t role = 0; role < std::size(kRoles); ++role) {
      point->add_role_bytes(static_cast<int64_t>(random() % 4 * (random() >> 32)));
      sum += point->role_bytes(static_cast<int>(role));
    }
    point->set_allocated_bytes(sum);
    point->set_reserved_bytes(sum + static_cast<int64_t>(random() >> 34));
    if (sum > most) timeline->set_peak_point(timeline->points_size() - 1);
    most = std::max(most, sum);
  }
}

v1::EstimateMemoryResponse AnyStep(Random& random) {
  const v1::Verdict kVerdicts[] = {v1::VERDICT_FITS, v1::VERDICT_AT_RISK, v1::VERDICT_DOES_NOT_FIT};
  v1::EstimateMemoryResponse response;
  response.set_verdict(kVerdicts[random() % 3]);
  response.set_usable_bytes(int64_t{80} << 30);
  response.add_ranks()->set_gpu_count(8);
  v1::Timeline* const timeline = response.mutable_timeline();
  timeline->set_capacity_bytes(int64_t{1} << (30 + random() % 8));
  timeline->set_completed(random() % 2 == 0);
  for (const v1::Role role : kRoles) timeline->add_roles(role);
  AddPhases(random, timeline);
  AddPoints(random, timeline);
  for (uint64_t left = random() % 6; left > 0; --left) {
    v1::PeakStorage* const storage = timeline->add_largest();
    storage->set_name(AnyName(random));
    storage->set_role(kRoles[random() % std::size(kRoles)]);
    storage->set_bytes(1 + static_cast<int64_t>(random() >> 34));
    storage->set_count(1 + static_cast<int64_t>(random() % 100));
    storage->set_layers(random() % 2 == 0 ? "0-31" : "");
    storage->set_made("forward of " + AnyName(random));
  }
  return response;
}

v1::Job AnyJob(Random& random) {
  v1::Job job;
  job.mutable_model()->set_name(AnyName(random));
  job.mutable_cluster()->set_gpu("h100-80gb-sxm");
  return job;
}

Xml DrawnSvg(const v1::EstimateMemoryResponse& step, const v1::Job& job) {
  const std::string svg = TimelineSvg(step, job);
  return XmlReader(svg).Read();
}

// How high a path "M64 472V400H70.5V380...Z" is at x, as it comes to its right.
double HeightAt(const std::string& path, double x) {
  double height = -1, right = -1;
  for (size_t at = 1; at < path.size() && path[at] != 'Z';) {
    const size_t end = path.find_first_of("HVZ ", at);
    const double number = std::stod(path.substr(at, end - at));
    const char letter = path[at - 1];
    if (letter == 'V' || letter == ' ') {
      height = number;
    } else if (right = number; letter == 'H' && right > x) {
      return height;
    }
    if (end == std::string::npos) break;
    at = end + 1;
  }
  return height;
}

// The scale of a picture, from the figures of its grid: bytes at a height.
class ReadScale {
 public:
  explicit ReadScale(const Xml& svg) {
    const std::vector<const Xml*> lines = All(svg, "line", "grid");
    EXPECT_GE(lines.size(), 2U);
    zero_ = lines.front()->number("y1");
    top_ = lines.back()->number("y1");
    for (const Xml* const words : All(svg, "text", "faint")) {
      if (words->at("text-anchor") == "end" && words->number("y") == top_ + 4) {
        EXPECT_TRUE(absl::SimpleAtod(words->text, &top_gib_)) << words->text;
      }
    }
    EXPECT_GT(top_gib_, 0);
  }

  double Y(int64_t bytes) const {
    return zero_ - static_cast<double>(bytes) / (1 << 30) / top_gib_ * (zero_ - top_);
  }

 private:
  double zero_ = 0, top_ = 0, top_gib_ = 0;
};

constexpr double kRounded = 0.2;  // of a grid line and of the height itself

// Each area is as high, at each point, as its role and those below it hold there.
TEST(TimelineReadBackTest, AreasAreTheBytesOfTheirRoles) {
  Random random(71);
  for (int i = 0; i < 25; ++i) {
    const v1::EstimateMemoryResponse step = AnyStep(random);
    const v1::Timeline& timeline = step.timeline();
    const Xml svg = DrawnSvg(step, AnyJob(random));
    const ReadScale scale(svg);
    const std::vector<std::string> xs = absl::StrSplit(svg.at("data-x"), ' ');
    ASSERT_EQ(xs.size(), static_cast<size_t>(timeline.points_size()));
    const std::vector<const Xml*> areas = All(svg, "path", "area");
    ASSERT_EQ(areas.size(), std::size(kFromBelow));
    const int index_of[] = {3, 1, 2, 0};  // of the roles from below, among the step's
    for (int point = 0; point < timeline.points_size(); ++point) {
      int64_t sum = 0;
      for (size_t role = 0; role < std::size(kFromBelow); ++role) {
        sum += timeline.points(point).role_bytes(index_of[role]);
        const Xml& area = *areas[areas.size() - 1 - role];
        EXPECT_EQ(area.children.at(0).text, kFromBelow[role]);
        EXPECT_EQ(area.at("fill"), RoleColor(timeline.roles(index_of[role])));
        const double x = std::stod(xs[static_cast<size_t>(point)]) + 0.05;
        EXPECT_NEAR(HeightAt(area.at("d"), x), scale.Y(sum), kRounded) << point;
      }
    }
  }
}

TEST(TimelineReadBackTest, LinesAreReservedAndCapacity) {
  Random random(72);
  for (int i = 0; i < 60; ++i) {
    const v1::EstimateMemoryResponse step = AnyStep(random);
    const v1::Timeline& timeline = step.timeline();
    const Xml svg = DrawnSvg(step, AnyJob(random));
    const ReadScale scale(svg);
    const std::vector<std::string> xs = absl::StrSplit(svg.at("data-x"), ' ');
    const Xml& reserved = *All(svg, "path", "reserved").at(0);
    int64_t most = 0;
    for (int point = 0; point < timeline.points_size(); ++point) {
      const int64_t bytes = timeline.points(point).reserved_bytes();
      most = std::max(most, bytes);
      const double x = std::stod(xs[static_cast<size_t>(point)]) + 0.05;
      EXPECT_NEAR(HeightAt(reserved.at("d"), x), scale.Y(bytes), kRounded) << point;
    }
    const std::vector<const Xml*> capacity = All(svg, "line", "capacity");
    ASSERT_EQ(capacity.size(), most >= timeline.capacity_bytes() / 2 ? 1U : 0U);
    if (capacity.empty()) continue;
    EXPECT_NEAR(capacity[0]->number("y1"), scale.Y(timeline.capacity_bytes()), kRounded);
    EXPECT_EQ(capacity[0]->number("y1"), capacity[0]->number("y2"));
  }
}

// The names of the two lines and their figures never lie on each other.
TEST(TimelineReadBackTest, LabelsOfTheLinesStandApart) {
  Random random(73);
  for (int i = 0; i < 200; ++i) {
    const v1::EstimateMemoryResponse step = AnyStep(random);
    const v1::Timeline& timeline = step.timeline();
    const Xml svg = DrawnSvg(step, AnyJob(random));
    std::map<std::string, double> labels;
    for (const Xml* const words : All(svg, "text")) {
      if (words->number("x") == 1016) labels[words->text] = words->number("y");
    }
    const std::string capacity = labels.count("capacity") > 0 ? "capacity" : "↑ capacity";
    ASSERT_EQ(labels.count(capacity), 1U);
    ASSERT_EQ(labels.count("reserved"), 1U);
    EXPECT_GE(std::abs(labels[capacity] - labels["reserved"]), 33.8) << "two lines of words";
    EXPECT_NEAR(labels[FormatBytes(timeline.points().rbegin()->reserved_bytes())],
                labels["reserved"] + 15, 0.11);
  }
}

// The mark of the peak is where the most is allocated, and its words say how much.
TEST(TimelineReadBackTest, ThePeakIsMarked) {
  Random random(74);
  for (int i = 0; i < 60; ++i) {
    const v1::EstimateMemoryResponse step = AnyStep(random);
    const auto& points = step.timeline().points();
    const auto peak = std::max_element(
        points.begin(), points.end(),
        [](const auto& a, const auto& b) { return a.allocated_bytes() < b.allocated_bytes(); });
    const Xml svg = DrawnSvg(step, AnyJob(random));
    const Xml& mark = *All(svg, "circle", "peak").at(0);
    const std::vector<std::string> xs = absl::StrSplit(svg.at("data-x"), ' ');
    EXPECT_EQ(mark.at("cx"), xs[static_cast<size_t>(peak - points.begin())]);
    EXPECT_NEAR(mark.number("cy"), ReadScale(svg).Y(peak->allocated_bytes()), kRounded);
    const Xml& words = *All(svg, "text", "ink halo").at(0);
    EXPECT_EQ(words.text,
              absl::StrCat("peak ", FormatBytes(peak->allocated_bytes()), " in forward"));
    EXPECT_EQ(words.at("x"), mark.at("cx"));
    const std::string anchor = words.at("text-anchor");
    const double reach = 7.4 * static_cast<double>(words.text.size());
    const double x = words.number("x");
    EXPECT_GE(anchor == "end" ? x - reach : anchor == "middle" ? x - reach / 2 : x, 0);
    EXPECT_LE(anchor == "start" ? x + reach : anchor == "middle" ? x + reach / 2 : x, 1120);
  }
}

// The strip below the axis is the whole step: each phase that can be seen from its first event to
// its last, without a gap.
TEST(TimelineReadBackTest, TheStripIsTheWholeStep) {
  Random random(75);
  for (int i = 0; i < 60; ++i) {
    const v1::EstimateMemoryResponse step = AnyStep(random);
    const Xml svg = DrawnSvg(step, AnyJob(random));
    std::vector<const Xml*> strip;
    for (const Xml* const rect : All(svg, "rect")) {
      if (rect->at("height") == "20") strip.push_back(rect);
    }
    ASSERT_EQ(strip.size(), static_cast<size_t>(step.timeline().phases_size()))
        << "none is too narrow here";
    double end = 64;
    std::map<int, std::string> colors;
    for (size_t phase = 0; phase < strip.size(); ++phase) {
      EXPECT_NEAR(strip[phase]->number("x"), end, 0.11);
      end = strip[phase]->number("x") + strip[phase]->number("width");
      const int number = step.timeline().phases(static_cast<int>(phase)).phase();
      const std::string color = strip[phase]->at("fill");
      EXPECT_EQ(colors.emplace(number, color).first->second, color) << "a phase has one color";
    }
    EXPECT_NEAR(end, 1008, 0.11);
  }
}

TEST(TimelineReadBackTest, TheLegendHasWhatIsHeldAtThePeak) {
  Random random(76);
  for (int i = 0; i < 60; ++i) {
    const v1::EstimateMemoryResponse step = AnyStep(random);
    const v1::TimelinePoint& peak =
        step.timeline().points(static_cast<int>(step.timeline().peak_point()));
    const Xml svg = DrawnSvg(step, AnyJob(random));
    std::vector<std::string> words;
    for (const Xml* const text : All(svg, "text", "ink")) words.push_back(text->text);
    for (size_t role = 0; role < std::size(kRoles); ++role) {
      EXPECT_THAT(words, testing::Contains(
                             absl::StrCat(RoleName(kRoles[role]), " ",
                                          FormatBytes(peak.role_bytes(static_cast<int>(role))))));
    }
    const char* const kClasses[] = {"", "fits", "risk", "over"};
    const Xml& verdict = *All(svg, "tspan").at(0);
    EXPECT_EQ(verdict.at("class"), kClasses[step.verdict()]);
    EXPECT_EQ(verdict.text, VerdictName(step.verdict()));
  }
}

// A page is the picture and its data: what the script reads is the step, to the last number.
TEST(TimelineReadBackTest, ThePageHasTheWholeStep) {
  Random random(77);
  for (int i = 0; i < 40; ++i) {
    const v1::EstimateMemoryResponse step = AnyStep(random);
    const v1::Job job = AnyJob(random);
    const std::string html = TimelineHtml(step, job);
    const Xml page = XmlReader(html).Read();
    const std::vector<const Xml*> scripts = All(page, "script");
    ASSERT_EQ(scripts.size(), 2U);
    EXPECT_EQ(scripts[0]->at("id"), "timeline");
    v1::Timeline read;
    ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(scripts[0]->text, &read).ok());
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(read, step.timeline()));
    EXPECT_EQ(All(page, "svg").at(0)->at("data-x"), DrawnSvg(step, job).at("data-x"));
    const std::string title = All(page, "title").at(0)->text;
    EXPECT_EQ(title, absl::StrCat(VerdictName(step.verdict()), ": ", job.model().name(),
                                  " on 8 × h100-80gb-sxm"));
  }
}

// Each of the largest is a row: all of it, one of it, and what is said of it.
TEST(TimelineReadBackTest, RowsOfThePageAreTheLargest) {
  Random random(78);
  for (int i = 0; i < 40; ++i) {
    const v1::EstimateMemoryResponse step = AnyStep(random);
    const std::string html = TimelineHtml(step, AnyJob(random));
    const Xml page = XmlReader(html).Read();
    const std::vector<const Xml*> rows = All(page, "tr");
    const auto& largest = step.timeline().largest();
    ASSERT_EQ(rows.size(), static_cast<size_t>(largest.size()) + 1) << "with the headings";
    for (int row = 0; row < largest.size(); ++row) {
      const v1::PeakStorage& storage = largest[row];
      std::vector<std::string> cells;
      const Xml& of = *rows[static_cast<size_t>(row) + 1];
      for (const Xml* const cell : All(of, "td")) {
        cells.emplace_back(absl::StripAsciiWhitespace(cell->text));
      }
      EXPECT_THAT(cells,
                  ElementsAre(FormatBytes(storage.bytes() * storage.count()),
                              absl::StrCat(storage.count(), " × ", FormatBytes(storage.bytes())),
                              storage.name(), storage.layers().empty() ? "" : "layers 0-31",
                              storage.made(), storage.alive()));
      EXPECT_EQ(All(of, "span").at(0)->at("style"),
                absl::StrCat("background:", RoleColor(storage.role())));
    }
  }
}

}  // namespace
}  // namespace plimsoll
