# The `tutti` command, and the programs that measure.
get_property(layers GLOBAL PROPERTY tutti_layers)

if(EXISTS ${PROJECT_SOURCE_DIR}/src/cli/main.cc)
  add_executable(tutti ${PROJECT_SOURCE_DIR}/src/cli/main.cc)
  target_link_libraries(tutti PRIVATE ${layers})
  target_precompile_headers(tutti REUSE_FROM tutti_pch)
  target_link_options(tutti PRIVATE -no-pie -Wl,--gc-sections -Wl,-z,lazy)
  if(NOT TUTTI_SANITIZE)
    target_link_options(tutti PRIVATE -static-libstdc++ -static-libgcc)
  endif()
endif()

# bench/<name>.cc is bench_<name>; they are built on demand: cmake --build … --target benches.
add_custom_target(benches)
tutti_protos(bench ${PROJECT_SOURCE_DIR} bench)
file(GLOB bench_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bench/*.cc)
foreach(source IN LISTS bench_sources)
  get_filename_component(stem ${source} NAME_WE)
  add_executable(bench_${stem} EXCLUDE_FROM_ALL ${source})
  target_include_directories(bench_${stem} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(bench_${stem} PRIVATE ${layers} $<TARGET_NAME_IF_EXISTS:bench_proto>)
  set_target_properties(bench_${stem} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
  add_dependencies(benches bench_${stem})
endforeach()

# examples/<name>.cc is examples/<name> in the build folder, on demand too.
add_custom_target(examples)
file(GLOB example_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/*.cc)
foreach(source IN LISTS example_sources)
  get_filename_component(stem ${source} NAME_WE)
  add_executable(example_${stem} EXCLUDE_FROM_ALL ${source})
  target_link_libraries(example_${stem} PRIVATE ${layers})
  target_precompile_headers(example_${stem} REUSE_FROM tutti_pch)
  set_target_properties(example_${stem} PROPERTIES OUTPUT_NAME ${stem}
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/examples)
  add_dependencies(examples example_${stem})
endforeach()

if(TUTTI_PYTHON)
  include(python)
endif()
