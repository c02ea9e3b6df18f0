// A simulated process: a coroutine that is given what a program gets, and its own view of World.
// When it returns, or a signal ends it, its strands and open handles go with it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/alike.h"
#include "world/channel.h"
#include "world/sim/host.h"
#include "world/sim/network.h"
#include "world/sim/processes.h"

namespace tutti {

class SimProcess final : public World {
 public:
  SimProcess(SimHost& host, pid_t pid, const SpawnOptions& options, uid_t user);
  ~SimProcess() override;

  Clock& clock() override { return host_.clock(); }
  Network& network() override { return network_; }
  Disk& disk() override { return host_.disk(); }
  Processes& processes() override { return processes_; }
  Memory& memory() override { return host_.memory(); }
  Random& random() override { return host_.random(); }
  const std::string& host_name() const override { return host_.host_name(); }
  bool fault(CodePlace& place) override { return host_.fault(place); }

  pid_t pid() const { return pid_; }
  uid_t user() const { return user_; }
  SimHost& host() { return host_; }
  Scope& scope() { return scope_; }
  std::vector<std::string> arguments() const;
  std::string command() const { return arguments().front(); }
  // The value of KEY, or "" when it is not set.
  std::string variable(std::string_view key) const;

  // A handle it was started with, by the number it has here; once each.
  Result<Handle> take_handle(int number);
  Result<std::unique_ptr<Stream>> take_stream(int number);

  // A signal has ended it, and its last moment comes after this.
  bool dying() const { return life_.ending(); }

  // From now on this signal is given by next_signal() instead of ending the process.
  void catch_signal(int number) { caught_ |= uint64_t{1} << number; }
  Channel<int>::Recv next_signal() { return signals().recv(); }

 private:
  friend class ProcessTable;
  // Its first and its last moment.
  class Life final : public SimEvent {
   public:
    explicit Life(SimProcess& process) : SimEvent(EventKind::process), process_(process) {}
    void begin();
    void end(int code, int signal);
    bool ending() const { return ending_; }

   private:
    void fire() override;
    SimProcess& process_;
    int code_ = 0;
    int signal_ = 0;
    bool ending_ = false;
  };
  Channel<int>& signals();
  static Task<void> main(SimProcess& process, Simulator& simulator);

  static constexpr size_t kSignalsKept = 64;  // as Linux, more of them are merged

  SimHost& host_;
  pid_t pid_;
  uid_t user_;
  // As in memory: each with a zero behind it.
  AlikeBytes arguments_;
  AlikeBytes environment_;
  std::vector<std::pair<int, Handle>> handles_;
  uint64_t caught_ = 0;
  std::unique_ptr<Channel<int>> signals_;  // when it is first asked for
  SimNetwork network_;
  SimProcesses processes_;
  Life life_{*this};
  Scope scope_{Scope::Root{}};
};

}  // namespace tutti
