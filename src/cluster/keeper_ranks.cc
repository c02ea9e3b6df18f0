#include <algorithm>
#include <csignal>
#include <set>

#include "cluster/keeper.h"

namespace tutti {
namespace {

// A spare that takes nothing for so long is stuck; what it was given may be cut off.
constexpr Duration kAssignPatience = 10s;
// Of addresses, of which a process has 128 TiB; memory is taken when it is touched.
constexpr uint64_t kMostHeapBytes = uint64_t{32} << 40;

// It has taken its rank when it says so with a byte: one that dies before was never that rank.
Task<Result<void>> hand_over(Stream& stream, std::string bytes) {
  const Bytes all = as_bytes(bytes);
  auto written = co_await stream.write(all);
  if (!written) co_return written;
  CO_TRY_DO(stream.shutdown_write());
  std::byte taken{};
  const MutableBytes into(&taken, 1);
  auto count = co_await stream.read(into);
  if (!count) co_return fail(std::move(count).error());
  if (*count == 0) co_return fail(Code::unavailable, "it went away");
  co_return {};
}

}  // namespace

HeldArena* Keeper::find_arena(const std::string& name) {
  const auto found = std::ranges::find(arenas_, name, &HeldArena::name);
  return found == arenas_.end() ? nullptr : &*found;
}

Result<HeldArena*> Keeper::create_arena(const keeper::CreateArena& command) {
  if (find_arena(command.name()) != nullptr)
    return fail(Code::exists, "there is an arena '{}' already", command.name());
  TRY(Handle handle, world_.memory().create_arena(command.name(), command.size_bytes()));
  arenas_.push_back({command.name(), command.size_bytes(), std::move(handle), nullptr});
  return &arenas_.back();
}

Result<void> Keeper::drop_arena(const std::string& name) {
  const HeldArena* arena = find_arena(name);
  if (arena == nullptr) return fail(Code::not_found, "there is no arena '{}'", name);
  for (const auto& [rank, held] : ranks_)
    if (held.arena == arena)
      return fail(Code::invalid,
                  "arena '{}' is for the control page of {}; acknowledge its exit first", name,
                  rank.text());
  arenas_.remove_if([&](const HeldArena& one) { return &one == arena; });
  return {};
}

// A page is its rank's until that is forgotten.
Result<void> Keeper::check_page(const HeldArena* arena, uint64_t offset) const {
  if (arena == nullptr) return fail(Code::invalid, "a control page needs a control_arena");
  for (const auto& [name, held] : ranks_)
    if (held.arena == arena && held.control_offset == offset)
      return fail(Code::exists, "the control page at {} is that of {}", offset, name.text());
  return {};
}

// Gives the arena of the control pages, or nullptr for none.
Result<HeldArena*> Keeper::check_spawn(const keeper::Spawn& command) {
  TRY_DO(check_version(newer_part(command)));
  if (not_ended_)
    return fail(Code::unavailable,
                "the job before this one could not be ended ({}); use another "
                "keeper, or reset this one again",
                not_ended_->text());
  HeldArena* arena = nullptr;
  if (!command.control_arena().empty()) {
    arena = find_arena(command.control_arena());
    if (arena == nullptr)
      return fail(Code::not_found, "there is no arena '{}'", command.control_arena());
  }
  std::set<RankName> names;
  std::set<uint64_t> offsets;
  for (const keeper::Spawn::Rank& rank : command.ranks()) {
    const RankName name{rank.spare(), rank.rank()};
    if (ranks_.contains(name))
      return fail(Code::exists, "{} runs already, or its exit was not acknowledged", name.text());
    if (!names.insert(name).second) return fail(Code::invalid, "{} is named twice", name.text());
    if (!rank.has_control_offset()) continue;
    if (rank.spare())
      return fail(Code::invalid, "spare {} gets a control page with its rank", rank.rank());
    TRY_DO(check_page(arena, rank.control_offset()));
    if (!offsets.insert(rank.control_offset()).second)
      return fail(Code::invalid, "the control page at {} is given twice", rank.control_offset());
  }
  if (arena != nullptr && arena->pages == nullptr) {
    TRY(arena->pages, ControlPages::open(world_, arena->handle));
  }
  return arena;
}

// What the ranks with these pages share: made with the first of them.
Result<const HeldArena*> Keeper::heap_beside(const HeldArena* pages) {
  if (pages == nullptr || options_.heap_bytes_each == 0) return nullptr;
  const std::string name(kHeapArena);
  if (const HeldArena* known = find_arena(name)) return known;
  const uint64_t parts = std::max<uint64_t>(pages->size_bytes / kControlPageBytes, 1);
  keeper::CreateArena heap;
  heap.set_name(name);
  heap.set_size_bytes(parts * std::min(options_.heap_bytes_each, kMostHeapBytes / parts));
  return create_arena(heap);
}

Result<std::vector<RankName>> Keeper::spawn(const KeeperFrame& frame, bool& show_heap) {
  ++spawns_;  // also one that fails: its controller counts what it sends
  keeper::Spawn command;
  TRY_DO(frame.parse(command));
  show_heap = command.show_heap();
  TRY(HeldArena * arena, check_spawn(command));
  job_ = version_ >= kKeeperVersionOfJobs ? command.job() : 0;
  ProcessGroup* group = group_refuses_ ? nullptr : group_.get();
  TRY(const HeldArena* heap, heap_beside(arena));
  auto started = start_ranks(world_, command, frame.handles, group, arena, heap);
  if (!started && started.error().code() == Code::unsupported && group != nullptr) {
    group_refuses_ = true;  // as in a threaded cgroup: better without than not at all
    started = start_ranks(world_, command, frame.handles, nullptr, arena, heap);
  }
  if (!started) return fail(std::move(started).error());
  std::vector<RankName> which;
  for (HeldRank& held : *started) {
    const RankName name = held.name;
    which.push_back(name);
    HeldRank& mine = ranks_.emplace(name, std::move(held)).first->second;
    mine.start_watching(*this, lives_);
    if (mine.control_offset) watch_lifeline(mine);
  }
  if (reap_at_ == kNever) {
    memory_ = MemoryBlame();
    reap_at_ = world_.clock().now();
  }
  tend();
  return which;
}

void Keeper::on_rank_exit(HeldRank& held, const Exit& exit) {
  held.running = false;
  // Whether it was a spare or a rank is known when it has answered, or did not.
  if (held.assigning) {
    held.exit_meanwhile = std::make_unique<Exit>(exit);
  } else {
    note_exit(held, exit);
  }
  end_lifeline(held);
}

namespace {

// nullptr when the rank has destroyed its page.
std::atomic<uint32_t>* lifeline_of(const HeldRank& held) {
  tutti_control_page* page = held.arena->pages->find(*held.control_offset);
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(page->lifeline));
  return page == nullptr ? nullptr : reinterpret_cast<std::atomic<uint32_t>*>(&page->lifeline);
}

}  // namespace

// Of a rank that holds one: its siblings need not wait until all its memory is given back. Its exit
// is told when it has ended: until then its successor must not begin.
void Keeper::watch_lifeline(HeldRank& held) {
  const std::atomic<uint32_t>* line = lifeline_of(held);
  if (line == nullptr) return;
  const uint32_t seen = line->load();
  if ((seen & TUTTI_CONTROL_LIFELINE_BROKEN) != 0 && held.process->failing()) {
    const uint32_t rank = held.name.number;
    (void)held.arena->pages->apply(death_of(held));
    if (session_ != nullptr) failing_.push_back(rank);
    return tell_exits();
  }
  const auto pid = static_cast<uint64_t>(held.process->pid());
  held.arena->pages->tell_lifeline(*held.control_offset, seen, *this, pid, lives_);
  held.arena->pages->rest();
}

// Its exit may have been acknowledged meanwhile, and a spare have become a rank.
void Keeper::on_wake(uint64_t pid) {
  const auto is_it = [&](const auto& each) {
    return each.second.running && static_cast<uint64_t>(each.second.process->pid()) == pid;
  };
  const auto found = std::ranges::find_if(ranks_, is_it);
  if (found != ranks_.end()) watch_lifeline(found->second);
}

// Who failed is in the pages of the others by now; who is not, and took no leave, returned 0.
void Keeper::end_lifeline(const HeldRank& held) {
  std::atomic<uint32_t>* line = held.control_offset ? lifeline_of(held) : nullptr;
  if (line == nullptr) return;
  *line = TUTTI_CONTROL_LIFELINE_ENDED;
  world_.memory().wake_all(*line);
  held.arena->pages->rest();
}

void Keeper::note_exit(const HeldRank& held, Exit exit) {
  const uint64_t sequence = next_sequence_++;
  keeper::Exited::Rank& exited = exits_[sequence];
  exited.set_sequence(sequence);
  exited.set_rank(held.name.number);
  if (!held.name.spare) std::erase(failing_, held.name.number);  // its exit says more
  exited.set_spare(held.name.spare);
  exited.set_pid(held.process->pid());
  exited.set_last_signal_sent(held.last_signal_sent);
  exited.set_outlived_grace(held.outlived_grace);
  exited.set_epoch(held.epoch);
  exited.set_lived_ns(to_ns(world_.clock().now() - held.started));
  exit.out_of_memory = lacked_memory(held, exit);
  set_exit(exit, exited);
  if (!exit.ok()) tell_siblings(held, sequence);
  tell_exits();
}

void Keeper::look_at_memory() {
  auto kills = world_.processes().memory_kills(group_.get());
  if (kills) memory_.look(*kills, world_.clock().now());
}

// The kernel kills with SIGKILL; one that we sent explains itself.
bool Keeper::lacked_memory(const HeldRank& held, const Exit& exit) {
  if (exit.ok() || held.last_signal_sent != 0) return false;
  auto kills = world_.processes().memory_kills(group_.get());
  return kills && memory_.explains(*kills);
}

// The agent leaves its page in the last epoch in which it had a part: a newer one, which may have
// begun for its siblings, began without it, and nobody would begin another for its end.
ControlChange Keeper::death_of(const HeldRank& held) {
  const uint32_t rank = held.name.number;
  const tutti_control_page* page = held.arena->pages->find(*held.control_offset);
  const uint64_t last = page == nullptr ? held.epoch : tutti_control_epoch(page);
  return {.died = {{rank, rank}}, .last_epoch = last};
}

// Before anybody else hears of it: whoever waits for the dead rank can leave at once.
void Keeper::tell_siblings(const HeldRank& held, uint64_t sequence) {
  if (!held.control_offset) return;
  ControlChange change = death_of(held);
  ControlPages& pages = *held.arena->pages;
  ControlPages::Busy busy = pages.apply(change);
  if (busy.empty()) return;
  lives_.spawn(tell_busy_siblings(pages, std::move(change), std::move(busy), sequence));
}

// Once the exit is acknowledged, the controller may have begun an epoch with the rank's successor;
// from then on it is the controller's to say who is dead. The pages are there until then.
Task<void> Keeper::tell_busy_siblings(ControlPages& pages, ControlChange change,
                                      ControlPages::Busy busy, uint64_t sequence) {
  for (int tries = 1; !busy.empty(); ++tries) {
    auto slept = co_await world_.clock().sleep(kControlPause);
    if (!slept || !exits_.contains(sequence)) co_return;
    busy = pages.retry(change, busy, tries >= kControlTries);
  }
}

Result<HeldRank*> Keeper::check_assign(const keeper::Assign& command) {
  const auto found = ranks_.find({true, command.spare()});
  if (found == ranks_.end()) return fail(Code::not_found, "there is no spare {}", command.spare());
  HeldRank& held = found->second;
  if (!held.running) return fail(Code::unavailable, "spare {} has ended", command.spare());
  if (ranks_.contains({false, command.rank()}))
    return fail(Code::exists, "rank {} runs already, or its exit was not acknowledged",
                command.rank());
  if (not_ended_) return fail(Code::unavailable, "this keeper could not be reset");
  if (!command.has_control_offset()) return &held;
  TRY_DO(check_page(held.arena, command.control_offset()));
  TRY_DO(held.arena->pages->initialise(command.control_offset(), command.rank(), command.epoch()));
  return &held;
}

Task<Result<void>> Keeper::assign(keeper::Assign command) {
  const Shield whole;  // a spare that read the half of it is of no use to the next controller
  if (command.has_control_offset())
    command.add_environment(
        fmt::format("{}={}", TUTTI_CONTROL_OFFSET_VARIABLE, command.control_offset()));
  CO_TRY(std::string bytes, encode_assignment(command));
  CO_TRY(HeldRank * held, check_assign(command));
  const Instant patience = world_.clock().now() + kAssignPatience;
  Task<Result<void>> handing = hand_over(*held->assignment, std::move(bytes));
  held->assigning = true;
  auto taken = co_await with_deadline(world_.clock(), patience, std::move(handing));
  held->assigning = false;
  if (!taken) {
    if (command.has_control_offset()) held->arena->pages->erase(command.control_offset());
    if (held->running) (void)held->process->signal_family(SIGKILL);
    if (held->exit_meanwhile) note_exit(*held, *held->exit_meanwhile);
    co_return fail(Code::unavailable, "spare {} took no rank: {}", command.spare(),
                   taken.error().text());
  }
  auto node = ranks_.extract({true, command.spare()});
  node.key() = {false, command.rank()};
  held->name = node.key();
  held->epoch = command.epoch();
  if (command.has_control_offset()) held->control_offset = command.control_offset();
  held->assignment.reset();
  ranks_.insert(std::move(node));
  if (held->running && held->control_offset) watch_lifeline(*held);
  if (held->exit_meanwhile) note_exit(*held, *held->exit_meanwhile);
  co_return {};
}

}  // namespace tutti
