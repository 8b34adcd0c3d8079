// Lines of figures, each with a story that is too long for a column of its own.
#ifndef PLIMSOLL_CLIENT_SHOW_STORY_LINES_H_
#define PLIMSOLL_CLIENT_SHOW_STORY_LINES_H_

#include <string>
#include <utility>
#include <vector>

#include "client/io/terminal.h"
#include "client/io/text.h"

namespace plimsoll {

// Figures and names in columns, each with a story: beside them where the
// terminal is wide, below them where it is not.
class StoryLines {
 public:
  explicit StoryLines(const std::vector<Columns::Align>& aligns);

  void Add(std::vector<std::string> row, std::string story);
  std::string ToText(const Terminal& terminal) const;

 private:
  Columns figures_;
  Columns all_;
  std::vector<std::string> stories_;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_SHOW_STORY_LINES_H_
