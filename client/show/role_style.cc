#include "client/show/role_style.h"

#include "client/io/text.h"

namespace plimsoll {
namespace {

struct Style {
  const char* name;
  const char* letter;
  const char* pattern;
  int color;  // of the terminal's 256
  const char* picture_color;
};

// By the number of v1::Role.
constexpr Style kStyles[] = {
    {"other", "?", "?", 250, "#b0b7bf"},
    {"weights", "W", "█", 33, "#3b82d0"},
    {"gradients", "G", "▓", 208, "#ee8a2d"},
    {"master weights", "M", "▒", 37, "#15a3a3"},
    {"optimizer states", "O", "░", 71, "#57a55a"},
    {"activations", "A", "▚", 134, "#a05cc6"},
    {"loss", "L", "▄", 197, "#e5476b"},
    {"temporaries", "T", "▤", 220, "#e8c53a"},
    {"communication", "C", "▥", 111, "#86b4f2"},
    {"workspaces", "K", "▦", 137, "#a9805a"},
    {"fragmentation", "F", "▧", 245, "#9aa1a9"},
    {"CUDA context", "X", "▨", 240, "#6b7280"},
    {"NCCL", "N", "▩", 66, "#4f8a8b"},
};

// By the number of v1::Phase.
constexpr const char* kPhases[] = {
    "the step",
    "forward",
    "the loss",
    "backward",
    "the gradient reduction",
    "the optimizer step",
    "the end of the step",
};

const Style& StyleOf(v1::Role role) {
  return kStyles[role >= 0 && role < static_cast<int>(std::size(kStyles)) ? role : 0];
}

}  // namespace

std::string RoleName(v1::Role role) { return StyleOf(role).name; }

std::string PhaseName(v1::Phase phase) {
  return kPhases[phase >= 0 && phase < static_cast<int>(std::size(kPhases)) ? phase : 0];
}

std::string VerdictName(v1::Verdict verdict) {
  switch (verdict) {
    case v1::VERDICT_FITS:
      return "FITS";
    case v1::VERDICT_AT_RISK:
      return "AT RISK";
    case v1::VERDICT_DOES_NOT_FIT:
      return "DOES NOT FIT";
    default:
      return "NO VERDICT";
  }
}

std::string VerdictWord(v1::Verdict verdict, const Terminal& terminal) {
  const int color = verdict == v1::VERDICT_FITS      ? kGreen
                    : verdict == v1::VERDICT_AT_RISK ? kYellow
                                                     : kRed;
  return Bold(VerdictName(verdict), color, terminal);
}

std::string RoleColor(v1::Role role) { return StyleOf(role).picture_color; }

std::string RoleCell(v1::Role role, const Terminal& terminal) {
  const Style& style = StyleOf(role);
  if (!terminal.unicode) return Paint(style.letter, style.color, terminal);
  return terminal.color ? Paint("█", style.color, terminal) : style.pattern;
}

}  // namespace plimsoll
