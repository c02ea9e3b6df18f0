// The network of this process: TCP, Unix sockets, and streams over descriptors it was given.
//
// Ignores SIGPIPE for the whole process, unless somebody handles it: writing to a pipe that nobody
// reads is an error of that write.
#pragma once

#include <memory>
#include <string>

#include "world/network.h"
#include "world/real/loop.h"

namespace tutti {

class RealNetwork final : public Network {
 public:
  explicit RealNetwork(Loop& loop);

  Task<Result<std::unique_ptr<Listener>>> listen(Address address) override;
  Task<Result<std::unique_ptr<Stream>>> connect(Address address) override;
  Result<Pair> pair() override;
  // Also for terminals and pipes shared with other processes: where it can, it opens them anew
  // rather than make the others' descriptors non-blocking. Code::unsupported for regular files.
  Result<std::unique_ptr<Stream>> adopt(Handle handle) override;

 private:
  Loop& loop_;
};

}  // namespace tutti
