# Tests of the house itself: what the compiler does not check.
if(HADAL_TESTS)
  set(scripts ${CMAKE_SOURCE_DIR}/scripts)
  add_test(NAME house.layers COMMAND ${scripts}/check-layers.sh)
  add_test(NAME house.command_line_docs COMMAND ${scripts}/check-cli-docs.sh $<TARGET_FILE:hadal>)
  if(NOT HADAL_SANITIZE)
    add_test(NAME house.linkage COMMAND ${scripts}/check-linkage.sh $<TARGET_FILE:hadal>)
  endif()
endif()
