#include <algorithm>
#include <csignal>
#include <set>

#include "cluster/keeper.h"
#include "cluster/keeper_messages.h"

namespace tutti {
namespace {

// Of a spawned message: its ranks carry two handles each.
constexpr size_t kRanksPerMessage = kMaxKeeperHandles / 2;
// Between looks whether a family is gone; the wait doubles up to the longest.
constexpr Duration kShortestPause = 200us;
constexpr Duration kLongestPause = 20ms;

Task<Result<void>> answer_failure(KeeperStream& stream, Error error) {
  const keeper::Failure failure = to_failure(error);
  co_return co_await stream.send(KeeperMessage::failure, failure);
}

Task<Result<void>> answer_done(KeeperStream& stream) {
  const keeper::Done done;
  co_return co_await stream.send(KeeperMessage::done, done);
}

}  // namespace

Task<Result<void>> Keeper::handle(KeeperStream& stream, KeeperFrame frame) {
  switch (frame.kind) {
    case KeeperMessage::spawn: return answer_spawn(stream, std::move(frame));
    case KeeperMessage::signal: return answer_signal(stream, std::move(frame));
    case KeeperMessage::list: return answer_list(stream);
    case KeeperMessage::create_arena: return answer_create_arena(stream, std::move(frame));
    case KeeperMessage::drop_arena: return answer_drop_arena(stream, std::move(frame));
    default: return handle_unanswered(stream, std::move(frame));
  }
}

Task<Result<void>> Keeper::handle_unanswered(KeeperStream& stream, KeeperFrame frame) {
  if (frame.kind == KeeperMessage::end) {
    keeper::End end;
    CO_TRY_DO(frame.parse(end));
    lives_->spawn(end_ranks(end.number() != 0 ? end.number() : SIGTERM, Duration(end.grace_ns())));
  } else if (frame.kind == KeeperMessage::acknowledge) {
    keeper::Acknowledge acknowledged;
    CO_TRY_DO(frame.parse(acknowledged));
    acknowledge(acknowledged.sequence());
  } else if (frame.kind == KeeperMessage::shutdown) {
    shutdown_ = true;
  } else {
    Error unknown(Code::unsupported, fmt::format("this keeper knows no command {}",
                                                 static_cast<unsigned>(frame.kind)));
    co_return co_await answer_failure(stream, std::move(unknown));
  }
  co_return {};
}

Result<std::vector<uint32_t>> Keeper::spawn(const KeeperFrame& frame) {
  keeper::Spawn command;
  TRY_DO(frame.parse(command));
  std::set<uint32_t> named;
  for (const keeper::Spawn::Rank& rank : command.ranks()) {
    if (ranks_.contains(rank.rank()))
      return fail(Code::exists, "rank {} runs already, or its exit was not acknowledged",
                  rank.rank());
    if (!named.insert(rank.rank()).second)
      return fail(Code::invalid, "rank {} is named twice", rank.rank());
  }
  ProcessGroup* group = group_refuses_ ? nullptr : group_.get();
  auto started = start_ranks(world_, command, frame.handles, group);
  if (!started && started.error().code() == Code::unsupported && group != nullptr) {
    group_refuses_ = true;  // as in a threaded cgroup: better without than not at all
    started = start_ranks(world_, command, frame.handles, nullptr);
  }
  if (!started) return fail(std::move(started).error());
  std::vector<uint32_t> which;
  for (HeldRank& held : *started) {
    which.push_back(held.rank);
    ranks_.emplace(which.back(), std::move(held));
  }
  for (const uint32_t rank : which) lives_->spawn(watch(rank));
  return which;
}

Task<Result<void>> Keeper::answer_spawn(KeeperStream& stream, KeeperFrame frame) {
  auto started = spawn(frame);
  if (!started) {
    Error error = std::move(started).error();
    co_return co_await answer_failure(stream, std::move(error));
  }
  std::vector<uint32_t> which = std::move(*started);
  co_return co_await send_ranks(stream, std::move(which));
}

Task<Result<void>> Keeper::send_ranks(KeeperStream& stream, std::vector<uint32_t> which) {
  for (size_t next = 0; next == 0 || next < which.size();) {
    keeper::Spawned spawned;
    std::vector<Handle> handles;
    const size_t stop = std::min(which.size(), next + kRanksPerMessage);
    for (; next < stop; ++next) {
      const HeldRank& held = ranks_.at(which[next]);
      keeper::Spawned::Rank& rank = *spawned.add_ranks();
      rank.set_rank(held.rank);
      rank.set_pid(held.process->pid());
      rank.set_handles(static_cast<uint32_t>(held.outputs.size()));
      for (const Handle& output : held.outputs) handles.push_back(borrow(output));
    }
    spawned.set_last(next == which.size());
    auto sent = co_await stream.send(KeeperMessage::spawned, spawned, handles);
    if (!sent || which.empty()) co_return sent;
  }
  co_return {};
}

Task<Result<void>> Keeper::send_arenas(KeeperStream& stream, std::vector<std::string> which) {
  for (size_t next = 0; next == 0 || next < which.size();) {
    keeper::Arenas arenas;
    std::vector<Handle> handles;
    const size_t stop = std::min(which.size(), next + kMaxKeeperHandles);
    for (; next < stop; ++next) {
      const Arena& held = arenas_.at(which[next]);
      keeper::Arenas::Arena& arena = *arenas.add_arenas();
      arena.set_name(which[next]);
      arena.set_size_bytes(held.size_bytes);
      handles.push_back(borrow(held.handle));
    }
    arenas.set_last(next == which.size());
    auto sent = co_await stream.send(KeeperMessage::arenas, arenas, handles);
    if (!sent || which.empty()) co_return sent;
  }
  co_return {};
}

Task<Result<void>> Keeper::answer_list(KeeperStream& stream) {
  std::vector<uint32_t> ranks;
  for (const auto& [rank, held] : ranks_) ranks.push_back(rank);
  std::vector<std::string> arenas;
  for (const auto& [name, arena] : arenas_) arenas.push_back(name);
  auto sent = co_await send_ranks(stream, std::move(ranks));
  if (!sent) co_return sent;
  co_return co_await send_arenas(stream, std::move(arenas));
}

Task<Result<void>> Keeper::answer_signal(KeeperStream& stream, KeeperFrame frame) {
  keeper::Signal command;
  CO_TRY_DO(frame.parse(command));
  keeper::Signalled signalled;
  for (auto& [rank, held] : ranks_) {
    const auto& named = command.ranks();
    if (!named.empty() && std::ranges::find(named, rank) == named.end()) continue;
    if (!held.running || !held.process->signal_family(command.number())) continue;
    held.last_signal_sent = command.number();
    signalled.set_reached(signalled.reached() + 1);
  }
  co_return co_await stream.send(KeeperMessage::signalled, signalled);
}

Result<void> Keeper::create_arena(const keeper::CreateArena& command) {
  if (arenas_.contains(command.name()))
    return fail(Code::exists, "there is an arena '{}' already", command.name());
  TRY(Handle handle, world_.memory().create_arena(command.name(), command.size_bytes()));
  arenas_.emplace(command.name(), Arena{std::move(handle), command.size_bytes()});
  return {};
}

Task<Result<void>> Keeper::answer_create_arena(KeeperStream& stream, KeeperFrame frame) {
  keeper::CreateArena command;
  CO_TRY_DO(frame.parse(command));
  auto created = create_arena(command);
  if (!created) {
    Error error = std::move(created).error();
    co_return co_await answer_failure(stream, std::move(error));
  }
  std::vector<std::string> which{command.name()};
  co_return co_await send_arenas(stream, std::move(which));
}

Task<Result<void>> Keeper::answer_drop_arena(KeeperStream& stream, KeeperFrame frame) {
  keeper::DropArena command;
  CO_TRY_DO(frame.parse(command));
  if (arenas_.erase(command.name()) != 0) co_return co_await answer_done(stream);
  Error unknown(Code::not_found, fmt::format("there is no arena '{}'", command.name()));
  co_return co_await answer_failure(stream, std::move(unknown));
}

void Keeper::acknowledge(uint64_t sequence) {
  while (!exits_.empty() && exits_.begin()->first <= sequence) {
    ranks_.erase(exits_.begin()->second.rank());
    exits_.erase(exits_.begin());
  }
}

// A stopped process gets SIGTERM only when it goes on, hence the SIGCONT.
Task<void> Keeper::end_ranks(int number, Duration grace) {
  const bool at_once = grace <= 0s;
  grace_ends_ = world_.clock().now() + grace;
  std::vector<uint32_t> asked;
  for (auto& [rank, held] : ranks_) {
    if (!held.running) continue;
    asked.push_back(rank);
    asked_.push_back(held.process->pid());
    const int first = at_once ? SIGKILL : number;
    if (held.process->signal_family(first)) held.last_signal_sent = first;
    if (!at_once) (void)held.process->signal_family(SIGCONT);
  }
  auto slept = co_await world_.clock().sleep(grace);
  if (!slept || at_once) co_return;
  for (const uint32_t rank : asked) {
    const auto held = ranks_.find(rank);
    if (held == ranks_.end() || !held->second.running) continue;
    if (held->second.process->signal_family(SIGKILL)) held->second.last_signal_sent = SIGKILL;
  }
}

// A rank that ends when asked may have started one that still saves its work: it has the rest of
// the grace. Who was asked nothing, or left its family, has none.
Task<void> Keeper::leave_after_grace(Scope& session) {
  Duration pause = kShortestPause;
  while (world_.clock().now() < grace_ends_) {
    world_.processes().reap_orphans();
    const auto lives = [&](pid_t leader) { return world_.processes().family_lives(leader); };
    if (std::ranges::none_of(asked_, lives)) break;
    auto slept = co_await world_.clock().sleep(pause);
    if (!slept) co_return;
    pause = std::min(2 * pause, kLongestPause);
  }
  session.cancel();
}

}  // namespace tutti
