# Fails when code asks which framework or trainer a job has, not what that does: habits are
# fields of profiles (estimator/catalog/profile.h), abilities are rows of capabilities.
#   cmake -D ROOT=<tree> -P habits.cmake
cmake_minimum_required(VERSION 3.25)

# Tables of frameworks, and what reads or proposes their names.
set(tables
    "^catalog/"
    "^job/(nccl_version|validate_cluster|vocabularies)\\."
    "^program/nccl\\.cc$"
    "^search/next_framework\\.")

set(violations)
set(count 0)
file(GLOB_RECURSE files RELATIVE ${ROOT}/estimator ${ROOT}/estimator/*.h ${ROOT}/estimator/*.cc)
foreach(file IN LISTS files)
  set(is_table FALSE)
  foreach(table IN LISTS tables)
    if(file MATCHES "${table}")
      set(is_table TRUE)
    endif()
  endforeach()
  if(is_table)
    continue()
  endif()
  math(EXPR count "${count} + 1")
  file(STRINGS ${ROOT}/estimator/${file} lines REGEX "(Framework|Trainer)::k[A-Z]")
  foreach(line IN LISTS lines)
    string(STRIP "${line}" line)
    string(REPLACE "Trainer::kNone" "" other "${line}")  # whether there is a trainer at all
    if(other MATCHES "(Framework|Trainer)::k[A-Z]")
      string(APPEND violations "estimator/${file}: ${line}\n")
    endif()
  endforeach()
endforeach()

if(count EQUAL 0)
  string(APPEND violations "${ROOT}: no sources; expected some\n")
endif()
if(violations)
  message(NOTICE "${violations}")
  message(FATAL_ERROR "habits: broken")
endif()
message(STATUS "habits: ${count} files ask for none by its name")
