# How everything is compiled. Build types differ in optimisation alone; assertions stay on in all.
set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# Objects serve both the programs and the Python extension, so they are compiled once, position
# independent; hidden visibility keeps that free of indirect calls.
add_compile_options(-fPIC)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g")
set(CMAKE_CXX_FLAGS_SANITIZE "-O1 -g1")
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

add_compile_options(-Wall -Wextra -Wno-missing-field-initializers
                    -fno-omit-frame-pointer -ffp-contract=off
                    -ffunction-sections -fdata-sections)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # clang sees this code for fuzzing and lint; what it warns of in libstdc++ is no error.
  add_compile_options(-Werror)
  # g++ 12 reports these in its own standard library (std::string, std::expected, coroutine frames).
  add_compile_options(-Wno-restrict -Wno-maybe-uninitialized -Wno-array-bounds
                      -Wno-stringop-overflow -Wno-stringop-overread -Wno-interference-size)
  # It gives the frame of a coroutine template linkage that its unnamed parameters have not.
  add_compile_options(-Wno-subobject-linkage)
endif()

if(TUTTI_SANITIZE)
  add_compile_options(-fsanitize=${TUTTI_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${TUTTI_SANITIZE})
endif()
if(TUTTI_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# Messages and debug information name files from the root of the repository, wherever it is.
add_compile_options(-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=)

# One cache serves every checkout: paths are hashed from the root. PCH and ccache get along only when
# told so; see "Precompiled headers" in ccache's manual.
find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
endif()
