# Fails when a folder includes what its list does not allow, one of the folders in it one
# that comes later, or when a source does not include its own header first, which
# proves that it compiles alone.
#   cmake -D ROOT=<tree> -P layers.cmake
# The lists are the data; the direction is estimator <- server <- client.
cmake_minimum_required(VERSION 3.25)

# What each folder may include, as regular expressions over the included name.
# `STD` stands for the headers of the C++ standard library.
set(folders estimator server client)
set(allow_estimator
    STD "^estimator/" "^absl/")
set(allow_server
    STD "^server/" "^estimator/" "^plimsoll/v1/" "^google/(protobuf|rpc)/" "^grpcpp/" "^grpc/"
    "^absl/" "^prometheus/" "^yaml-cpp/" "^rapidjson/" "^CLI/" "^httplib\\.h$"
    "^openssl/[a-z0-9]+\\.h$"
    "^(arpa|netinet|sys)/[a-z]+\\.h$" "^linux/tcp\\.h$" "^(fcntl|netdb|poll|pthread|sched|signal|unistd)\\.h$")
set(allow_client
    STD "^client/" "^server/(admit|catalog|convert|run|wire|words)/" "^plimsoll/v1/" "^google/(protobuf|rpc)/" "^grpcpp/" "^absl/"
    "^yaml-cpp/" "^rapidjson/" "^CLI/" "^httplib\\.h$" "^sys/[a-z]+\\.h$"
    "^(fcntl|signal|spawn|unistd)\\.h$")

# Folders that stand alone, as libraries that other programs load: they include themselves and
# this, and nothing else includes them.
set(alone "client/measure/phantom")
set(allow_alone STD "^(dlfcn|sys/mman)\\.h$")

# What the estimator may not include though its list would allow it: the world.
set(forbid_estimator
    "^absl/(debugging|flags|log|random|synchronization|time)/"
    "^(atomic|barrier|chrono|condition_variable|coroutine|csignal|cstdio|ctime|execution|filesystem)$"
    "^(fstream|future|iostream|istream|latch|locale|mutex|ostream|print|random|semaphore)$"
    "^(shared_mutex|sstream|stop_token|streambuf|syncstream|thread)$")

# The folders within each: their names, and what they may include beside themselves.
set(stages_estimator
    "base"
    "catalog base"
    "job base catalog"
    "program base catalog job"
    "passes base catalog job program"
    "step base catalog job program passes"
    "allocator base catalog job"
    "replay base catalog job program passes step allocator"
    "time base catalog job program passes step"
    "answer base catalog job program passes step allocator replay time"
    "search base catalog job program passes step allocator replay time answer")

set(stages_server
    "wire"
    "net wire"
    "catalog"
    "words wire"
    "convert wire catalog"
    "admit wire catalog words"
    "access wire words"
    "observe wire net convert admit access"
    "planner wire words convert admit observe"
    "load wire net access observe"
    "face wire net words access observe planner load"
    "run wire net catalog words admit access observe planner load face")
set(stages_client
    "io"
    "format io"
    "job format"
    "service io format job"
    "show io format service"
    "draw io format show"
    "report io format job service"
    "measure io format job service show"
    "command io format job service show draw report measure")

# Generated code and the estimator's types meet in these files only: the
# converters, and the methods that convert, call and convert.
set(both_worlds "^server/(convert|planner)/")

# matches(name result pattern...): whether the name matches one of the patterns.
function(matches name result)
  set(${result} FALSE PARENT_SCOPE)
  foreach(pattern IN LISTS ARGN)
    if(pattern STREQUAL "STD")
      set(pattern "^[a-z_0-9]+$")
    endif()
    if(name MATCHES "${pattern}")
      set(${result} TRUE PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

# stage_of(file result): the folder within its own that a file or an included name is in; empty
# where it is in none.
function(stage_of name result)
  set(stage "")
  if(name MATCHES "^[a-z]+/([a-z_]+)/")
    set(stage ${CMAKE_MATCH_1})
  endif()
  set(${result} "${stage}" PARENT_SCOPE)
endfunction()

# may_include(folder stage included result): whether files of one stage may include the other's.
function(may_include folder stage included result)
  set(${result} FALSE PARENT_SCOPE)
  foreach(row IN LISTS stages_${folder})
    string(REPLACE " " ";" row "${row}")
    list(GET row 0 owner)
    if(owner STREQUAL stage AND included IN_LIST row)
      set(${result} TRUE PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

set(violations)
set(count 0)
foreach(folder IN LISTS folders)
  file(GLOB_RECURSE files RELATIVE ${ROOT} ${ROOT}/${folder}/*.h ${ROOT}/${folder}/*.cc)
  foreach(file IN LISTS files)
    math(EXPR count "${count} + 1")
    set(sees_proto FALSE)
    set(sees_estimator FALSE)
    stage_of(${file} stage)
    may_include(${folder} "${stage}" "${stage}" is_stage)
    if(NOT is_stage AND NOT file STREQUAL "${folder}/main.cc")
      string(APPEND violations "${file}: in none of the folders of ${folder}/\n")
    endif()
    set(is_alone FALSE)
    if(file MATCHES "^${alone}/")
      set(is_alone TRUE)
    endif()
    file(STRINGS ${ROOT}/${file} lines REGEX "^[ \t]*#[ \t]*include")
    string(REGEX REPLACE "cc$" "h" header ${file})
    if(EXISTS ${ROOT}/${header} AND NOT file STREQUAL header
       AND NOT "${lines}" MATCHES "^#include \"${header}\"")
      string(APPEND violations "${file}: includes ${header} late or never; its own header comes first\n")
    endif()
    foreach(line IN LISTS lines)
      string(REGEX REPLACE ".*include[ \t]*[<\"]([^>\"]*)[>\"].*" "\\1" name "${line}")
      if(is_alone)
        matches("${name}" allowed ${allow_alone} "^${alone}/")
        matches("${name}" forbidden)
      else()
        matches("${name}" allowed ${allow_${folder}})
        matches("${name}" forbidden ${forbid_${folder}} "^${alone}/")
      endif()
      if(NOT allowed OR forbidden)
        string(APPEND violations "${file}: ${name}; not for ${folder}/\n")
      endif()
      if(name MATCHES "^plimsoll/v1/.*pb\\.h$")
        set(sees_proto TRUE)
      elseif(name MATCHES "^estimator/")
        set(sees_estimator TRUE)
      endif()
      if(name MATCHES "^${folder}/" AND is_stage)
        stage_of(${name} included)
        may_include(${folder} "${stage}" "${included}" in_order)
        if(NOT in_order)
          string(APPEND violations "${file}: ${name}; not for ${folder}/${stage}\n")
        endif()
      endif()
    endforeach()
    matches(${file} may_see_both ${both_worlds})
    if(sees_proto AND sees_estimator AND NOT may_see_both)
      string(APPEND violations "${file}: plimsoll/v1 and estimator; only server/convert and server/planner know both\n")
    endif()
  endforeach()
endforeach()

if(count EQUAL 0)
  string(APPEND violations "${ROOT}: no sources; expected ${folders}\n")
endif()
if(violations)
  message(NOTICE "${violations}")
  message(FATAL_ERROR "layers: broken")
endif()
message(STATUS "layers: ${count} files")
