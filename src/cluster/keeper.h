// The keeper: one small process per job and host, parent and subreaper of the job's ranks. It holds
// what must outlive its controller (the ranks themselves, the pipes of their output, terminals,
// arenas, exit statuses not yet acknowledged) and does nothing else: it reads no output and decides
// nothing. docs/keeper.md is the manual of its protocol.
//
// Its controller is whoever is at the other end of a Unix stream: `tutti run`, or an agent. When
// the keeper ends, for whatever reason, so do its ranks and everything they started.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cluster/keeper_messages.h"
#include "cluster/keeper_stream.h"
#include "cluster/memory_blame.h"
#include "cluster/rank_starter.h"
#include "world/alarm.h"
#include "world/scope.h"
#include "world/world.h"

namespace tutti {

struct KeeperOptions {
  std::string group;   // name for the kernel's group of the ranks; "" uses none
  std::string linger;  // a Unix socket's path: the keeper outlives its controller and waits there
                       // for the next; "" ends everything when the controller's stream closes
  uint64_t heap_bytes_each = 0;  // ranks with control pages share a heap of this times the pages
  uint32_t speak = kHighestKeeperVersion;  // no version past this: for tests of mixed versions
};

// Runs until told to shut down or, without `linger`, until the controller is gone. Nothing of the
// ranks is left when it returns; the error says what could not be ended.
Task<Result<void>> keep(World& world, KeeperOptions options, std::unique_ptr<Stream> controller);

class Keeper final : private ConnectionTaker, private RankWatcher, private WakeTaker {
 public:
  Keeper(World& world, KeeperOptions options);

  // What keep() does without and with `linger`.
  static Task<Result<void>> keep_once(std::unique_ptr<Keeper> keeper,
                                      std::unique_ptr<Stream> controller);
  static Task<Result<void>> keep_lingering(std::unique_ptr<Keeper> keeper,
                                           std::unique_ptr<Stream> controller);

 private:
  // Serving (keeper.cc). An error ends the session, never the keeper.
  Result<void> begin();
  void make_group();
  bool keeps_nothing() const { return ranks_.empty() && exits_.empty() && arenas_.empty(); }
  Task<Result<std::unique_ptr<Listener>>> begin_lingering();
  Task<Result<void>> finish(Result<void> served);
  // One controller's; there is one at a time.
  struct Session final : ByteTaker {
    Session(Keeper& keeper, std::unique_ptr<Stream> controller)
        : keeper(keeper), stream(std::move(controller)) {}
    void on_bytes(Bytes bytes, std::vector<Handle> handles) override;
    Duration pause() override;
    void on_end(Result<void>) override { over.set(); }

    Keeper& keeper;
    KeeperStream stream;
    uint64_t sent = 0;       // the newest exit that it was told
    bool is_sending = true;  // exits: nobody does before it was greeted, then who has some to send
    bool is_handling = false;  // commands
    Event over;
    Scope strands;  // last: they use the rest
  };
  Task<Result<void>> serve_one(std::unique_ptr<Stream> stream);
  // The next controller; null when there is nothing to wait for.
  Task<std::unique_ptr<Stream>> next_controller();
  void on_connection(std::unique_ptr<Stream> stream) override;
  Task<void> begin_session(Session& session, Result<void>& begun);
  Task<Result<void>> greet(KeeperStream& stream);
  Task<Result<void>> welcome(KeeperStream& stream);
  Task<void> handle_all(Session& session);
  void tell_exits();
  Task<void> send_new_exits(Session& session);
  Task<void> send_exits(Session& session);
  keeper::Exited exits_after(uint64_t& sent);

  // Commands (keeper_commands.cc). An error here means that the stream is broken; what the
  // controller asked for wrongly is answered with a Failure.
  Task<Result<void>> handle(KeeperStream& stream, KeeperFrame frame);
  Result<void> check_version(std::string_view newer_part) const;
  Task<Result<void>> handle_unanswered(KeeperStream& stream, KeeperFrame frame);
  Task<Result<void>> answer_spawn(KeeperStream& stream, KeeperFrame frame);
  Task<Result<void>> answer_assign(KeeperStream& stream, KeeperFrame frame);
  Task<Result<void>> answer_list(KeeperStream& stream);
  Task<Result<void>> answer_signal(KeeperStream& stream, KeeperFrame frame);
  Task<Result<void>> answer_create_arena(KeeperStream& stream, KeeperFrame frame);
  Task<Result<void>> answer_drop_arena(KeeperStream& stream, KeeperFrame frame);
  Task<Result<void>> answer_reset(KeeperStream& stream);
  Task<Result<void>> send_ranks(KeeperStream& stream, std::vector<RankName> which);
  Task<Result<void>> send_arenas(KeeperStream& stream, std::vector<const HeldArena*> which);
  void acknowledge(uint64_t sequence);
  void acknowledge_one(uint64_t sequence);
  // Those named, or all when none is; who is not there is left out.
  using Numbers = google::protobuf::RepeatedField<uint32_t>;
  std::vector<HeldRank*> named(const Numbers& ranks, const Numbers& spares);

  // Ranks and arenas (keeper_ranks.cc).
  Result<std::vector<RankName>> spawn(const KeeperFrame& frame, bool& show_heap);
  Result<HeldArena*> check_spawn(const keeper::Spawn& command);
  Result<void> check_page(const HeldArena* arena, uint64_t offset) const;
  Task<Result<void>> assign(keeper::Assign command);
  Result<HeldRank*> check_assign(const keeper::Assign& command);
  Result<HeldArena*> create_arena(const keeper::CreateArena& command);
  Result<void> drop_arena(const std::string& name);
  Result<const HeldArena*> heap_beside(const HeldArena* pages);
  HeldArena* find_arena(const std::string& name);
  void on_rank_exit(HeldRank& held, const Exit& exit) override;
  void watch_lifeline(HeldRank& held);
  void on_wake(uint64_t pid) override;
  void end_lifeline(const HeldRank& held);
  bool lacked_memory(const HeldRank& held, const Exit& exit);
  void look_at_memory();
  void note_exit(const HeldRank& held, Exit exit);
  static ControlChange death_of(const HeldRank& held);
  void tell_siblings(const HeldRank& held, uint64_t sequence);
  Task<void> tell_busy_siblings(ControlPages& pages, ControlChange change, ControlPages::Busy busy,
                                uint64_t sequence);

  // Ending (keeper_ending.cc).
  void end_ranks(const keeper::End& end);
  void end_rank(HeldRank& held, int number, Instant until, bool at_once);
  void tend();
  Instant kill_overdue();
  bool nothing_is_left();
  Task<Result<void>> reset();
  Task<void> leave_after_grace(Event& over);

  // Rings for what comes due by itself: the end of a grace, a look for orphans.
  class Alarm final : public Timer {
   public:
    explicit Alarm(Keeper& keeper) : keeper_(keeper) {}

   private:
    void fire() override { keeper_.tend(); }
    Keeper& keeper_;
  };
  // The family of a rank that was asked to end, and until when it may.
  struct Asked {
    pid_t leader;
    Instant until;
  };

  World& world_;
  KeeperOptions options_;
  uint32_t version_ = 0;  // of the session: there is one at a time
  uint64_t spawns_ = 0;   // of the session
  uint64_t job_ = 0;      // whose ranks these are, if anybody said
  std::unique_ptr<ProcessGroup> group_;
  std::string no_group_because_;
  std::list<HeldArena> arenas_;  // before the ranks, which point to them
  std::map<RankName, HeldRank> ranks_;
  std::map<uint64_t, keeper::Exited::Rank> exits_;  // by sequence
  uint64_t next_sequence_ = 1;
  std::vector<uint32_t> failing_;  // ranks that are, not told yet
  Session* session_ = nullptr;
  std::vector<std::unique_ptr<Stream>> controllers_;  // that came and were not served yet
  tutti::Alarm controller_came_;
  std::vector<Asked> asked_;
  MemoryBlame memory_;
  Alarm tending_{*this};
  Instant reap_at_ = kNever;
  std::optional<Error> not_ended_;  // what the last Reset could not end
  bool group_refuses_ = false;      // the kernel put no rank into it
  bool resetting_ = false;
  bool leaving_ = false;        // told to, or cancelled
  Scope lives_{Scope::Root{}};  // strands that watch ranks; last: they use the rest
};

}  // namespace tutti
