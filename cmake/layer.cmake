# tutti_layer(name [FOLDER path] [ROOT dir] [EXCLUDE paths…] [DEPS layers…] [LIBS third-party…]
#             [CONCURRENT])
#
# Makes of src/<name>/**.cc a static library <name>, of its *.proto a library <name>_proto, of its
# *_test.cc one executable <name>_test known to ctest, and of each *_fuzz.cc a fuzz target.
# CONCURRENT marks tests worth running under the thread sanitizer.

add_custom_target(tests)
add_custom_target(concurrent_tests)
add_custom_target(fuzzers)
add_custom_target(protos)
set_property(GLOBAL PROPERTY tutti_layers)

# Thread sanitizers of g++ 12 cannot place their shadow under today's address randomisation.
set(tutti_test_launcher)
set(tutti_test_options)
# UCX would patch what they have put in the place of mmap() and the like.
if(TUTTI_SANITIZE STREQUAL "thread")
  set(tutti_test_launcher env UCX_MEM_EVENTS=no setarch -R)
  set(tutti_test_options --source-file-exclude=*_sim_test.cc)  # what is simulated has one thread
endif()

# The standard headers every file uses anyway, parsed once for all layers, and once more for all
# tests. A rule of tools/tidy.py finds files that lean on this list.
set(tutti_pch_headers
  <algorithm> <array> <chrono> <coroutine> <deque> <expected> <fmt/format.h> <functional> <map>
  <memory> <optional> <span> <string> <string_view> <unordered_map> <utility> <variant> <vector>)
add_library(tutti_pch OBJECT ${PROJECT_SOURCE_DIR}/cmake/pch.cc)
target_precompile_headers(tutti_pch PRIVATE ${tutti_pch_headers})

# How tests are compiled. What an assertion's expression throws ends its test case, as elsewhere. Under
# a sanitizer nothing is optimised: that takes half of the time, and they run quickly enough.
add_library(tutti_test_flags INTERFACE)
target_compile_definitions(tutti_test_flags INTERFACE DOCTEST_CONFIG_NO_TRY_CATCH_IN_ASSERTS)
target_compile_options(tutti_test_flags INTERFACE $<$<CONFIG:Sanitize>:-O0>)
add_library(tutti_test_pch OBJECT ${PROJECT_SOURCE_DIR}/cmake/pch.cc)
target_link_libraries(tutti_test_pch PRIVATE tutti_test_flags)
target_precompile_headers(tutti_test_pch PRIVATE ${tutti_pch_headers} <doctest/doctest.h>)

add_library(tutti_doctest OBJECT ${PROJECT_SOURCE_DIR}/cmake/doctest.cc)

function(tutti_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "CONCURRENT" "FOLDER;ROOT" "EXCLUDE;DEPS;LIBS")
  if(NOT arg_ROOT)
    set(arg_ROOT ${PROJECT_SOURCE_DIR}/src)
  endif()
  if(NOT arg_FOLDER)
    set(arg_FOLDER ${name})
  endif()

  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${arg_ROOT}/${arg_FOLDER}/*.cc)
  foreach(excluded IN LISTS arg_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "^${arg_ROOT}/${excluded}(/|$)")
  endforeach()
  set(test_sources ${sources})
  set(fuzz_sources ${sources})
  list(FILTER sources EXCLUDE REGEX "_(test|fuzz|bench)\\.cc$")
  list(FILTER test_sources INCLUDE REGEX "_test\\.cc$")
  list(FILTER fuzz_sources INCLUDE REGEX "_fuzz\\.cc$")

  list(TRANSFORM arg_DEPS REPLACE "(.+)" "$<TARGET_NAME_IF_EXISTS:\\1>" OUTPUT_VARIABLE deps)
  list(TRANSFORM arg_LIBS PREPEND "tutti_")
  list(APPEND deps ${arg_LIBS})
  tutti_protos(${name} ${arg_ROOT} ${arg_FOLDER})
  if(TARGET ${name}_proto)
    list(APPEND deps ${name}_proto)
  endif()

  tutti_instructions("${sources}" sse2)
  tutti_instructions("${sources}" avx2 -mavx2 -mf16c)
  tutti_instructions("${sources}" avx512 -mavx512f -mavx512bw -mf16c -mprefer-vector-width=512)
  tutti_instructions("${sources}" targets)  # sets them itself, by Highway

  if(sources)
    add_library(${name} STATIC ${sources})
    tutti_batches(${name} "${sources}")
    target_include_directories(${name} PUBLIC ${arg_ROOT} ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(${name} PUBLIC ${deps})
    target_precompile_headers(${name} REUSE_FROM tutti_pch)
    set_property(GLOBAL APPEND PROPERTY tutti_layers ${name})
  endif()
  if(test_sources AND TUTTI_TESTS)
    tutti_test(${name}_test "${test_sources}" "${arg_ROOT};${PROJECT_SOURCE_DIR}/src"
               "$<TARGET_NAME_IF_EXISTS:${name}>;${deps}" ${arg_CONCURRENT})
  endif()
  foreach(source IN LISTS fuzz_sources)
    get_filename_component(stem ${source} NAME_WE)
    set(linked "$<TARGET_NAME_IF_EXISTS:${name}>;${deps}")
    if(TUTTI_FUZZ)
      tutti_fuzzer(${name}_${stem} ${source} ${arg_ROOT} "${linked}")
    elseif(TUTTI_TESTS)
      tutti_replay(${name}_${stem} ${source} ${arg_ROOT} "${linked}")
    endif()
  endforeach()
endfunction()

# x_<set>.cc is reached only after the processor was asked; the shared header is not for it.
function(tutti_instructions sources set)
  list(FILTER sources INCLUDE REGEX "_${set}\\.cc$")
  set_source_files_properties(${sources} PROPERTIES
    COMPILE_OPTIONS "-O3;-fno-math-errno;${ARGN}" SKIP_PRECOMPILE_HEADERS ON)
endfunction()

# Every test but base's may use the simulated world, whatever its layer.
function(tutti_test name sources includes deps concurrent)
  add_executable(${name} EXCLUDE_FROM_ALL ${sources})
  # These compile kernels, whose prefetches are constants only to an optimiser.
  set(emulated ${sources})
  list(FILTER emulated INCLUDE REGEX "_emulated_test\\.cc$")
  set_source_files_properties(${emulated} PROPERTIES
    COMPILE_OPTIONS $<$<CONFIG:Sanitize>:-O1> SKIP_PRECOMPILE_HEADERS ON)
  tutti_batches(${name} "${sources}")
  target_include_directories(${name} PRIVATE ${includes})
  if(NOT name STREQUAL "base_test")
    list(APPEND deps $<TARGET_NAME_IF_EXISTS:world_sim>)
  endif()
  target_link_libraries(${name} PRIVATE tutti_test_flags tutti_doctest ${deps})
  target_precompile_headers(${name} REUSE_FROM tutti_test_pch)
  add_test(NAME ${name} COMMAND ${tutti_test_launcher} $<TARGET_FILE:${name}> ${tutti_test_options}
           WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  add_dependencies(tests ${name})
  if(concurrent)
    set_property(TEST ${name} PROPERTY LABELS concurrent)
    add_dependencies(concurrent_tests ${name})
  endif()
endfunction()

function(tutti_fuzzer name source includes deps)
  add_executable(${name} EXCLUDE_FROM_ALL ${source})
  target_include_directories(${name} PRIVATE ${includes})
  target_link_libraries(${name} PRIVATE ${deps})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzzers)
  add_dependencies(fuzzers ${name})
endfunction()

# The fuzz target without libFuzzer, over the inputs kept in tests/corpus/<name>, as a test.
function(tutti_replay name source includes deps)
  set(corpus ${PROJECT_SOURCE_DIR}/tests/corpus/${name})
  if(NOT IS_DIRECTORY ${corpus})
    return()
  endif()
  add_executable(${name}_replay EXCLUDE_FROM_ALL ${source} ${PROJECT_SOURCE_DIR}/cmake/replay.cc)
  target_include_directories(${name}_replay PRIVATE ${includes})
  target_link_libraries(${name}_replay PRIVATE ${deps})
  add_test(NAME ${name}_replay COMMAND ${tutti_test_launcher} $<TARGET_FILE:${name}_replay> ${corpus}
           WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  add_dependencies(tests ${name}_replay)
endfunction()

# src/wire/rpc.proto becomes "wire/rpc.pb.h". Generated code is compiled without our warnings.
function(tutti_protos name root folder)
  file(GLOB protos CONFIGURE_DEPENDS ${root}/${folder}/*.proto)
  if(NOT protos)
    return()
  endif()
  set(generated_root ${PROJECT_BINARY_DIR}/generated)
  file(MAKE_DIRECTORY ${generated_root})
  foreach(proto IN LISTS protos)
    cmake_path(RELATIVE_PATH proto BASE_DIRECTORY ${root} OUTPUT_VARIABLE path)
    string(REGEX REPLACE "\\.proto$" "" stem ${generated_root}/${path})
    add_custom_command(
      OUTPUT ${stem}.pb.cc ${stem}.pb.h
      COMMAND ${PROTOC} --cpp_out=lite:${generated_root} -I ${root} ${proto}
      DEPENDS ${protos} COMMENT "protoc ${path}" VERBATIM)
    list(APPEND generated ${stem}.pb.cc ${stem}.pb.h)
  endforeach()
  add_custom_target(${name}_proto_sources DEPENDS ${generated})
  add_dependencies(protos ${name}_proto_sources)
  add_library(${name}_proto STATIC ${generated})
  target_include_directories(${name}_proto SYSTEM PUBLIC ${generated_root})
  target_link_libraries(${name}_proto PUBLIC tutti_protobuf)
  target_compile_options(${name}_proto PRIVATE -w)
  if(NOT name STREQUAL "wire")
    target_link_libraries(${name}_proto PUBLIC $<TARGET_NAME_IF_EXISTS:wire_proto>)
  endif()
endfunction()
