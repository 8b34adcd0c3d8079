#include "client/show/story_lines.h"

#include "absl/strings/str_cat.h"

namespace plimsoll {
namespace {

constexpr int kWide = 120;
constexpr int kEndless = 1 << 20;  // no line is broken

std::vector<Columns::Align> WithStory(std::vector<Columns::Align> aligns) {
  aligns.push_back(Columns::Align::kLeft);
  return aligns;
}

}  // namespace

StoryLines::StoryLines(const std::vector<Columns::Align>& aligns)
    : figures_(aligns), all_(WithStory(aligns)) {}

void StoryLines::Add(std::vector<std::string> row, std::string story) {
  figures_.Add(row);
  row.push_back(story);
  all_.Add(std::move(row));
  stories_.push_back(std::move(story));
}

std::string StoryLines::ToText(const Terminal& terminal) const {
  if (terminal.width >= kWide) return all_.ToText(1, terminal.width);
  std::string out;
  const std::string text = figures_.ToText(1, kEndless);
  size_t at = 0;
  for (const std::string& story : stories_) {
    const size_t end = text.find('\n', at);
    const std::string line = text.substr(at, end - at);
    absl::StrAppend(
        &out, DisplayWidth(line) > terminal.width ? Wrap(line, terminal.width, 3) : line, "\n");
    if (!story.empty()) {
      absl::StrAppend(&out, Wrap(absl::StrCat("     ", story), terminal.width, 5), "\n");
    }
    at = end + 1;
  }
  return out;
}

}  // namespace plimsoll
