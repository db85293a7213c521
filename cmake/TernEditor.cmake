# compile_commands.json in the source root, for editors: a link to the one of the first build folder in this tree. It
# stays until that folder goes.

set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(link ${PROJECT_SOURCE_DIR}/compile_commands.json)
cmake_path(IS_PREFIX PROJECT_SOURCE_DIR "${PROJECT_BINARY_DIR}" NORMALIZE inside)
if(inside AND NOT EXISTS ${link} AND NOT PROJECT_BINARY_DIR STREQUAL PROJECT_SOURCE_DIR)
  # A source tree that cannot be written does without.
  file(CREATE_LINK ${PROJECT_BINARY_DIR}/compile_commands.json ${link} RESULT ignored SYMBOLIC)
endif()
