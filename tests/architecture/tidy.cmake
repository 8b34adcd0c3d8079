# Fails when clang-tidy 14 finds something in a C++ file: .clang-tidy says what it looks for.
#   cmake -D ROOT=<tree> -D BUILD=<build> -P tidy.cmake            files that differ from main
#   cmake -D ROOT=<tree> -D BUILD=<build> -D FOLDERS=estimator,server -P tidy.cmake   all of these,
#     as does cmake --build build --target tidy, in half an hour of two cores
#   cmake -D ROOT=<tree> -D FILES=<file>,<file> -P tidy.cmake      these, without a build
cmake_minimum_required(VERSION 3.25)
set(most 24)  # changed files that are looked at, some five seconds each
# Where nothing is found: changes must keep that.
set(clean estimator server client)

find_program(CLANG_TIDY clang-tidy-14)
if(NOT CLANG_TIDY)
  message(STATUS "tidy: skipped, clang-tidy-14 is not installed; .ci/install.sh test installs it")
  return()
endif()

# changed(result): sources that differ from where this branch left main; on main, from the commit
# before. A header's source stands for it.
function(changed result)
  find_package(Git QUIET)
  execute_process(COMMAND ${GIT_EXECUTABLE} merge-base HEAD main WORKING_DIRECTORY ${ROOT}
                  OUTPUT_VARIABLE base OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  execute_process(COMMAND ${GIT_EXECUTABLE} rev-parse HEAD WORKING_DIRECTORY ${ROOT}
                  OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(base STREQUAL head)
    set(base "HEAD~1")
  endif()
  execute_process(
    COMMAND ${GIT_EXECUTABLE} diff --name-only --diff-filter=d ${base} -- ${clean}
    WORKING_DIRECTORY ${ROOT} OUTPUT_VARIABLE names ERROR_QUIET)
  string(REGEX REPLACE "\\.h\n" ".cc\n" names "${names}")
  string(REGEX MATCHALL "[^\n]+\\.cc" names "${names}")
  list(REMOVE_DUPLICATES names)
  set(files)
  foreach(name IN LISTS names)
    if(EXISTS ${ROOT}/${name})
      list(APPEND files ${ROOT}/${name})
    endif()
  endforeach()
  set(${result} ${files} PARENT_SCOPE)
endfunction()

set(files)
if(FILES)
  string(REPLACE "," ";" FILES "${FILES}")
  list(TRANSFORM FILES PREPEND ${ROOT}/ OUTPUT_VARIABLE files)
elseif(FOLDERS)
  string(REPLACE "," ";" FOLDERS "${FOLDERS}")
  foreach(folder IN LISTS FOLDERS)
    file(GLOB_RECURSE found ${ROOT}/${folder}/*.cc)
    list(APPEND files ${found})
  endforeach()
else()
  changed(files)
  list(LENGTH files count)
  if(count GREATER most)
    message(STATUS "tidy: ${count} files are changed; ${most} of them are looked at")
    list(SUBLIST files 0 ${most} files)
  endif()
endif()
if(NOT files)
  message(STATUS "tidy: no changed files")
  return()
endif()

# The commands that would compile each file by itself, without what only GCC knows and without
# headers that a file does not include itself.
if(BUILD)
  execute_process(COMMAND ${CMAKE_COMMAND} --preset release -B ${BUILD}/tidy -D CMAKE_UNITY_BUILD=OFF
                  WORKING_DIRECTORY ${ROOT} OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  file(READ ${BUILD}/tidy/compile_commands.json commands)
  string(REPLACE "${BUILD}/tidy/" "${BUILD}/" commands "${commands}")
  string(REGEX REPLACE " (-mmem[a-z]+-strategy=|--param=|-include )[^ ]+" "" commands "${commands}")
  file(WRITE ${BUILD}/tidy/compile_commands.json "${commands}")
  set(how -p ${BUILD}/tidy)
else()
  set(how -- -std=c++20 -I${ROOT})
endif()

set(findings)
foreach(file IN LISTS files)
  execute_process(COMMAND nice ${CLANG_TIDY} --quiet ${file} ${how}
                  OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    string(APPEND findings "${output}")
    if(output STREQUAL "")
      string(APPEND findings "${file}: ${errors}")
    endif()
  endif()
endforeach()
if(findings)
  message(NOTICE "${findings}")
  message(FATAL_ERROR "tidy: broken")
endif()
list(LENGTH files count)
message(STATUS "tidy: ${count} files")
