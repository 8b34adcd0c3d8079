#include "tests/testing/allocator_layout.h"

#include "absl/strings/str_cat.h"

namespace plimsoll {
namespace {

std::string Size(int64_t bytes) {
  constexpr int64_t kKib = 1024;
  if (bytes % (kKib * kKib) == 0) return absl::StrCat(bytes / kKib / kKib, "M");
  return bytes % kKib == 0 ? absl::StrCat(bytes / kKib, "K") : absl::StrCat(bytes);
}

}  // namespace

std::string Layout(const CachingAllocator& allocator) {
  std::string text;
  std::string unmapped;
  for (const BlockView& view : allocator.Snapshot()) {
    if (view.first) {
      unmapped.clear();
      if (!text.empty()) text += " |";
    }
    std::string block = text.empty() && unmapped.empty() ? "" : " ";
    block += "-APFU"[static_cast<int>(view.state)];
    block += Size(view.bytes);
    if (view.state == BlockState::kUnmapped) {
      unmapped = block;
      continue;
    }
    absl::StrAppend(&text, unmapped, block);
    unmapped.clear();
  }
  return text;
}

}  // namespace plimsoll
