// Pseudo-terminals, and the one that this process is used from.
#pragma once

#include <memory>

#include "world/processes.h"

namespace tutti {

// Our end does not block; theirs does, as programs expect.
Result<Processes::Terminal> open_terminal(unsigned columns, unsigned rows);

struct TerminalSize {
  unsigned columns = 80;
  unsigned rows = 24;
};
// Of what a descriptor is; where that is no terminal, what terminals were for decades.
TerminalSize terminal_size(int number);

// Keys as they are pressed, and a screen of one's own: from its making to its end, standard input
// and output are ours. However the process ends, but for SIGKILL, the terminal is as it was before:
// also by a crash, and by exit(). One at a time.
class FullScreen {
 public:
  static Result<std::unique_ptr<FullScreen>> open();
  ~FullScreen();
  FullScreen(const FullScreen&) = delete;
  FullScreen& operator=(const FullScreen&) = delete;

  // For a pause in which somebody else has the terminal.
  void leave();
  void enter();

 private:
  FullScreen() = default;
};

}  // namespace tutti
