#include "world/real/terminal.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "world/real/errors.h"
#include "world/real/fd.h"

namespace tutti {

Result<Processes::Terminal> open_terminal(unsigned columns, unsigned rows) {
  constexpr int kFlags = O_RDWR | O_NOCTTY | O_CLOEXEC;
  Handle ours = own_fd(posix_openpt(kFlags | O_NONBLOCK));
  if (!ours.open())
    return fail(errno_with_advice(errno, "open a terminal", "is /dev/pts mounted?"));
  if (grantpt(ours.number()) != 0 || unlockpt(ours.number()) != 0)
    return fail_errno(errno, "unlock a terminal");
  // By the descriptor, not by a name, which another mount of /dev/pts could give to another.
  Handle theirs = own_fd(ioctl(ours.number(), TIOCGPTPEER, kFlags));
  if (!theirs.open()) return fail_errno(errno, "open a terminal's other end");
  constexpr unsigned kMost = 65'535;  // what the kernel's fields hold
  const winsize size{static_cast<unsigned short>(std::min(rows, kMost)),
                     static_cast<unsigned short>(std::min(columns, kMost)), 0, 0};
  if (ioctl(ours.number(), TIOCSWINSZ, &size) != 0) return fail_errno(errno, "size a terminal");
  return Processes::Terminal{std::move(ours), std::move(theirs)};
}

}  // namespace tutti
