#include "cluster/keeper_client.h"

#include <csignal>

#include "world/semaphore.h"

namespace tutti {

Result<StartedKeeper> start_keeper(World& world, const StartKeeperOptions& options) {
  TRY(Network::Pair pair, world.network().pair());
  SpawnOptions spawn;
  spawn.arguments = options.command;
  spawn.program = options.program;
  if (!options.group.empty())
    spawn.arguments.insert(spawn.arguments.end(), {"--group", options.group});
  if (!options.linger.empty())
    spawn.arguments.insert(spawn.arguments.end(), {"--linger", options.linger});
  spawn.environment = options.environment;
  spawn.inherit.push_back({&pair.theirs, kKeeperControllerNumber});
  constexpr int kStandardError = 2;
  if (options.errors != nullptr) spawn.inherit.push_back({options.errors, kStandardError});
  spawn.new_session = true;
  spawn.parent_death_signal = SIGCONT;
  auto process = world.processes().spawn(spawn);
  if (!process) return fail(process.error().context("start the keeper"));
  return StartedKeeper{std::move(*process), std::make_unique<KeeperStream>(std::move(pair.ours))};
}

namespace {

Result<void> take_ranks(KeeperFrame& frame, std::vector<KeptRank>& into) {
  keeper::Spawned spawned;
  TRY_DO(frame.parse(spawned));
  size_t next = 0;
  for (const keeper::Spawned::Rank& rank : spawned.ranks()) {
    if (rank.handles() > frame.handles.size() - next)
      return fail(Code::corrupt, "the keeper gives {} handles for ranks with more",
                  frame.handles.size());
    KeptRank kept{.rank = rank.rank(),
                  .spare = rank.spare(),
                  .ended = rank.ended(),
                  .pid = static_cast<pid_t>(rank.pid()),
                  .control_arena = rank.control_arena()};
    for (uint32_t i = 0; i < rank.handles(); ++i)
      kept.outputs.push_back(std::move(frame.handles[next++]));
    if (rank.has_control_offset()) kept.control_offset = rank.control_offset();
    into.push_back(std::move(kept));
  }
  return {};
}

Result<void> take_arenas(KeeperFrame& frame, std::vector<KeptArena>& into) {
  keeper::Arenas arenas;
  TRY_DO(frame.parse(arenas));
  if (frame.handles.size() != static_cast<size_t>(arenas.arenas_size()))
    return fail(Code::corrupt, "the keeper gives {} handles for {} arenas", frame.handles.size(),
                arenas.arenas_size());
  for (int i = 0; i < arenas.arenas_size(); ++i)
    into.push_back({arenas.arenas(i).name(), arenas.arenas(i).size_bytes(),
                    std::move(frame.handles[static_cast<size_t>(i)])});
  return {};
}

Result<KeptThings> take_things(std::vector<KeeperFrame> frames) {
  KeptThings things;
  for (KeeperFrame& frame : frames) {
    if (frame.kind == KeeperMessage::spawned) {
      TRY_DO(take_ranks(frame, things.ranks));
    } else if (frame.kind == KeeperMessage::arenas) {
      TRY_DO(take_arenas(frame, things.arenas));
    } else {
      return fail(Code::corrupt, "the keeper answers with a message {}",
                  static_cast<unsigned>(frame.kind));
    }
  }
  return things;
}

// Whether a frame is the last of a series; most answers are one frame.
Result<bool> is_last(const KeeperFrame& frame) {
  if (frame.kind == KeeperMessage::spawned) {
    keeper::Spawned spawned;
    TRY_DO(frame.parse(spawned));
    return spawned.last();
  }
  if (frame.kind == KeeperMessage::arenas) {
    keeper::Arenas arenas;
    TRY_DO(frame.parse(arenas));
    return arenas.last();
  }
  return true;
}

}  // namespace

// Stays in the queue when its caller was cancelled: the keeper answers all the same.
struct KeeperClient::Answer {
  int series_left = 1;
  Frames frames;
  std::optional<Error> error;
  Event complete;

  void refuse(Error why) {
    error = std::move(why);
    complete.set();
  }
};

Task<Result<void>> KeeperClient::hello(uint32_t highest) {
  const keeper::Hello hello = make_hello(highest);
  auto answered = co_await ask(KeeperMessage::hello, hello);
  if (!answered) co_return fail(answered.error().context("greet a keeper"));
  CO_TRY_DO(answered->front().parse(welcome_));
  co_return {};
}

Result<void> KeeperClient::check_version(std::string_view newer_part) const {
  if (version() >= kKeeperVersionOfSpares || newer_part.empty()) return {};
  return fail(Code::unsupported, "{} need version {} of the keeper's protocol; '{}' speaks {}",
              newer_part, kKeeperVersionOfSpares, welcome_.program(), version());
}

void KeeperClient::break_off(const Error& error) {
  if (!broken_) broken_ = Error(Code::unavailable, error.text());
  for (const auto& answer : std::exchange(waiting_, {})) answer->refuse(*broken_);
  exit_bell_.close();
}

Result<void> KeeperClient::take(KeeperFrame frame) {
  if (frame.kind == KeeperMessage::exited) {
    keeper::Exited exited;
    TRY_DO(frame.parse(exited));
    exits_.insert(exits_.end(), exited.ranks().begin(), exited.ranks().end());
    char ring = 1;
    exit_bell_.try_send(ring);
    return {};
  }
  if (waiting_.empty())
    return fail(Code::corrupt, "the keeper answers what nobody asked, with a message {}",
                static_cast<unsigned>(frame.kind));
  Answer& answer = *waiting_.front();
  if (frame.kind == KeeperMessage::failure) {
    keeper::Failure failure;
    TRY_DO(frame.parse(failure));
    answer.refuse(to_error(failure));
    waiting_.pop_front();
    return {};
  }
  TRY(const bool last, is_last(frame));
  answer.frames.push_back(std::move(frame));
  answer.series_left -= last ? 1 : 0;
  if (answer.series_left > 0) return {};
  answer.complete.set();
  waiting_.pop_front();
  return {};
}

Task<Result<void>> KeeperClient::pump() {
  auto frame = co_await stream_->receive();
  if (!frame && frame.error().code() == Code::cancelled) co_return fail(std::move(frame).error());
  Result<void> taken;
  if (frame) {
    taken = take(std::move(*frame));
  } else {
    taken = fail(std::move(frame).error());
  }
  if (!taken) break_off(taken.error());
  co_return taken;
}

Task<Result<void>> KeeperClient::run() {
  running_ = true;
  while (true) {
    auto pumped = co_await pump();
    if (pumped) continue;
    running_ = false;
    co_return pumped;
  }
}

Task<Result<void>> KeeperClient::tell(KeeperMessage kind,
                                      const google::protobuf::MessageLite& message) {
  if (broken_) co_return fail(*broken_);
  const Shield whole;  // a frame that was cut off would break the session
  auto sent = co_await stream_->send(kind, message);
  if (!sent) break_off(sent.error());
  co_return sent;
}

Task<Result<KeeperClient::Frames>> KeeperClient::ask(KeeperMessage kind,
                                                     const google::protobuf::MessageLite& message,
                                                     std::span<const Handle> handles, int series) {
  if (broken_) co_return fail(*broken_);
  if (message.ByteSizeLong() > kMaxKeeperMessage || handles.size() > kMaxKeeperHandles)
    co_return fail(Code::invalid, "a message of {} bytes and {} handles; {} and {} are the most",
                   message.ByteSizeLong(), handles.size(), kMaxKeeperMessage, kMaxKeeperHandles);
  const auto answer = std::make_shared<Answer>();
  answer->series_left = series;
  waiting_.push_back(answer);
  {
    const Shield whole;
    auto sent = co_await stream_->send(kind, message, handles);
    if (!sent) break_off(sent.error());
  }
  if (running_) {
    CO_TRY_DO(co_await answer->complete.wait());
  } else {
    while (!answer->complete.is_set()) {
      auto pumped = co_await pump();
      if (!pumped && pumped.error().code() == Code::cancelled)
        co_return fail(std::move(pumped).error());
    }
  }
  if (answer->error) co_return fail(*answer->error);
  co_return std::move(answer->frames);
}

Task<Result<KeptThings>> KeeperClient::list() {
  const keeper::List list;
  auto answered = co_await ask(KeeperMessage::list, list, {}, 2);
  if (!answered) co_return fail(std::move(answered).error());
  co_return take_things(std::move(*answered));
}

Task<Result<std::vector<KeptRank>>> KeeperClient::spawn(keeper::Spawn command,
                                                        std::span<const Handle> handles) {
  CO_TRY_DO(check_version(newer_part(command)));
  auto answered = co_await ask(KeeperMessage::spawn, command, handles);
  if (!answered) co_return fail(std::move(answered).error());
  CO_TRY(KeptThings things, take_things(std::move(*answered)));
  co_return std::move(things.ranks);
}

Task<Result<KeptArena>> KeeperClient::create_arena(std::string name, uint64_t size_bytes) {
  keeper::CreateArena create;
  create.set_name(std::move(name));
  create.set_size_bytes(size_bytes);
  auto answered = co_await ask(KeeperMessage::create_arena, create);
  if (!answered) co_return fail(std::move(answered).error());
  CO_TRY(KeptThings things, take_things(std::move(*answered)));
  if (things.arenas.size() != 1) co_return fail(Code::corrupt, "the keeper gives no arena");
  co_return std::move(things.arenas.front());
}

Task<Result<void>> KeeperClient::drop_arena(std::string name) {
  keeper::DropArena drop;
  drop.set_name(std::move(name));
  CO_TRY_DO(co_await ask(KeeperMessage::drop_arena, drop));
  co_return {};
}

Task<Result<void>> KeeperClient::assign(keeper::Assign command) {
  CO_TRY_DO(check_version("spares"));
  CO_TRY_DO(co_await ask(KeeperMessage::assign, command));
  co_return {};
}

Task<Result<void>> KeeperClient::reset() {
  CO_TRY_DO(check_version("resets"));
  const keeper::Reset reset;
  CO_TRY_DO(co_await ask(KeeperMessage::reset, reset));
  co_return {};
}

Task<Result<uint32_t>> KeeperClient::signal(keeper::Signal command) {
  CO_TRY_DO(check_version(newer_part(command)));
  auto answered = co_await ask(KeeperMessage::signal, command);
  if (!answered) co_return fail(std::move(answered).error());
  keeper::Signalled signalled;
  CO_TRY_DO(answered->front().parse(signalled));
  co_return signalled.reached();
}

Task<Result<void>> KeeperClient::end(keeper::End command) {
  CO_TRY_DO(check_version(newer_part(command)));
  co_return co_await tell(KeeperMessage::end, command);
}

Task<Result<void>> KeeperClient::acknowledge(uint64_t sequence) {
  keeper::Acknowledge acknowledge;
  acknowledge.set_sequence(sequence);
  co_return co_await tell(KeeperMessage::acknowledge, acknowledge);
}

Task<Result<void>> KeeperClient::shutdown() {
  const keeper::Shutdown shutdown;
  co_return co_await tell(KeeperMessage::shutdown, shutdown);
}

Task<Result<keeper::Exited::Rank>> KeeperClient::next_exit() {
  while (exits_.empty()) {
    if (broken_) co_return fail(*broken_);
    Result<void> waited;
    if (running_) {
      auto rung = co_await exit_bell_.recv();
      if (!rung) waited = fail(std::move(rung).error());
    } else {
      waited = co_await pump();
    }
    if (!waited && exits_.empty()) co_return fail(std::move(waited).error());
  }
  keeper::Exited::Rank next = std::move(exits_.front());
  exits_.erase(exits_.begin());
  co_return next;
}

// A keeper sends what was not acknowledged before it answers anything.
Task<Result<ConnectedKeeper>> connect_keeper(World& world, std::string path, uint32_t highest) {
  Address address = Address::unix_socket(std::move(path));
  auto stream = co_await world.network().connect(std::move(address));
  if (!stream) co_return fail(stream.error().context("find a keeper"));
  ConnectedKeeper found;
  found.client = std::make_unique<KeeperClient>(std::make_unique<KeeperStream>(std::move(*stream)));
  auto greeted = co_await found.client->hello(highest);
  if (!greeted) co_return fail(std::move(greeted).error());
  auto things = co_await found.client->list();
  if (!things) co_return fail(std::move(things).error());
  found.things = std::move(*things);
  found.exits = found.client->take_exits();
  co_return found;
}

}  // namespace tutti
