#include "world/processes.h"

#include <csignal>
#include <cstring>

#include "world/scope.h"

namespace tutti {

std::string Exit::text() const {
  const char* memory = out_of_memory ? "; out of memory" : "";
  if (signal == 0) return fmt::format("exit code {}{}", code, memory);
  const char* name = sigabbrev_np(signal);
  const char* words = sigdescr_np(signal);
  const std::string dumped = core_dumped ? ", core dumped" : "";
  if (name == nullptr) return fmt::format("killed by signal {}{}", signal, dumped);
  std::string described = words == nullptr ? "" : words;
  if (!described.empty()) described[0] = static_cast<char>(std::tolower(described[0]));
  return fmt::format("killed by SIG{} ({}{}{})", name, described, dumped, memory);
}

Processes::Spawns Processes::spawn_all(std::span<const SpawnOptions* const> all) {
  Spawns spawns;
  bool failed = false;
  for (const SpawnOptions* options : all) {
    spawns.push_back(failed ? fail(cancelled_error()) : spawn(*options));
    failed = failed || !spawns.back();
  }
  return spawns;
}

namespace {

Task<void> wait_for(Process& process, ExitTaker& taker) {
  auto exit = co_await process.wait();
  if (exit) taker.on_exit(*exit);
}

}  // namespace

void Process::tell_exit(ExitTaker& taker, Scope& scope) { scope.spawn(wait_for(*this, taker)); }

}  // namespace tutti
