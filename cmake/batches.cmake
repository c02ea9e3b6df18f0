# tutti_batches(target sources)
#
# With TUTTI_BATCH=n, about n sources of a target are compiled as one; tools/batches.py says which.
# An option of the builds that only test: each file by itself is what shows a forgotten #include, and
# what is quickest after a change.
function(tutti_batches target sources)
  if(NOT TUTTI_BATCH)
    return()
  endif()
  execute_process(COMMAND python3 -SE ${PROJECT_SOURCE_DIR}/tools/batches.py ${TUTTI_BATCH} ${sources}
                  OUTPUT_VARIABLE lines COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]+" lines "${lines}")
  foreach(line IN LISTS lines)
    string(REGEX MATCH "^([0-9]+) (.*)$" matched ${line})
    set_source_files_properties(${CMAKE_MATCH_2} PROPERTIES UNITY_GROUP ${CMAKE_MATCH_1})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()
