# The Python extension tutti._core. In a checkout it is placed beside the package's sources, where
# PYTHONPATH=python finds it; in a wheel it is installed with the `tutti` command.
if(NOT SKBUILD AND EXISTS ${PROJECT_SOURCE_DIR}/.venv/bin/python)
  set(Python_EXECUTABLE ${PROJECT_SOURCE_DIR}/.venv/bin/python)
endif()
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)
execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir
                OUTPUT_STRIP_TRAILING_WHITESPACE OUTPUT_VARIABLE nanobind_ROOT
                COMMAND_ERROR_IS_FATAL ANY)
find_package(nanobind CONFIG REQUIRED)

nanobind_add_module(_core NB_STATIC NOMINSIZE
  ${PROJECT_SOURCE_DIR}/python/core.cc ${PROJECT_SOURCE_DIR}/python/record.cc
  ${PROJECT_SOURCE_DIR}/python/cluster.cc ${PROJECT_SOURCE_DIR}/python/loop_thread.cc
  ${PROJECT_SOURCE_DIR}/python/fabric.cc ${PROJECT_SOURCE_DIR}/python/parcel.cc
  ${PROJECT_SOURCE_DIR}/python/plan.cc ${PROJECT_SOURCE_DIR}/python/shard.cc
  ${PROJECT_SOURCE_DIR}/python/vault.cc ${PROJECT_SOURCE_DIR}/python/model.cc
  ${PROJECT_SOURCE_DIR}/python/program.cc ${PROJECT_SOURCE_DIR}/python/trainer.cc
  ${PROJECT_SOURCE_DIR}/python/decoder.cc)
# Of cli, what the command and Python share; the rest of the archive is not taken.
target_link_libraries(_core PRIVATE cli rank serve train cluster run compile kernels fabric wire record world base)
target_link_options(_core PRIVATE -Wl,--exclude-libs,ALL)
target_compile_options(nanobind-static PRIVATE -w)

if(SKBUILD)
  install(TARGETS _core DESTINATION tutti COMPONENT python)
  if(TARGET tutti)
    install(TARGETS tutti DESTINATION ${SKBUILD_SCRIPTS_DIR} COMPONENT python)
  endif()
else()
  set_target_properties(_core PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_SOURCE_DIR}/python/tutti)
endif()
