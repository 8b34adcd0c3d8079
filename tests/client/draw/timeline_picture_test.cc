// The picture and the page of a small timeline, as text. UPDATE_GOLDENS=1
// rewrites timelines/*.svg and *.html; open them before you commit them.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "client/draw/timeline_file.h"
#include "client/draw/timeline_html.h"
#include "client/draw/timeline_scale.h"
#include "client/draw/timeline_svg.h"
#include "client/show/explain.h"
#include "client/show/timeline_words.h"

namespace plimsoll {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::filesystem::path Path(const std::string& name) {
  return std::filesystem::path(TIMELINES) / name;
}

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

v1::EstimateMemoryResponse Small() {
  v1::EstimateMemoryResponse response;
  EXPECT_TRUE(
      google::protobuf::TextFormat::ParseFromString(ReadFile(Path("small.txtpb")), &response));
  return response;
}

v1::Job SmallJob() {
  v1::Job job;
  job.mutable_model()->set_name("llama-3.2-1b");
  job.mutable_cluster()->set_gpu("a10");
  return job;
}

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

void CompareWithGolden(const std::string& name, const std::string& text) {
  if (std::getenv("UPDATE_GOLDENS") != nullptr) std::ofstream(Path(name), std::ios::binary) << text;
  EXPECT_EQ(text, ReadFile(Path(name))) << "UPDATE_GOLDENS=1 rewrites it";
}

TEST(TimelineSvgTest, LooksAsBefore) {
  CompareWithGolden("small.svg", TimelineSvg(Small(), SmallJob()));
}

TEST(TimelineHtmlTest, LooksAsBefore) {
  CompareWithGolden("small.html", TimelineHtml(Small(), SmallJob()));
}

TEST(TimelineSvgTest, SaysWhatItShows) {
  const std::string svg = TimelineSvg(Small(), SmallJob());
  EXPECT_EQ(Count(svg, "class=\"area\""), 3);
  EXPECT_THAT(svg, HasSubstr(">AT RISK<"));
  EXPECT_THAT(svg, HasSubstr(">llama-3.2-1b on 8 × a10<"));
  EXPECT_THAT(svg, HasSubstr(">peak 8.0 GiB in forward<"));
  EXPECT_THAT(svg, HasSubstr(">capacity<"));
  EXPECT_THAT(svg, HasSubstr(">9.5 GiB<"));
  EXPECT_THAT(svg, HasSubstr(">temporaries 0 B<"));
  EXPECT_THAT(svg, HasSubstr(">end<"));  // one event of fifty, and yet it has its name
}

// What a job calls itself is text, never markup.
TEST(TimelineSvgTest, NamesAreEscaped) {
  v1::Job job = SmallJob();
  job.mutable_model()->set_name("</svg><script>alert('1')</script>");
  for (const std::string& text : {TimelineSvg(Small(), job), TimelineHtml(Small(), job)}) {
    EXPECT_THAT(text, Not(HasSubstr("<script>alert")));
    EXPECT_THAT(text, HasSubstr("&lt;/svg&gt;&lt;script&gt;alert(&#39;1&#39;)"));
  }
}

// Nor can the data that the script reads end its element.
TEST(TimelineHtmlTest, DataCannotEndItsElement) {
  v1::EstimateMemoryResponse response = Small();
  response.mutable_timeline()->mutable_largest(0)->set_name("</script><b>");
  const std::string html = TimelineHtml(response, SmallJob());
  EXPECT_THAT(html, HasSubstr("\"\\u003c/script>\\u003cb>\""));
  EXPECT_EQ(Count(html, "</script>"), 2);
}

TEST(TimelineHtmlTest, NeedsNothingFromElsewhere) {
  std::string html = TimelineHtml(Small(), SmallJob());
  const std::string name_space = "http://www.w3.org/2000/svg";
  html.erase(html.find(name_space), name_space.size());
  for (const char* outside : {"http:", "https:", "src=", "href=", "@import", "url("}) {
    EXPECT_THAT(html, Not(HasSubstr(outside)));
  }
}

TEST(TimelineWordsTest, TitleNamesTheModelAndTheGpus) {
  const v1::EstimateMemoryResponse response = Small();
  v1::Job job;
  EXPECT_EQ(JobTitle(response, job), "1.24 B parameters on 8 × GPU with 10.0 GiB to use");
  (*job.mutable_model()->mutable_hf_config()->mutable_fields())["model_type"].set_string_value(
      "qwen3");
  job.mutable_cluster()->set_gpu("a10");
  EXPECT_EQ(JobTitle(response, job), "qwen3, 1.24 B parameters on 8 × a10");
}

TEST(TimelineWordsTest, NotesSayWhatIsNotDrawn) {
  v1::EstimateMemoryResponse response = Small();
  EXPECT_THAT(
      TimelineNotes(response),
      ElementsAre(
          "Expected 9.5 GiB of 10.0 GiB, upper bound 11.0 GiB: what the allocator reserves and "
          "512.0 MiB of CUDA context and NCCL beside it.",
          "One steady training step of a GPU of pipeline stage 0 of 2, the fullest: tensors peak "
          "at 8.0 GiB in forward.",
          "Of the step's 8 micro-batches 2 are drawn: the others repeat them.",
          "The first step, which is not drawn, peaks higher: at 8.2 GiB."));
  response.mutable_ranks()->DeleteSubrange(1, 1);
  response.mutable_ranks(0)->clear_moments();
  response.mutable_timeline()->set_drawn_micro_batch_count(8);
  response.mutable_timeline()->set_completed(false);
  EXPECT_THAT(TimelineNotes(response),
              ElementsAre(testing::_,
                          "One steady training step of each GPU: tensors peak at 8.0 GiB in "
                          "forward.",
                          "The step fails on this GPU: it is drawn as if the GPU had no end."));
}

TEST(TimelineScaleTest, EventsGoRightAndBytesGoUp) {
  const v1::EstimateMemoryResponse response = Small();
  const PlotBox box = {.left = 100, .right = 900, .top = 50, .bottom = 450};
  const TimelineScale scale(response.timeline(), box);
  EXPECT_EQ(scale.X(0), box.left);
  EXPECT_NEAR(scale.X(50), box.right, 1e-9);
  for (int event = 0; event < 50; ++event) EXPECT_LT(scale.X(event), scale.X(event + 1)) << event;
  EXPECT_GE(scale.X(50) - scale.X(49), 70);                // a name's width
  EXPECT_NEAR(scale.X(5) - scale.X(4), 730.0 / 50, 1e-9);  // phases that come again share the rest
  EXPECT_EQ(scale.Y(0), box.bottom);
  EXPECT_NEAR(scale.Y(scale.top_bytes()), box.top, 1e-9);
}

TEST(TimelineScaleTest, AFarCapacityIsNotDrawn) {
  v1::Timeline timeline = Small().timeline();
  const PlotBox box = {.left = 0, .right = 800, .top = 0, .bottom = 400};
  EXPECT_TRUE(TimelineScale(timeline, box).shows_capacity());
  EXPECT_GT(TimelineScale(timeline, box).top_bytes(),
            static_cast<double>(timeline.capacity_bytes()));
  timeline.set_capacity_bytes(int64_t{80} << 30);
  EXPECT_FALSE(TimelineScale(timeline, box).shows_capacity());
  EXPECT_LT(TimelineScale(timeline, box).top_bytes(), static_cast<double>(int64_t{10} << 30));
}

TEST(TimelineScaleTest, TheGridIsRound) {
  const struct {
    int64_t most_mib;
    double step_gib;
  } kCases[] = {{512, 0.1}, {1024, 0.2}, {6000, 1},    {9000, 2},
                {30000, 5}, {80000, 20}, {400000, 100}};
  for (const auto& [most_mib, step_gib] : kCases) {
    v1::Timeline timeline = Small().timeline();
    for (v1::TimelinePoint& point : *timeline.mutable_points()) {
      point.set_reserved_bytes(most_mib << 20);
      point.set_allocated_bytes(0);
    }
    timeline.set_capacity_bytes(0);
    const TimelineScale scale(timeline, {.left = 0, .right = 800, .top = 0, .bottom = 400});
    EXPECT_NEAR(scale.step_bytes() / (1 << 30), step_gib, 1e-9) << most_mib;
  }
}

TEST(TimelineFileTest, OnlyThreeSuffixesAreKnown) {
  for (const char* path : {"a.svg", "a/b.html", "a.b.json"}) {
    EXPECT_TRUE(CheckTimelinePath(path).ok()) << path;
  }
  for (const char* path : {"a.png", "svg", "a.svg.gz", "-", "a.SVG"}) {
    EXPECT_EQ(CheckTimelinePath(path).message(),
              std::string("--timeline: ") + path + "; must end in .svg, .html or .json");
  }
}

TEST(TimelineFileTest, SaysWhyThereIsNone) {
  v1::EstimateMemoryResponse response;
  EXPECT_EQ(WriteTimeline("a.svg", response, {}).message(),
            "--timeline: a.svg; the answer has none");
  v1::Warning* warning = response.add_warnings();
  warning->set_code("timeline-too-long");
  warning->set_text("too many allocations");
  EXPECT_EQ(WriteTimeline("a.svg", response, {}).message(),
            "--timeline: a.svg; too many allocations");
}

TEST(ExplainPeakTest, ListsTheLargest) {
  EXPECT_EQ(ExplainPeak(Small(), {.width = 80}),
            "\nThe largest at the peak of a steady step, 8.0 GiB in forward\n"
            " 4.0 GiB  = 8 x 512.0 MiB  mlp.up\n"
            "     layer, forward of mlp.up; kept for backward of mlp.activation; layers 0-3,\n"
            "     micro-batches 0-1\n"
            " 4.0 GiB    = 1 x 4.0 GiB  weights\n"
            "     before the first step; state of the training\n");
  EXPECT_EQ(ExplainPeak({}, {}), "");
}

}  // namespace
}  // namespace plimsoll
