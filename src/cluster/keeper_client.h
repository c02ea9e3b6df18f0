// The controller's end of a keeper: starts one as a child of this process, or finds one that
// lingers, and asks it for things.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cluster/keeper_messages.h"
#include "cluster/keeper_stream.h"
#include "world/channel.h"
#include "world/world.h"

namespace tutti {

// Where a keeper finds the stream to its controller.
constexpr int kKeeperControllerNumber = 3;

struct StartKeeperOptions {
  std::vector<std::string> command;      // the program and the verb that makes it a keeper
  std::string program;                   // as in SpawnOptions
  std::vector<std::string> environment;  // of the keeper, not of its ranks
  std::string group;                     // as in KeeperOptions
  std::string linger;
  const Handle* errors = nullptr;          // its standard error; nullptr is /dev/null
  uint32_t speak = kHighestKeeperVersion;  // no version past this: for tests of mixed versions
};

struct StartedKeeper {
  std::unique_ptr<Process> process;
  std::unique_ptr<KeeperStream> stream;
};

// It is in a session of its own, out of reach of keys pressed on our terminal. Nothing kills it
// when we die: it sees the stream's end and cleans up, which a signal would keep it from. One that
// somebody has stopped sees nothing: the kernel has it go on then.
Result<StartedKeeper> start_keeper(World& world, const StartKeeperOptions& options);

struct KeptRank {
  uint32_t rank = 0;  // or the number of the spare
  bool spare = false;
  bool ended = false;  // its exit is among those not acknowledged
  pid_t pid = 0;
  std::vector<Handle> outputs;
  std::string control_arena;
  std::optional<uint64_t> control_offset;
};
struct KeptArena {
  std::string name;
  uint64_t size_bytes = 0;
  Handle handle;
};
struct KeptThings {
  std::vector<KeptRank> ranks;  // and spares
  std::vector<KeptArena> arenas;
};

// A session with a keeper, begun with hello(). A program that asks for one thing at a time needs no
// more. One that does several things at once, or waits for exits, has run() on a strand of its own;
// then any strand may ask, and is answered in the order of the calls. What the keeper refuses is
// its error, with which the session goes on; when the stream has broken, everything fails with
// Code::unavailable. A call that was cancelled may have been carried out.
class KeeperClient {
 public:
  explicit KeeperClient(std::unique_ptr<KeeperStream> stream) : stream_(std::move(stream)) {}

  // Tests of mixed versions speak none past `highest`.
  Task<Result<void>> hello(uint32_t highest = kHighestKeeperVersion);
  const keeper::Welcome& welcome() const { return welcome_; }  // after hello()
  uint32_t version() const { return welcome_.version(); }

  // Until the stream ends, which is its error, or it is cancelled.
  Task<Result<void>> run();

  Task<Result<KeptThings>> list();
  // The handles go to every rank and must stay open until this returns.
  Task<Result<std::vector<KeptRank>>> spawn(keeper::Spawn command,
                                            std::span<const Handle> handles = {});
  Task<Result<void>> assign(keeper::Assign command);
  Task<Result<KeptArena>> create_arena(std::string name, uint64_t size_bytes);
  Task<Result<void>> drop_arena(std::string name);
  Task<Result<uint32_t>> signal(keeper::Signal command);  // how many it reached
  Task<Result<void>> reset();
  // These are not answered.
  Task<Result<void>> end(keeper::End command);
  Task<Result<void>> acknowledge(uint64_t sequence);
  Task<Result<void>> shutdown();

  // The next exit, oldest first, beginning with those that nobody acknowledged yet. For one strand.
  Task<Result<keeper::Exited::Rank>> next_exit();
  // Those that came and were not taken yet.
  std::vector<keeper::Exited::Rank> take_exits() { return std::exchange(exits_, {}); }

 private:
  struct Answer;
  using Frames = std::vector<KeeperFrame>;
  // Sends it and gives the answer: one message, or as many as `series` of them have.
  Task<Result<Frames>> ask(KeeperMessage kind, const google::protobuf::MessageLite& message,
                           std::span<const Handle> handles = {}, int series = 1);
  Task<Result<void>> tell(KeeperMessage kind, const google::protobuf::MessageLite& message);
  Result<void> check_version(std::string_view newer_part) const;
  Task<Result<void>> pump();  // one frame
  Result<void> take(KeeperFrame frame);
  void break_off(const Error& error);

  std::unique_ptr<KeeperStream> stream_;
  keeper::Welcome welcome_;
  std::list<std::shared_ptr<Answer>> waiting_;  // in the order in which they were asked for
  std::vector<keeper::Exited::Rank> exits_;
  Channel<char> exit_bell_{1};  // rung when exits_ grows
  std::optional<Error> broken_;
  bool running_ = false;
};

struct ConnectedKeeper {
  std::unique_ptr<KeeperClient> client;
  KeptThings things;
  std::vector<keeper::Exited::Rank> exits;  // not acknowledged; of the ranks that have ended
};

// Finds the keeper that lingers on this socket, says hello and asks for everything it holds.
Task<Result<ConnectedKeeper>> connect_keeper(World& world, std::string path,
                                             uint32_t highest = kHighestKeeperVersion);

}  // namespace tutti
