// The child's side of a spawn, between clone and exec.
//
// The child runs in the memory of its parent, on a stack of its own, while the parent's thread is
// suspended but the parent's other threads are not. So it makes system calls and nothing else: no
// allocation, no locks, no library calls that might take any. It writes only to its stack and to
// the plan it was given.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

// For code that runs in the child: sanitizers keep books per stack and thread that a borrowed one
// must not touch.
#define TUTTI_UNINSTRUMENTED __attribute__((no_sanitize("address", "thread", "undefined")))

namespace tutti {

// The step that failed, for the parent to put into words.
enum class SpawnStep : unsigned char {
  none,
  group,
  session,
  descriptors,
  terminal,
  nice,
  user,
  folder,
  parent,
  exec,
};

// Everything the child does, made by the parent beforehand.
struct SpawnPlan {
  struct Move {
    int from;
    int to;
  };

  const char* path = nullptr;
  char* const* arguments = nullptr;
  char* const* environment = nullptr;
  const char* folder = nullptr;  // nullptr keeps the parent's
  Move* moves = nullptr;         // `from` is overwritten
  size_t move_count = 0;
  bool standard_given[3] = {};  // 0, 1 and 2 that are not are /dev/null
  int beyond_moves = 3;         // the first number above 2 and every `to`
  int descriptor_limit = 0;     // none is open at or above it
  int join_group = -1;          // a cgroup's folder to enter, when clone could not do it
  bool new_session = false;
  bool controlling_terminal = false;
  int nice = 0;
  bool change_user = false;
  uid_t user = 0;
  gid_t user_group = 0;
  const gid_t* groups = nullptr;
  size_t group_count = 0;
  int parent_death_signal = 0;
  pid_t parent = 0;
  uint64_t open_files[2] = {};  // the limits to set, soft and hard; 0 keeps the parent's

  // What the child has to say when it does not become the program.
  SpawnStep failed = SpawnStep::none;
  int error = 0;
};

// Becomes the program, or notes in the plan why not and exits. All signals are blocked on entry.
[[noreturn]] void spawn_child(SpawnPlan& plan);

}  // namespace tutti
