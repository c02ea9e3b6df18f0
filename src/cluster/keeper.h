// The keeper: one small process per job and host, parent and subreaper of the job's ranks. It holds
// what must outlive its controller (the ranks themselves, the pipes of their output, terminals,
// arenas, exit statuses not yet acknowledged) and does nothing else: it reads no output and decides
// nothing. docs/keeper.md is the manual of its protocol.
//
// Its controller is whoever is at the other end of a Unix stream: `tutti run`, or an agent. When
// the keeper ends, for whatever reason, so do its ranks and everything they started.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cluster/keeper_stream.h"
#include "cluster/rank_starter.h"
#include "world/channel.h"
#include "world/world.h"

namespace tutti {

struct KeeperOptions {
  std::string group;   // name for the kernel's group of the ranks; "" uses none
  std::string linger;  // a Unix socket's path: the keeper outlives its controller and waits there
                       // for the next; "" ends everything when the controller's stream closes
};

// Runs until told to shut down or, without `linger`, until the controller is gone. Nothing of the
// ranks is left when it returns; the error says what could not be ended.
Task<Result<void>> keep(World& world, KeeperOptions options, std::unique_ptr<Stream> controller);

class Keeper {
 public:
  Keeper(World& world, KeeperOptions options);
  Task<Result<void>> run(std::unique_ptr<Stream> controller);

 private:
  // Serving (keeper.cc). An error ends the session, never the keeper.
  Task<Result<void>> serve_one(std::unique_ptr<Stream> stream);
  Task<Result<void>> serve_and_linger(std::unique_ptr<Stream> stream);
  Task<void> serve_until_over(std::unique_ptr<Stream> stream, Scope& session);
  Task<Result<void>> welcome(KeeperStream& stream);
  Task<void> read_commands(KeeperStream& stream, Scope& session);
  Task<void> send_exits(KeeperStream& stream);

  // Commands (keeper_commands.cc). An error here means that the stream is broken; what the
  // controller asked for wrongly is answered with a Failure.
  Task<Result<void>> handle(KeeperStream& stream, KeeperFrame frame);
  Task<Result<void>> handle_unanswered(KeeperStream& stream, KeeperFrame frame);
  Task<Result<void>> answer_spawn(KeeperStream& stream, KeeperFrame frame);
  Task<Result<void>> answer_list(KeeperStream& stream);
  Task<Result<void>> answer_signal(KeeperStream& stream, KeeperFrame frame);
  Task<Result<void>> answer_create_arena(KeeperStream& stream, KeeperFrame frame);
  Task<Result<void>> answer_drop_arena(KeeperStream& stream, KeeperFrame frame);
  Task<Result<void>> send_ranks(KeeperStream& stream, std::vector<uint32_t> which);
  Task<Result<void>> send_arenas(KeeperStream& stream, std::vector<std::string> which);
  Result<std::vector<uint32_t>> spawn(const KeeperFrame& frame);
  Result<void> create_arena(const keeper::CreateArena& command);
  void acknowledge(uint64_t sequence);

  Task<void> watch(uint32_t rank);
  Task<void> reap_orphans();
  Task<void> end_ranks(int number, Duration grace);
  Task<void> leave_after_grace(Scope& session);

  struct Arena {
    Handle handle;
    uint64_t size_bytes;
  };

  World& world_;
  KeeperOptions options_;
  std::unique_ptr<ProcessGroup> group_;
  std::string no_group_because_;
  bool group_refuses_ = false;  // the kernel put no rank into it
  std::map<uint32_t, HeldRank> ranks_;
  std::map<std::string, Arena> arenas_;
  std::map<uint64_t, keeper::Exited::Rank> exits_;  // by sequence
  uint64_t next_sequence_ = 1;
  Channel<char> exit_bell_{1};  // rung when exits_ grows
  Scope* lives_ = nullptr;      // strands that watch ranks, and those that end them
  std::vector<pid_t> asked_;    // leaders of the families that were asked to end
  Instant grace_ends_{};        // of those asked
  bool shutdown_ = false;
};

}  // namespace tutti
