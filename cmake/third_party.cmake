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
tutti_third_party(protobuf libprotobuf-lite)
find_program(PROTOC protoc REQUIRED)

# Debian ships fmt only as a shared library; its sources are all in its headers.
add_library(tutti_fmt STATIC ${PROJECT_SOURCE_DIR}/cmake/fmt.cc)
