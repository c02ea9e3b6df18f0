#include <algorithm>

#include "cluster/keeper.h"

namespace tutti {
namespace {

// Of a spawned message: its ranks carry two handles each.
constexpr size_t kRanksPerMessage = kMaxKeeperHandles / 2;

Task<Result<void>> answer_failure(KeeperStream& stream, Error error) {
  const keeper::Failure failure = to_failure(error);
  co_return co_await stream.send(KeeperMessage::failure, failure);
}

Task<Result<void>> answer_done(KeeperStream& stream, Result<void> done) {
  if (!done) {
    Error error = std::move(done).error();
    co_return co_await answer_failure(stream, std::move(error));
  }
  const keeper::Done message;
  co_return co_await stream.send(KeeperMessage::done, message);
}

}  // namespace

// A keeper of version 1 would misunderstand what is newer: nobody shall get used to sending it in a
// session of that version.
Result<void> Keeper::check_version(std::string_view newer_part) const {
  if (version_ >= kKeeperVersionOfSpares || newer_part.empty()) return {};
  return fail(Code::unsupported,
              "{} need version {} of the keeper's protocol; version {} is spoken", newer_part,
              kKeeperVersionOfSpares, version_);
}

Task<Result<void>> Keeper::handle(KeeperStream& stream, KeeperFrame frame) {
  const bool newer = version_ >= kKeeperVersionOfSpares;
  switch (frame.kind) {
    case KeeperMessage::spawn: return answer_spawn(stream, std::move(frame));
    case KeeperMessage::signal: return answer_signal(stream, std::move(frame));
    case KeeperMessage::list: return answer_list(stream);
    case KeeperMessage::create_arena: return answer_create_arena(stream, std::move(frame));
    case KeeperMessage::drop_arena: return answer_drop_arena(stream, std::move(frame));
    case KeeperMessage::assign:
      if (newer) return answer_assign(stream, std::move(frame));
      break;
    case KeeperMessage::reset:
      if (newer) return answer_reset(stream);
      break;
    default: break;
  }
  return handle_unanswered(stream, std::move(frame));
}

Task<Result<void>> Keeper::handle_unanswered(KeeperStream& stream, KeeperFrame frame) {
  if (frame.kind == KeeperMessage::end) {
    keeper::End end;
    CO_TRY_DO(frame.parse(end));
    auto understood = check_version(newer_part(end));
    if (!understood) {
      Error error = std::move(understood).error();
      co_return co_await answer_failure(stream, std::move(error));
    }
    end_ranks(end);
  } else if (frame.kind == KeeperMessage::acknowledge) {
    keeper::Acknowledge acknowledged;
    CO_TRY_DO(frame.parse(acknowledged));
    acknowledge(acknowledged.sequence());
    for (const uint64_t one : acknowledged.sequences()) acknowledge_one(one);
  } else if (frame.kind == KeeperMessage::shutdown) {
    leaving_ = true;
  } else {
    Error unknown(Code::unsupported, fmt::format("this keeper knows no command {} in version {}",
                                                 static_cast<unsigned>(frame.kind), version_));
    co_return co_await answer_failure(stream, std::move(unknown));
  }
  co_return {};
}

Task<Result<void>> Keeper::answer_spawn(KeeperStream& stream, KeeperFrame frame) {
  bool show_heap = false;
  auto started = spawn(frame, show_heap);
  if (!started) {
    Error error = std::move(started).error();
    co_return co_await answer_failure(stream, std::move(error));
  }
  const HeldArena* heap = show_heap ? find_arena(std::string(kHeapArena)) : nullptr;
  if (heap != nullptr) {
    std::vector<const HeldArena*> one{heap};
    auto sent = co_await send_arenas(stream, std::move(one));
    if (!sent) co_return sent;
  }
  std::vector<RankName> which = std::move(*started);
  co_return co_await send_ranks(stream, std::move(which));
}

Task<Result<void>> Keeper::send_ranks(KeeperStream& stream, std::vector<RankName> which) {
  for (size_t next = 0; next == 0 || next < which.size();) {
    keeper::Spawned spawned;
    std::vector<Handle> handles;
    const size_t stop = std::min(which.size(), next + kRanksPerMessage);
    for (; next < stop; ++next) {
      const HeldRank& held = ranks_.at(which[next]);
      keeper::Spawned::Rank& rank = *spawned.add_ranks();
      rank.set_rank(held.name.number);
      rank.set_spare(held.name.spare);
      rank.set_pid(held.process->pid());
      rank.set_ended(!held.running);
      rank.set_epoch(held.epoch);
      if (held.arena != nullptr) rank.set_control_arena(held.arena->name);
      if (held.control_offset) rank.set_control_offset(*held.control_offset);
      rank.set_handles(static_cast<uint32_t>(held.outputs.size()));
      for (const Handle& output : held.outputs) handles.push_back(borrow(output));
    }
    spawned.set_last(next == which.size());
    auto sent = co_await stream.send(KeeperMessage::spawned, spawned, handles);
    if (!sent || which.empty()) co_return sent;
  }
  co_return {};
}

Task<Result<void>> Keeper::send_arenas(KeeperStream& stream, std::vector<const HeldArena*> which) {
  for (size_t next = 0; next == 0 || next < which.size();) {
    keeper::Arenas arenas;
    std::vector<Handle> handles;
    const size_t stop = std::min(which.size(), next + kMaxKeeperHandles);
    for (; next < stop; ++next) {
      const HeldArena& held = *which[next];
      keeper::Arenas::Arena& arena = *arenas.add_arenas();
      arena.set_name(held.name);
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
  std::vector<RankName> ranks;
  for (const auto& [name, held] : ranks_)
    if (!name.spare || version_ >= kKeeperVersionOfSpares) ranks.push_back(name);
  std::vector<const HeldArena*> arenas;
  for (const HeldArena& arena : arenas_) arenas.push_back(&arena);
  auto sent = co_await send_ranks(stream, std::move(ranks));
  if (!sent) co_return sent;
  co_return co_await send_arenas(stream, std::move(arenas));
}

std::vector<HeldRank*> Keeper::named(const Numbers& ranks, const Numbers& spares) {
  std::vector<HeldRank*> found;
  if (ranks.empty() && spares.empty()) {
    for (auto& [name, held] : ranks_) found.push_back(&held);
    return found;
  }
  for (const bool spare : {false, true}) {
    for (const uint32_t number : spare ? spares : ranks) {
      const auto held = ranks_.find({spare, number});
      if (held != ranks_.end()) found.push_back(&held->second);
    }
  }
  return found;
}

Task<Result<void>> Keeper::answer_signal(KeeperStream& stream, KeeperFrame frame) {
  keeper::Signal command;
  CO_TRY_DO(frame.parse(command));
  auto understood = check_version(newer_part(command));
  if (!understood) {
    Error error = std::move(understood).error();
    co_return co_await answer_failure(stream, std::move(error));
  }
  keeper::Signalled signalled;
  for (HeldRank* held : named(command.ranks(), command.spares())) {
    if (!held->running || !held->process->signal_family(command.number())) continue;
    held->last_signal_sent = command.number();
    signalled.set_reached(signalled.reached() + 1);
  }
  co_return co_await stream.send(KeeperMessage::signalled, signalled);
}

Task<Result<void>> Keeper::answer_create_arena(KeeperStream& stream, KeeperFrame frame) {
  keeper::CreateArena command;
  CO_TRY_DO(frame.parse(command));
  auto created = create_arena(command);
  if (!created) {
    Error error = std::move(created).error();
    co_return co_await answer_failure(stream, std::move(error));
  }
  std::vector<const HeldArena*> which{*created};
  co_return co_await send_arenas(stream, std::move(which));
}

Task<Result<void>> Keeper::answer_drop_arena(KeeperStream& stream, KeeperFrame frame) {
  keeper::DropArena command;
  CO_TRY_DO(frame.parse(command));
  auto dropped = drop_arena(command.name());
  co_return co_await answer_done(stream, std::move(dropped));
}

Task<Result<void>> Keeper::answer_assign(KeeperStream& stream, KeeperFrame frame) {
  keeper::Assign command;
  CO_TRY_DO(frame.parse(command));
  auto assigned = co_await assign(std::move(command));
  co_return co_await answer_done(stream, std::move(assigned));
}

Task<Result<void>> Keeper::answer_reset(KeeperStream& stream) {
  auto ended = co_await reset();
  co_return co_await answer_done(stream, std::move(ended));
}

void Keeper::acknowledge(uint64_t sequence) {
  while (!exits_.empty() && exits_.begin()->first <= sequence)
    acknowledge_one(exits_.begin()->first);
}

void Keeper::acknowledge_one(uint64_t sequence) {
  const auto exit = exits_.find(sequence);
  if (exit == exits_.end()) return;
  ranks_.erase({exit->second.spare(), exit->second.rank()});
  exits_.erase(exit);
}

}  // namespace tutti
