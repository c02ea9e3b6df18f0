// Processes of one host: start them, hear of their end, and make sure that nothing is left.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "world/handle.h"
#include "world/stream.h"
#include "world/task.h"

namespace tutti {

// How a process ended, and what it used.
struct Exit {
  int code = 0;    // when it returned
  int signal = 0;  // when it was killed by one, else 0
  bool core_dumped = false;
  Duration user_time{};
  Duration system_time{};
  uint64_t peak_memory_bytes = 0;
  // The kernel had killed it, or something it started, for memory; known only to who compares
  // Processes::memory_kills().
  bool out_of_memory = false;

  bool ok() const { return code == 0 && signal == 0; }
  // The shell's convention: the code, or 128 + signal.
  int shell_code() const { return signal != 0 ? 128 + signal : code; }
  // "exit code 3", "killed by SIGSEGV (segmentation fault)".
  std::string text() const;
};

// What a family of processes uses: a process and what it started.
struct Usage {
  Duration processor{};       // of those that run, and of those they waited for
  uint64_t memory_bytes = 0;  // resident; what two of them share counts twice
  Duration age{};             // of the process itself
};

// A set of processes the kernel keeps together (a cgroup): whatever they start is in it too.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;  // removes the group if it is empty
  virtual const std::string& name() const = 0;
  // Ends every member at once, also those that would escape.
  virtual Result<void> kill() = 0;
  // Waits until no member is left.
  virtual Task<Result<void>> emptied() = 0;
  virtual Result<std::vector<pid_t>> members() = 0;
  // As when it was made: nobody is in it, members made no groups in it, and it was never killed.
  virtual bool as_new() = 0;
};

struct SpawnOptions {
  std::vector<std::string> arguments;    // [0] is looked up in PATH unless it has a slash
  std::string program;                   // run instead, when [0] is only its name
  std::vector<std::string> environment;  // "KEY=value", all of it
  std::string folder;                    // "" keeps ours
  // Handles the child gets, and the number each has there. 0, 1 and 2 are /dev/null unless given.
  struct Inherit {
    const Handle* handle;
    int number;
  };
  std::vector<Inherit> inherit;
  ProcessGroup* group = nullptr;
  std::optional<uid_t> user;
  std::optional<gid_t> user_group;
  bool new_session = false;           // setsid
  int parent_death_signal = 0;        // sent to the child when its parent dies
  bool controlling_terminal = false;  // with new_session: handle given as 0 is a pty's end
  int nice = 0;
  uint64_t open_files = 0;  // the soft limit it gets; 0 keeps ours
};

class Scope;

// Hears how a process ended, once. Called from the top of an event loop.
class ExitTaker {
 public:
  virtual void on_exit(const Exit& exit) = 0;

 protected:
  ~ExitTaker() = default;
};

class Process {
 public:
  virtual ~Process() = default;  // forgets it; does not end it
  virtual pid_t pid() const = 0;
  // The exit status, kept until asked for; may be awaited by one strand, and again afterwards.
  virtual Task<Result<Exit>> wait() = 0;
  // Whether it has been killed, or has failed, but has not ended yet: the kernel is giving back
  // what it had. Its program does nothing any more.
  virtual bool failing() { return false; }
  // The other way: the taker hears of it, unless the scope is cancelled or the Process dies before.
  // What waits for it is the scope's, or nothing at all: there may be a million processes.
  virtual void tell_exit(ExitTaker& taker, Scope& scope);
  // Code::not_found when it has ended. Never reaches another process that got the same number.
  virtual Result<void> signal(int number) = 0;
  // As signal(), to its whole family: itself and what it started, but for those who left the Unix
  // process group that it leads since SpawnOptions::new_session.
  virtual Result<void> signal_family(int number) = 0;
};

class Processes {
 public:
  virtual ~Processes() = default;
  // The error says which step failed: "sh: no such command", "folder /x: …".
  virtual Result<std::unique_ptr<Process>> spawn(const SpawnOptions& options) = 0;
  // One of each, as by spawn(), on two cores at once where that is faster. When one fails, those
  // that were not begun by then are not, and have Code::cancelled.
  using Spawns = std::vector<Result<std::unique_ptr<Process>>>;
  virtual Spawns spawn_all(std::span<const SpawnOptions* const> all);

  struct Pipe {
    Handle reader;
    Handle writer;
  };
  // For what a child writes and we read: its end blocks, as programs expect, ours does not.
  virtual Result<Pipe> pipe() = 0;
  struct Terminal {
    Handle ours;    // adopt() it: what we read is what the child printed
    Handle theirs;  // give it to the child as 0, 1 and 2
  };
  virtual Result<Terminal> terminal(unsigned columns, unsigned rows) = 0;

  // Orphans among our descendants become our children instead of init's. The error says why they
  // could not all be found again: Code::unsupported without a /proc of our own.
  virtual Result<void> become_subreaper() = 0;
  // Every descendant of this process that lives, parents first, but for those to spare and what is
  // below them. A look may miss one whose parent ends meanwhile.
  virtual Result<std::vector<pid_t>> descendants(std::span<const pid_t> spare = {}) = 0;
  // Exact: no child, not even an ended one, so nothing descends from this process.
  virtual bool childless() = 0;
  virtual Result<void> signal(pid_t pid, int number) = 0;
  // Whether anyone is left of the family of a process that we started and that has ended. May be
  // true for too long, when its number was given to another family.
  virtual bool family_lives(pid_t leader) = 0;
  // Of each family by its leader, as for family_lives(); none of those whose leader has ended. One
  // look at all processes, however many are asked for.
  virtual std::map<pid_t, Usage> usage_of(std::span<const pid_t> leaders) = 0;
  // Collects exits of children we hold no Process of (adopted orphans), and of no others.
  virtual size_t reap_orphans() = 0;

  // Code::unsupported when there is no writable cgroup2 mount.
  virtual Result<std::unique_ptr<ProcessGroup>> create_group(std::string name) = 0;
  // A group made earlier, by this process or a dead one.
  virtual Result<std::unique_ptr<ProcessGroup>> open_group(std::string name) = 0;
  // Ends and removes groups whose makers have died without doing so; gives how many.
  virtual size_t sweep_groups() { return 0; }
  virtual pid_t own_pid() const = 0;
  // How many processes the kernel has killed for memory so far, in the group or, when that does not
  // count them, around this process. Code::unsupported where nothing counts them.
  virtual Result<uint64_t> memory_kills(const ProcessGroup* group) = 0;
  // What a process calls itself, for people; "" when it is gone.
  virtual std::string name_of(pid_t pid) = 0;
  // The kernel's letter for what it does: D is a wait that nothing interrupts; 0 when it is gone.
  virtual char state_of(pid_t pid) = 0;
  // The user this process acts as; 0 in a world without users.
  virtual uid_t own_uid() const { return 0; }
};

}  // namespace tutti
