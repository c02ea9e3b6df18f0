#include "world/real/fd.h"

#include <unistd.h>

namespace tutti {

namespace {

class Descriptors final : public HandleTable {
 public:
  void close_handle(int number) override { ::close(number); }
};
constinit Descriptors descriptors;

}  // namespace

Handle own_fd(int fd) { return {fd, descriptors}; }

}  // namespace tutti
