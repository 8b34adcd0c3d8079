# Writes the functions that are nothing but their names, from the two lists: accepted.txt (they
# only take what they are given, and succeed) and unknown.txt (they say their name, and fail).
#   plimsoll_phantom_names(OUTPUT)
function(plimsoll_phantom_names output)
  set(folder ${CMAKE_CURRENT_FUNCTION_LIST_DIR})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${folder}/accepted.txt
                                                                 ${folder}/unknown.txt)
  file(STRINGS ${folder}/accepted.txt accepted REGEX "^[A-Za-z_]")
  file(STRINGS ${folder}/unknown.txt unknown REGEX "^[A-Za-z_]")
  set(text "#include \"client/measure/phantom/cuda_types.h\"\n#include \"client/measure/phantom/unknown.h\"\n")
  foreach(name IN LISTS accepted)
    string(APPEND text "PHANTOM_EXPORT long ${name}() { return 0; }\n")
  endforeach()
  foreach(name IN LISTS unknown)
    string(APPEND text "PHANTOM_EXPORT long ${name}() { return plimsoll::Unknown(\"${name}\"); }\n")
  endforeach()
  file(CONFIGURE OUTPUT ${output} CONTENT "${text}" @ONLY)
endfunction()
