# Fails when a program lacks what makes a defect of memory hard to use: position
# independence, a stack that holds no code, relocations that are read-only once it runs,
# guarded stacks and buffers.
# That copies are checked is a flag of each source, as a program whose copies the compiler proved
# has no trace of it.
#   cmake -D PROGRAMS=a,b -D COMMANDS=compile_commands.json -P hardened.cmake
# Control-flow marks (-fcf-protection) are in our code; the linker drops them from the
# whole, as Debian 12 builds gRPC's archives without.
cmake_minimum_required(VERSION 3.25)
string(REPLACE "," ";" programs "${PROGRAMS}")
find_program(readelf readelf REQUIRED)
set(wanted
    "position independent=Type: +DYN"
    "stack without code=GNU_STACK[^\n]* RW "
    "relocations made read-only=GNU_RELRO"
    "all relocations made at the start=BIND_NOW|Flags:[^\n]* NOW"
    "stack protector=__stack_chk_fail")
set(missing)
file(STRINGS ${COMMANDS} commands REGEX "\"command\".* -c [^ ]*/(estimator|server|client)/[^ ]*\\.cc")
list(LENGTH commands count)
if(count LESS 100)
  list(APPEND missing "${COMMANDS}: ${count} sources")
endif()
foreach(command IN LISTS commands)
  if(NOT command MATCHES " -O[123s] .*-D_FORTIFY_SOURCE=[23]" OR command MATCHES " -U_FORTIFY")
    string(REGEX REPLACE ".* -c ([^ ]*).*" "\\1: checked copies" unchecked "${command}")
    list(APPEND missing "${unchecked}")
  endif()
endforeach()
foreach(program IN LISTS programs)
  execute_process(COMMAND ${readelf} -W --file-header --program-headers --dynamic --dyn-syms
                          ${program}
                  OUTPUT_VARIABLE elf COMMAND_ERROR_IS_FATAL ANY)
  foreach(row IN LISTS wanted)
    string(REGEX MATCH "^([^=]+)=(.*)$" row "${row}")
    set(what ${CMAKE_MATCH_1})
    if(NOT elf MATCHES "${CMAKE_MATCH_2}")
      list(APPEND missing "${program}: ${what}")
    endif()
  endforeach()
endforeach()
if(NOT programs)
  message(FATAL_ERROR "no programs")
endif()
if(missing)
  list(JOIN missing "\n " missing)
  message(FATAL_ERROR "not hardened:\n ${missing}")
endif()
