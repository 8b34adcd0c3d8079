// How each role of memory is named and drawn.
#ifndef PLIMSOLL_CLIENT_SHOW_ROLE_STYLE_H_
#define PLIMSOLL_CLIENT_SHOW_ROLE_STYLE_H_

#include <string>

#include "client/io/terminal.h"
#include "plimsoll/v1/planner.pb.h"

namespace plimsoll {

// The role in words, as "optimizer states".
std::string RoleName(v1::Role role);

// The phase in words, as "gradient reduction".
std::string PhaseName(v1::Phase phase);

// The verdict in words, as "DOES NOT FIT".
std::string VerdictName(v1::Verdict verdict);

// The same in bold, in its colour.
std::string VerdictWord(v1::Verdict verdict, const Terminal& terminal);

// The role's colour in pictures, as "#3b82d0": to be told from the others on a
// light and on a dark ground.
std::string RoleColor(v1::Role role);

// One cell of a bar: a block in the role's colour; a pattern of its own where
// there are no colours; a letter where there is only ASCII.
std::string RoleCell(v1::Role role, const Terminal& terminal);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_SHOW_ROLE_STYLE_H_
