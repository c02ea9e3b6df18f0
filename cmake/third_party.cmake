# What we link from Debian, as tutti_<name>. Archives, so that the `tutti` command starts without a
# search for shared libraries; only glibc stays dynamic.
function(tutti_third_party name)
  add_library(tutti_${name} INTERFACE)
  foreach(archive IN LISTS ARGN)
    find_library(TUTTI_${archive} NAMES ${archive}.a REQUIRED)
    target_link_libraries(tutti_${name} INTERFACE ${TUTTI_${archive}})
  endforeach()
endfunction()

tutti_third_party(uring liburing)
tutti_third_party(ssl libssl libcrypto)
tutti_third_party(sqlite libsqlite3)
target_link_libraries(tutti_sqlite INTERFACE m)
# Debian's archive of protobuf cannot be part of a Python module: that links the shared library.
find_library(TUTTI_libprotobuf-lite NAMES libprotobuf-lite.a REQUIRED)
find_library(TUTTI_libprotobuf-lite-shared NAMES libprotobuf-lite.so REQUIRED)
add_library(tutti_protobuf INTERFACE)
target_link_libraries(tutti_protobuf INTERFACE
  $<IF:$<STREQUAL:$<TARGET_PROPERTY:TYPE>,MODULE_LIBRARY>,${TUTTI_libprotobuf-lite-shared},${TUTTI_libprotobuf-lite}>)
find_program(PROTOC protoc REQUIRED)

# Debian ships fmt only as a shared library; its sources are all in its headers.
add_library(tutti_fmt STATIC ${PROJECT_SOURCE_DIR}/cmake/fmt.cc)
