#include <algorithm>
#include <csignal>

#include "cluster/end_descendants.h"
#include "cluster/keeper.h"

namespace tutti {
namespace {

// Rarely enough to cost nothing, often enough that what daemons leave never piles up.
constexpr Duration kReapPause = 1s;
// Between looks whether a family is gone; the wait doubles up to the longest.
constexpr Duration kShortestPause = 200us;
constexpr Duration kLongestPause = 20ms;

Instant after(Instant now, Duration grace) { return grace >= kNever - now ? kNever : now + grace; }

}  // namespace

void Keeper::end_ranks(const keeper::End& end) {
  const Duration grace = std::max(Duration(end.grace_ns()), Duration::zero());
  const Instant until = after(world_.clock().now(), grace);
  std::erase_if(asked_,
                [&](const Asked& asked) { return !world_.processes().family_lives(asked.leader); });
  if (end.ranks().empty() && end.spares().empty())
    for (Asked& asked : asked_) asked.until = until;
  const int number = end.number() != 0 ? end.number() : SIGTERM;
  for (HeldRank* held : named(end.ranks(), end.spares()))
    end_rank(*held, number, until, grace == Duration::zero());
  tend();
}

// A stopped process gets SIGTERM only when it goes on, hence the SIGCONT. What a rank that has
// ended left of its family was asked together with it.
void Keeper::end_rank(HeldRank& held, int number, Instant until, bool at_once) {
  const pid_t leader = held.process->pid();
  const auto before = std::ranges::find(asked_, leader, &Asked::leader);
  if (before != asked_.end()) before->until = until;
  if (!held.running) return;
  if (before == asked_.end()) asked_.push_back({leader, until});
  const int first = at_once ? SIGKILL : number;
  if (held.process->signal_family(first)) held.last_signal_sent = first;
  if (!at_once) (void)held.process->signal_family(SIGCONT);
  held.kill_at = until;
}

// Does what is due and arms the alarm for what is not.
void Keeper::tend() {
  const Instant now = world_.clock().now();
  Instant next = kill_overdue();
  if (reap_at_ <= now) {
    world_.processes().reap_orphans();
    look_at_memory();
    // Without a child there is nobody who could leave orphans, until the next Spawn.
    reap_at_ = world_.processes().childless() ? kNever : now + kReapPause;
  }
  next = std::min(next, reap_at_);
  world_.clock().disarm(tending_);
  if (next != kNever) world_.clock().arm(tending_, next);
}

// Gives when the next grace ends.
Instant Keeper::kill_overdue() {
  const Instant now = world_.clock().now();
  Instant next = kNever;
  for (auto& [name, held] : ranks_) {
    if (!held.running) continue;
    if (held.kill_at > now) {
      next = std::min(next, held.kill_at);
      continue;
    }
    held.kill_at = kNever;
    if (!held.process->signal_family(SIGKILL)) continue;
    held.outlived_grace = held.last_signal_sent != SIGKILL;
    held.last_signal_sent = SIGKILL;
  }
  return next;
}

// Who has no child has no descendant, and the group says so too: then nothing needs to be ended,
// and the group need not be made anew, which would be most of what a small job costs.
bool Keeper::nothing_is_left() {
  world_.processes().reap_orphans();
  return world_.processes().childless() && (group_ == nullptr || group_->as_new());
}

Task<Result<void>> Keeper::reset() {
  const Shield to_the_end;
  resetting_ = true;
  const bool group_stays = nothing_is_left();
  Result<void> ended;
  if (!group_stays) {
    EndDescendantsOptions everything{.group = group_.get(), .spare = {}};
    ended = co_await end_descendants(world_, std::move(everything));
  }
  not_ended_.reset();
  if (!ended) {
    not_ended_ = ended.error();
    resetting_ = false;
    tell_exits();
    co_return ended;
  }
  // All have ended; those who watch them have only to run.
  const auto running = [](const auto& item) { return item.second.running; };
  while (std::ranges::any_of(ranks_, running)) co_await yield();
  ranks_.clear();
  exits_.clear();
  asked_.clear();
  arenas_.clear();
  job_ = 0;
  if (!group_stays) make_group();
  resetting_ = false;
  co_return {};
}

// A rank that ends when asked may have started one that still saves its work: it has the rest of
// the grace. Who was asked nothing, or left its family, has none.
Task<void> Keeper::leave_after_grace(Event& over) {
  Duration pause = kShortestPause;
  while (true) {
    world_.processes().reap_orphans();
    const Instant now = world_.clock().now();
    const auto saves = [&](const Asked& asked) {
      return now < asked.until && world_.processes().family_lives(asked.leader);
    };
    if (std::ranges::none_of(asked_, saves)) break;
    auto slept = co_await world_.clock().sleep(pause);
    if (!slept) co_return;
    pause = std::min(2 * pause, kLongestPause);
  }
  over.set();
}

}  // namespace tutti
