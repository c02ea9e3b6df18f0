// One operation of a disk, in a form that both a thread and a ring can carry out.
#pragma once

#include <liburing.h>
#include <sys/stat.h>

#include <string>
#include <vector>

namespace tutti {

struct DiskRequest {
  enum class Kind : unsigned char {
    open,
    read,
    write,
    sync,
    rename,
    remove,
    info,
    truncate,
    make_directories,
    list,
    free_bytes,
  };

  Kind kind;
  int fd = -1;
  const char* path = nullptr;
  const char* to = nullptr;  // of rename
  int flags = 0;             // of open and remove
  mode_t mode = 0;
  uint64_t offset = 0;  // or the size to truncate to
  void* data = nullptr;
  size_t size = 0;
  struct statx* info = nullptr;
  std::vector<std::string>* names = nullptr;  // what list found
};

// Blocks. The result, or the error as a negative number.
int64_t perform(const DiskRequest& request);

// Whether rings can do it at all.
bool ring_can(const DiskRequest& request);
void prepare(const DiskRequest& request, io_uring_sqe& entry);

}  // namespace tutti
