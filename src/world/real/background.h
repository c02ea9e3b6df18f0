// What programs that run in the background need of Linux: a private folder, a file that says which
// process has it, a log, and a way to end one that never meets another with the same number.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/units.h"
#include "world/handle.h"

namespace tutti {

// With all that leads to it; only its owner may look inside.
Result<void> make_private_folder(const std::string& path);

// A new one under /tmp, for its owner alone, and with a short name: sockets go into it.
Result<std::string> make_temporary_folder(const std::string& prefix);
// With all that is in it; one that is gone already is fine.
Result<void> remove_folder(const std::string& path);

// Names this process in the file for as long as it lives: "PID START", the start in the kernel's
// ticks since it booted. Code::exists when another process has it.
class PidFile {
 public:
  static Result<PidFile> take(const std::string& path);

 private:
  explicit PidFile(Handle file) : file_(std::move(file)) {}
  Handle file_;  // locked; the kernel unlocks it however we end
};

// The process that has the file; nothing when it has ended, whoever has its number now.
std::optional<pid_t> running_program(const std::string& pid_file);
// SIGTERM or another signal, and SIGKILL when it is still there after the patience. Waits for its
// end.
Result<void> end_program(const std::string& pid_file, Duration patience, int first = SIGTERM);

// Whether a signal is more to a process than its death: it catches it, or waits for it.
bool expects_signal(pid_t pid, int number);

// Whether a process that we know to live now ends in time.
bool ends_within(pid_t pid, Duration patience);

// To be given to a child as 1 and 2; what is written is added at the end. A long one is begun anew,
// and what it held stays beside it as PATH.old.
Result<Handle> open_log_file(const std::string& path);

// This process before others, if it may. Says whether it may.
bool change_own_nice(int by);
// The same of the session that it leads: where the kernel has autogroups it shares a core among
// sessions first, whatever the processes in them say. A session begins with 0.
void give_own_nice_to_session();

std::string current_folder();

}  // namespace tutti
