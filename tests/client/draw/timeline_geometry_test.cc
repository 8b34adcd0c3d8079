// Pictures of random steps: areas, lines and words stay in the picture, and lie where their events
// and bytes are.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/draw/timeline_scale.h"
#include "client/draw/timeline_svg.h"

namespace plimsoll {
namespace {

using Random = std::mt19937_64;
constexpr PlotBox kBox = {.left = 64, .right = 1008, .top = 100, .bottom = 472};

// One step of so many micro-batches: forward, loss and backward of each, then the rest once.
v1::EstimateMemoryResponse AnyStep(Random& random) {
  v1::EstimateMemoryResponse response;
  response.set_verdict(random() % 2 == 0 ? v1::VERDICT_FITS : v1::VERDICT_DOES_NOT_FIT);
  response.set_usable_bytes(int64_t{80} << 30);
  response.add_ranks()->set_gpu_count(8);
  v1::Timeline* const timeline = response.mutable_timeline();
  timeline->set_capacity_bytes(int64_t{1} << (30 + random() % 8));
  int64_t event = 0;
  const auto add = [&](v1::Phase phase) {
    v1::TimelinePhase* const added = timeline->add_phases();
    added->set_phase(phase);
    added->set_begin_event(event);
    event += 1 + static_cast<int64_t>(random() % 50);
    added->set_end_event(event);
  };
  for (uint64_t left = 1 + random() % 4; left > 0; --left) {
    add(v1::PHASE_FORWARD);
    add(v1::PHASE_LOSS);
    add(v1::PHASE_BACKWARD);
  }
  add(v1::PHASE_GRADIENT_REDUCTION);
  add(v1::PHASE_OPTIMIZER);
  add(v1::PHASE_END_OF_STEP);
  for (const v1::Role role : {v1::ROLE_WEIGHT, v1::ROLE_ACTIVATION, v1::ROLE_LOSS}) {
    timeline->add_roles(role);
  }
  for (int64_t at = 0; at < event; at += 1 + static_cast<int64_t>(random() % 3)) {
    v1::TimelinePoint* const point = timeline->add_points();
    point->set_event(at);
    point->set_phase(v1::PHASE_FORWARD);
    int64_t sum = 0;
    for (int role = 0; role < 3; ++role) {
      const auto bytes = static_cast<int64_t>(random() % (uint64_t{1} << 34));
      point->add_role_bytes(bytes);
      sum += bytes;
    }
    point->set_allocated_bytes(sum);
    point->set_reserved_bytes(sum + (1 << 28));
    const int64_t most =
        timeline->points(static_cast<int>(timeline->peak_point())).allocated_bytes();
    if (sum > most) timeline->set_peak_point(timeline->points_size() - 1);
  }
  return response;
}

TEST(TimelineScaleTest, EventsAreInTheirOrderAndFillTheWidth) {
  Random random(21);
  for (int i = 0; i < 100; ++i) {
    const v1::EstimateMemoryResponse step = AnyStep(random);
    const v1::Timeline& timeline = step.timeline();
    const TimelineScale scale(timeline, kBox);
    const int64_t end = timeline.phases().rbegin()->end_event();
    EXPECT_NEAR(scale.X(0), kBox.left, 1e-9);
    EXPECT_NEAR(scale.X(end), kBox.right, 1e-6);
    for (int64_t event = 1; event <= end; ++event) {
      EXPECT_GT(scale.X(event), scale.X(event - 1)) << event;
    }
  }
}

// A phase that comes once has room for its name; events of one phase are as far apart.
TEST(TimelineScaleTest, PhasesThatComeOnceHaveRoomForTheirName) {
  Random random(22);
  for (int i = 0; i < 100; ++i) {
    const v1::EstimateMemoryResponse step = AnyStep(random);
    const TimelineScale scale(step.timeline(), kBox);
    for (const v1::TimelinePhase& phase : step.timeline().phases()) {
      const double width = scale.X(phase.end_event()) - scale.X(phase.begin_event());
      const bool once = phase.phase() >= v1::PHASE_GRADIENT_REDUCTION;
      EXPECT_GE(width, once ? 70 : 0) << phase.phase();
      const auto count = static_cast<double>(phase.end_event() - phase.begin_event());
      for (int64_t event = phase.begin_event() + 1; event < phase.end_event(); ++event) {
        EXPECT_NEAR(scale.X(event) - scale.X(event - 1), width / count, 1e-6);
      }
    }
  }
}

TEST(TimelineScaleTest, BytesRiseFromTheAxisToTheTop) {
  Random random(23);
  for (int i = 0; i < 100; ++i) {
    const v1::EstimateMemoryResponse step = AnyStep(random);
    const TimelineScale scale(step.timeline(), kBox);
    int64_t most = 0;
    for (const v1::TimelinePoint& point : step.timeline().points()) {
      most = std::max(most, point.reserved_bytes());
    }
    const auto capacity = static_cast<double>(step.timeline().capacity_bytes());
    EXPECT_EQ(scale.most_reserved_bytes(), most);
    EXPECT_DOUBLE_EQ(scale.Y(0), kBox.bottom);
    EXPECT_DOUBLE_EQ(scale.Y(scale.top_bytes()), kBox.top);
    EXPECT_GT(scale.Y(static_cast<double>(most)), kBox.top) << "room for a label";
    EXPECT_EQ(scale.shows_capacity(), static_cast<double>(most) >= capacity / 2);
    EXPECT_TRUE(!scale.shows_capacity() || scale.Y(capacity) >= kBox.top);
    const double lines = scale.top_bytes() / scale.step_bytes();
    EXPECT_GE(lines, 2);
    EXPECT_LE(lines, 7.01);
  }
}

// What stands between the first `begin` behind `at` and the quote after it.
std::string Quoted(const std::string& svg, const std::string& begin, size_t at = 0) {
  const size_t from = svg.find(begin, at) + begin.size();
  return svg.substr(from, svg.find('"', from) - from);
}

// Every number of a path is in the picture: "M64 472V400H70.5...Z".
void ExpectPathWithin(const std::string& path, double width, double height) {
  bool vertical = false;
  for (size_t at = 0; at < path.size();) {
    const char letter = path[at];
    if (letter == 'Z') return;
    if (letter == ' ') vertical = true;
    if (std::isalpha(static_cast<unsigned char>(letter)) != 0) vertical = letter == 'V';
    const size_t end = path.find_first_of("MLHVZ ", at + 1);
    const double number = std::stod(path.substr(at + 1, end - at - 1));
    ASSERT_GE(number, 0) << path.substr(at, 12);
    ASSERT_LE(number, vertical ? height : width) << path.substr(at, 12);
    at = std::min(end, path.size());
  }
}

TEST(TimelineGeometryTest, NothingLeavesThePicture) {
  Random random(24);
  v1::Job job;
  job.mutable_model()->set_name("llama-3.1-8b");
  for (int i = 0; i < 30; ++i) {
    const std::string svg = TimelineSvg(AnyStep(random), job);
    EXPECT_EQ(svg.find("nan"), std::string::npos);
    EXPECT_EQ(svg.find("inf"), std::string::npos);
    const double width =
        std::stod(Quoted(svg, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 "));
    const double height = std::stod(Quoted(svg, "\" height=\""));
    for (size_t at = 0; (at = svg.find(" d=\"", at)) != std::string::npos; ++at) {
      ExpectPathWithin(Quoted(svg, " d=\"", at), width, height);
    }
  }
}

// Areas are drawn from the highest to the lowest, each to the axis: the sums of their bytes fall.
TEST(TimelineGeometryTest, AreasAreSumsOfTheirRoles) {
  Random random(25);
  for (int i = 0; i < 30; ++i) {
    const v1::EstimateMemoryResponse step = AnyStep(random);
    const std::string svg = TimelineSvg(step, v1::Job());
    std::vector<double> first;
    for (size_t at = 0; (at = svg.find("class=\"area\"", at)) != std::string::npos; ++at) {
      const std::string path = Quoted(svg, " d=\"", at);
      first.push_back(std::stod(path.substr(path.find('V') + 1)));
    }
    ASSERT_EQ(first.size(), 3u);
    EXPECT_TRUE(std::is_sorted(first.begin(), first.end())) << "higher sums lie higher";
  }
}

}  // namespace
}  // namespace plimsoll
