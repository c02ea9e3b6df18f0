// A gang of ranks on this machine, from their start to the last of their output.
//
// run_gang() starts a keeper, has it start all ranks at once, hands their output to a listener, and
// ends them all as soon as one fails, the time is up or a signal comes. When it returns, nothing of
// the gang is left, whoever was killed meanwhile. The calling process becomes a
// subreaper: what a dead keeper leaves behind comes to us.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cluster/keeper_client.h"
#include "world/channel.h"
#include "world/world.h"

namespace tutti {

struct GangOptions {
  uint32_t size = 1;
  std::vector<std::string> command;
  std::vector<std::string> environment;  // "KEY=value", common to all ranks
  std::string folder;                    // "" is ours
  std::optional<Duration> timeout;
  Duration grace = 5s;  // between SIGTERM and SIGKILL
  std::string master_address = "127.0.0.1";
  uint16_t master_port = 0;  // 0 is one that is free
  uint64_t open_files = 0;   // the ranks' soft limit; 0 is the keeper's own
  StartKeeperOptions keeper;
};

enum class GangEnd : unsigned char {
  finished,     // every rank returned 0
  rank_failed,  // one did not, and the others were ended
  timed_out,
  interrupted,  // by a signal to us
  output_lost,  // the listener could take no more
  not_started,  // no rank ran
  keeper_lost,  // the keeper died, and everything with it
  killed,       // with `tutti kill`, on a cluster
  preempted,    // with `tutti kill --notice`
};

enum class OutputEnd : unsigned char {
  complete,
  held,       // somebody outside of the gang held on to a rank's output when we stopped reading
  not_taken,  // the listener was too slow for what time there was
};

struct RankReport {
  pid_t pid = 0;
  std::optional<Exit> exit;       // unknown when the keeper was lost
  uint64_t sequence = 0;          // in the order of exits, from 1
  int last_signal_sent = 0;       // to end it
  bool outlived_grace = false;    // it was asked to end, and had to be killed
  std::string signalled_by = {};  // who sent it what ended it, with `tutti signal`
  Duration lived{};
};

struct GangReport {
  GangEnd end = GangEnd::finished;
  std::vector<RankReport> ranks;
  std::optional<uint32_t> culprit;  // the first rank that failed by itself
  std::vector<uint32_t> running;    // when we began to end them
  int signal = 0;                   // when interrupted
  std::string ended_by;             // the user who killed or preempted it, if that is known
  Duration notice{};                // that it had then
  std::optional<Error> error;       // when not started, or output or the keeper was lost
  bool hurried = false;             // a second signal wanted no more grace
  std::optional<Error> not_ended;   // what the gang started and nobody could end
  OutputEnd output = OutputEnd::complete;
  Duration elapsed{};

  // Of the culprit (128 + signal when one killed it), 124 for a timeout, 128 + signal when
  // interrupted, 126 or 127 when the command cannot be run, as shells do; 1 when all went well but
  // not everything could be ended; 128 + SIGTERM when somebody else killed it.
  int exit_code() const;
};

enum class RankStream : unsigned char { output, error };

// Told what happens, on the strands of run_gang().
class GangListener {
 public:
  virtual ~GangListener() = default;
  virtual void on_started(uint32_t rank, pid_t pid, bool was_spare) = 0;
  // Bytes in order; none at the end of the stream. May wait: meanwhile the rank's pipe fills and
  // then the rank waits too. An error ends the gang.
  virtual Task<Result<void>> on_output(uint32_t rank, RankStream stream, Bytes bytes) = 0;
  virtual void on_exit(uint32_t rank, const RankReport& report) = 0;
  // We begin to end those that still run.
  virtual void on_ending(const GangReport& so_far) = 0;
  // A signal came while ending: what is left is killed.
  virtual void on_hurried() {}
  // The ranks are stopped; they go on when this returns.
  virtual void on_paused() {}
};

// Signals that came for us; the first ends the gang with grace, the second at once. SIGTSTP stops
// the ranks, until on_paused() returns.
Task<GangReport> run_gang(World& world, GangOptions options, GangListener& listener,
                          Channel<int>& signals);

// RANK, WORLD_SIZE, … of one rank, as torchrun names them, but for MASTER_ADDR and MASTER_PORT.
std::vector<std::string> rank_environment(uint32_t rank, uint32_t size);

}  // namespace tutti
