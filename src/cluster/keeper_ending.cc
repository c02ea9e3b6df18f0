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
  kill_overdue();
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

void Keeper::kill_overdue() {
  const Instant now = world_.clock().now();
  Instant next = kNever;
  for (auto& [name, held] : ranks_) {
    if (!held.running) continue;
    if (held.kill_at > now) {
      next = std::min(next, held.kill_at);
      continue;
    }
    held.kill_at = kNever;
    if (held.process->signal_family(SIGKILL)) held.last_signal_sent = SIGKILL;
  }
  world_.clock().disarm(killing_);
  if (next != kNever) world_.clock().arm(killing_, next);
}

// Only while there is anybody who could leave orphans.
void Keeper::reap_orphans() {
  world_.processes().reap_orphans();
  if (world_.processes().childless()) return;
  world_.clock().arm(reaping_, world_.clock().now() + kReapPause);
}

// Some kernels (6.12 to 6.18 at least) kill whatever is started into a group that was ever told to
// kill its members.
void Keeper::renew_group() {
  group_.reset();
  auto made =
      world_.processes().create_group(fmt::format("{}.{}", options_.group, ++groups_killed_));
  if (made) group_ = std::move(*made);
  if (!made) no_group_because_ = made.error().text();
}

Task<Result<void>> Keeper::reset() {
  const Shield to_the_end;
  // A group that nobody is in stays empty: only who is in it could start another there.
  const auto members = group_ != nullptr ? group_->members() : std::vector<pid_t>();
  const bool kills_group = group_ != nullptr && !(members && members->empty());
  EndDescendantsOptions everything{.group = kills_group ? group_.get() : nullptr, .spare = {}};
  auto ended = co_await end_descendants(world_, std::move(everything));
  not_ended_.reset();
  if (!ended) {
    not_ended_ = ended.error();
    co_return ended;
  }
  // All have ended; those who watch them have only to run.
  const auto running = [](const auto& item) { return item.second.running; };
  while (std::ranges::any_of(ranks_, running)) co_await yield();
  if (kills_group) renew_group();
  world_.clock().disarm(killing_);
  ranks_.clear();
  exits_.clear();
  asked_.clear();
  arenas_.clear();
  co_return {};
}

// A rank that ends when asked may have started one that still saves its work: it has the rest of
// the grace. Who was asked nothing, or left its family, has none.
Task<void> Keeper::leave_after_grace(Scope& session) {
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
  session.cancel();
}

}  // namespace tutti
