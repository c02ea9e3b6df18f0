#include "fabric/group.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "base/hash.h"
#include "fabric/call_words.h"
#include "fabric/fold.h"

namespace tutti {

namespace {

// An all_reduce of this much is one of many, and worth measuring for.
constexpr uint64_t kMeasureBytes = 1 << 20;

// Who makes a group while another waits in a call for it is wrong, unless that one only looks, with
// a short deadline, and makes the group then.
constexpr Duration kCrossingPatience = 1s;
// Whoever sleeps again after so long has gone on waiting: Python looks for Ctrl-C meanwhile.
constexpr Duration kLongestAwake = 200ms;

// Ranks of a group in words, at most.
constexpr size_t kShownRanks = 16;

std::string asked_words(const std::string& name, const std::vector<uint32_t>& ranks,
                        const std::string& site) {
  const size_t shown = std::min(ranks.size(), kShownRanks);
  std::string text =
      fmt::format("group {} of ranks {}", name, fmt::join(std::span(ranks).first(shown), ", "));
  if (shown < ranks.size()) text += fmt::format(", … ({} in all)", ranks.size());
  if (!site.empty()) text += " at " + site;
  return text;
}

// As much as has room.
template <size_t kRoom>
void put_words(char (&to)[kRoom], const std::string& text) {
  const size_t bytes = std::min(text.size(), kRoom - 1);
  std::memcpy(to, text.data(), bytes);
  to[bytes] = '\0';
}

}  // namespace

Error left_error(uint32_t rank) {
  return {Code::unavailable, fmt::format("rank {} has left: its process ends", rank)};
}

// Everybody has made the group.
class Group::Meeting final : public Pending {
 public:
  explicit Meeting(Group& group) : group_(group) {}
  Result<bool> advance() override {
    auto found = group_.find_members();
    if (found && !*found && crosses_for_long()) return fail(group_.give_up_crossed(*crossing_));
    if (!found || *found) group_.own().met.store(1);
    return found;
  }
  void note_wait(FlightRecorder& flight) const override { flight.wait_in(1 + group_.place_); }
  std::string missing() const override {
    return fmt::format("for {}: {}", group_.own().asked, group_.missing());
  }

 private:
  bool crosses_for_long() {
    const auto crossing = group_.find_crossing();
    if (!crossing) return false;
    const Instant now = group_.parking().now();
    if (crossing != crossing_ || now - seen_ > kLongestAwake) since_ = now;
    crossing_ = crossing;
    seen_ = now;
    return now - since_ >= kCrossingPatience;
  }

  Group& group_;
  std::optional<Crossing> crossing_;
  Instant since_ = kNever;
  Instant seen_ = kNever;
};

Group::Group(Fabric& fabric, std::string name, std::vector<uint32_t> ranks, uint64_t key)
    : fabric_(fabric),
      name_(std::move(name)),
      key_(key),
      epoch_(fabric.epoch()),
      plain_(FoldTree::plain(static_cast<uint32_t>(ranks.size()))),
      tuning_(fabric.tuning_) {
  std::vector<uint32_t> nodes;
  for (uint32_t i = 0; i < ranks.size(); ++i) {
    members_.push_back({.rank = ranks[i], .slot = fabric.peers_[ranks[i]].slot});
    nodes.push_back(fabric.node_of(ranks[i]));
    if (ranks[i] == fabric.rank()) index_ = i;
  }
  hosts_ = std::make_shared<const GroupHosts>(GroupHosts::of(nodes));
  local_ = hosts_->members[hosts_->host_of[index_]];
  // Members of other hosts cannot be asked; all have had this one since they joined.
  if (wide()) tuning_ = fabric.joined_tuning_;
}

Result<void> Group::claim(const std::string& site) {
  if (fabric_.groups_.size() == kMostGroups)
    return fail(Code::exhausted, "a rank has at most {} groups in an epoch", kMostGroups);
  place_ = static_cast<uint32_t>(fabric_.groups_.size());
  fabric_.groups_.push_back(weak_from_this());
  BoardGroup& own = fabric_.board().groups[place_];
  for (BoardCall& call : own.calls) {
    call.kind = CallKind::none;
    call.tick.store(0);
  }
  own.failed.store(0);
  const TuningWords words = tuning_words();
  for (size_t i = 0; i < kTuningWords; ++i) own.tuning[i].store(words[i]);
  std::vector<uint32_t> ranks;
  for (const Member& member : members_) ranks.push_back(member.rank);
  fabric_.flight_.make_group(place_, key_, name_, ranks);
  Hasher hasher;
  hasher.update(std::as_bytes(std::span(ranks)));
  hasher.update(std::as_bytes(std::span(name_)));
  identity_ = hasher.digest64();
  put_words(own.asked, asked_words(name_, ranks, site));
  own.identity.store(identity_);
  own.met.store(0);
  own.key.store(key_, std::memory_order_release);
  members_[index_].board = &own;
  ring_all();
  return {};
}

void Group::ring_all() {
  for (const uint32_t member : local_) fabric_.ring(members_[member].slot);
}

Result<void> Group::look_for(Member& member) {
  for (BoardGroup& group : fabric_.heap().board(member.slot).groups) {
    const uint64_t key = group.key.load(std::memory_order_acquire);
    if (key == 0) break;  // they are taken in order
    if (key != key_) continue;
    const uint64_t identity = group.identity.load();
    if (identity != identity_ && group.key.load() == key_) return fail(disagreement(member));
    if (identity == identity_) member.board = &group;
    break;
  }
  return {};
}

Result<bool> Group::find_members() {
  bool all = true;
  for (const uint32_t index : local_) {
    Member& member = members_[index];
    if (member.board == nullptr) TRY_DO(look_for(member));
    if (member.board != nullptr && member.board->met.load() == kMetNobody &&
        member.board->key.load() == key_)
      return fail(told_by(member));
    all = all && member.board != nullptr;
  }
  if (all) fabric_.flight_.made_group(place_);
  if (all && !std::exchange(adopted_, true)) {
    TuningWords words;
    for (size_t i = 0; i < kTuningWords; ++i) words[i] = members_[local_[0]].board->tuning[i];
    if (wide()) words[kMeasureWord] = 0;  // before other hosts know of it
    adopt_tuning(words);
  }
  return all;
}

std::optional<Group::Crossing> Group::find_crossing() const {
  for (const uint32_t index : local_) {
    const Member& member = members_[index];
    const Board& board = fabric_.heap().board(member.slot);
    if (member.board != nullptr || board.epoch.load() != epoch_ || board.parked == kNotParked)
      continue;
    const uint32_t waiting = __atomic_load_n(&board.flight.waiting, __ATOMIC_ACQUIRE);
    if (waiting == kWaitsForNothing || waiting > kMostGroups) continue;
    const BoardGroup& theirs = board.groups[waiting - 1];
    const auto other = fabric_.group_with(theirs.key.load(std::memory_order_acquire));
    if (other == nullptr) continue;
    const uint32_t tick = other->tick_ + 1;  // nobody is further
    const BoardCall& call = theirs.calls[tick & 1];
    if (call.tick.load(std::memory_order_acquire) == tick && call.call > other->calls_)
      return Crossing{.member = index, .group = other, .theirs = &theirs, .call = call.call};
  }
  return {};
}

Error Group::give_up_crossed(const Crossing& crossing) {
  const Member& member = members_[crossing.member];
  Group& other = *crossing.group;
  const Board& board = fabric_.heap().board(member.slot);
  Error error(Code::invalid,
              fmt::format("ranks do not make the same groups and calls in the same order: rank {} "
                          "asks for {}, rank {} calls {}, of group {}",
                          rank_of(index_), own().asked, member.rank,
                          describe(*crossing.theirs, other.tick_ + 1, board), other.name_));
  // Ours first: whose call is given up may ask for it at once.
  Error told = give_up(error, 1);
  own().met.store(kMetNobody);
  (void)other.give_up(std::move(error), crossing.call);
  ring_all();
  return told;
}

Error Group::told_by(const Member& member) const {
  return {static_cast<Code>(member.board->failed_code),
          fmt::format("rank {} gave up group {}: {}", member.rank, name_, member.board->failure)};
}

bool Group::is_of(const std::vector<uint32_t>& ranks, const std::string& name) const {
  return name == name_ && std::ranges::equal(members_, ranks, {}, &Member::rank);
}

// It found, at the same place among the groups of the same ranks, another than ours.
Error Group::disagreement(const Member& member) {
  const BoardGroup* theirs = nullptr;
  for (const BoardGroup& group : fabric_.heap().board(member.slot).groups)
    if (group.key.load() == key_) theirs = &group;
  const Error error(Code::invalid,
                    fmt::format("ranks do not make the same groups in the same order: rank {} asks "
                                "for {}, rank {} for {}",
                                rank_of(index_), own().asked, member.rank,
                                theirs == nullptr ? "another" : theirs->asked));
  fabric_.flight_.give_up(place_, error.text());
  return error;
}

std::string Group::missing() const {
  std::string text;
  for (const uint32_t index : local_) {
    const Member& member = members_[index];
    if (member.board != nullptr) continue;
    text += fmt::format("{}rank {}", text.empty() ? "" : ", ", member.rank);
    const Board& board = fabric_.heap().board(member.slot);
    if (board.epoch.load() != epoch_) continue;
    std::string instead;
    for (const BoardGroup& group : board.groups)
      if (group.key.load(std::memory_order_acquire) != 0 && group.met.load() == 0)
        instead = fmt::format(" (which waits for {})", group.asked);
    text += instead.empty() ? " (which has not asked for it)" : instead;
  }
  return text;
}

TuningWords Group::tuning_words() const {
  TuningWords words = tuning_.words();
  words[kMeasureWord] = static_cast<uint64_t>(measure_);
  return words;
}

// Words that are none are those of a member whose epoch is over, as ours will be in a moment.
void Group::adopt_tuning(const TuningWords& words) {
  tuning_ = Tuning::of(words).value_or(tuning_);
  measure_ = words[kMeasureWord] <= static_cast<uint64_t>(TuneWhen::now)
                 ? static_cast<TuneWhen>(words[kMeasureWord])
                 : TuneWhen::never;
}

void Group::take_tuning(const TuningWords& words) {
  adopt_tuning(words);
  fabric_.tuned(*this);
}

// Decided alike by all, by what they must agree on.
bool Group::measures_in(const Call& call) const {
  if (measure_ == TuneWhen::now) return true;
  return measure_ == TuneWhen::lazily && call.kind == CallKind::all_reduce &&
         call.elements * dtype_bytes(call.type) >= kMeasureBytes;
}

Result<void> Group::meet() {
  Meeting meeting(*this);
  return fabric_.wait(meeting, fabric_.parking().now() + fabric_.timeout());
}

Task<Result<void>> Group::meet(World& world) {
  Meeting meeting(*this);
  const Instant deadline = fabric_.parking().now() + fabric_.timeout();
  auto met = co_await fabric_.wait(world, meeting, deadline);
  co_return met;
}

Result<std::shared_ptr<Operation>> Group::start(Call call) {
  if (broken_) return fail(*broken_);
  if (epoch_ != fabric_.epoch())
    return fail(Code::unavailable, "group {} was of epoch {}, which is over", name_, epoch_);
  if (fabric_.over()) return fail(fabric_.epoch_error());
  auto operation = std::make_shared<Operation>(*this, std::move(call));
  TRY_DO(operation->prepare());
  operation->begin();
  pending_.push_back(operation);
  TRY_DO(advance());
  return operation;
}

Result<void> Group::advance() {
  while (!pending_.empty()) {
    auto stepped = pending_.front()->step();
    if (!stepped) return fail(std::move(stepped).error());
    if (!*stepped) return {};
    pending_.pop_front();
  }
  return {};
}

Result<void> Group::wait(Operation& operation) { return wait(operation, fabric_.timeout()); }

Result<void> Group::wait(Operation& operation, Duration timeout) {
  return fabric_.wait(operation, fabric_.parking().now() + timeout);
}

Task<Result<void>> Group::wait(World& world, std::shared_ptr<Operation> operation,
                               Duration timeout) {
  const Instant deadline = world.clock().now() + timeout;
  auto waited = co_await fabric_.wait(world, *operation, deadline);
  co_return waited;
}

Result<bool> Group::poll(Operation& operation) {
  TRY(const bool done, operation.advance());
  if (!done && fabric_.over()) return fail(fabric_.epoch_error());
  return done;
}

Result<void> Group::run(Call call) {
  TRY(auto operation, start(std::move(call)));
  return wait(*operation);
}

Result<std::byte*> Group::allocate_shared(uint64_t bytes) {
  if (wide()) {  // memory is shared by those of a host
    std::vector<uint32_t> near;
    for (const uint32_t member : local_) near.push_back(rank_of(member));
    if (near_ == nullptr) {
      TRY(near_, fabric_.group(std::move(near), name_ + " here", "shared()"));
    }
    return near_->allocate_shared(bytes);
  }
  uint64_t offset = 0;
  if (index_ == 0) {
    TRY(offset, fabric_.heap().allocate(bytes));
  }
  TRY_DO(run({.kind = CallKind::broadcast,
              .type = DType::i64,
              .elements = 1,
              .input = reinterpret_cast<const std::byte*>(&offset),
              .output = reinterpret_cast<std::byte*>(&offset),
              .site = "allocate_shared"}));
  return fabric_.heap().at(offset);
}

bool Group::reached(uint32_t member, uint32_t tick) const {
  const uint32_t now = members_[member].board->calls[tick & 1].tick.load(std::memory_order_acquire);
  return static_cast<int32_t>(now - tick) >= 0;
}

bool Group::all_reached(uint32_t tick) {
  if (static_cast<int32_t>(reached_ - tick) >= 0) return true;
  for (const uint32_t member : local_)
    if (!reached(member, tick)) return false;
  reached_ = tick;
  return true;
}

// Nobody reads what the tick before the last left: all have published the last one.
void Group::publish(const BoardCall& call, const BoardDetail& detail, Bytes small) {
  BoardGroup& board = own();
  const uint32_t tick = ++tick_;
  if (!small.empty()) copy_bytes(board.small[tick & 1], small.data(), small.size(), false);
  board.details[tick & 1] = detail;
  BoardCall& line = board.calls[tick & 1];
  line.kind = call.kind;
  line.type = call.type;
  line.op = call.op;
  line.parts = call.parts;
  line.elements = call.elements;
  line.input = call.input;
  line.output = call.output;
  line.root = call.root;
  line.site = call.site;
  line.call = call.call;
  line.lanes = call.lanes;
  line.signature = call.signature;
  line.room = call.room;
  line.tick.store(tick, std::memory_order_seq_cst);  // before we look who sleeps
  ring_all();
}

Result<void> Group::look_for_failures(uint32_t tick, uint32_t call) {
  for (const uint32_t i : local_) {
    const Member& member = members_[i];
    const uint32_t failed = member.board->failed.load(std::memory_order_acquire);
    if (i != index_ && failed != 0 && static_cast<int32_t>(call - failed) >= 0 &&
        member.board->key.load(std::memory_order_acquire) == key_) {
      const uint32_t left = member.board->failed_left;
      if (left != kNobodyLeft) fabric_.heard_left(left);
      broken_ = left != kNobodyLeft ? left_error(left) : told_by(member);
      return fail(*broken_);
    }
    const uint64_t epoch = fabric_.heap().board(member.slot).epoch.load();
    // Looked at in this order: a member publishes before it leaves.
    if (epoch != epoch_ && !reached(i, tick)) {
      if (fabric_.over() || fabric_.page_epoch() != epoch_) return fail(fabric_.epoch_error());
      if (fabric_.heap().board(member.slot).left.load() != 0)
        return fail(give_up(left_error(member.rank), call, member.rank));
      // It heard of a death before us; our page will name the dead in a moment.
    }
    // It returned 0 without a word. Looked at in this order: who fails ends the epoch first.
    if (epoch == epoch_ && fabric_.ended(member.slot) && !reached(i, tick)) {
      if (fabric_.over()) return fail(fabric_.epoch_error());
      return fail(give_up(left_error(member.rank), call, member.rank));
    }
  }
  return {};
}

// Members that went out of step cannot meet again, nor can those of whom one has left: the group is
// over from this call on, for everybody.
Error Group::give_up(Error error, uint32_t call, std::optional<uint32_t> left) {
  const std::string text = error.text();
  BoardGroup& board = own();
  put_words(board.failure, text);
  board.failed_code = static_cast<uint32_t>(error.code());
  board.failed_left = left.value_or(kNobodyLeft);
  board.failed.store(call, std::memory_order_seq_cst);
  fabric_.flight_.give_up(place_, text);
  ring_all();
  broken_ = error;
  if (left) fabric_.heard_left(*left);
  if (wide()) fabric_.tell_others(elsewhere(), refusal(call, error, left));
  return error;
}

Refusal Group::refusal(uint32_t call, Error why, std::optional<uint32_t> left) const {
  return {.from = {key_, uint64_t{call} << kCallShift}, .why = std::move(why), .left = left};
}

std::vector<uint32_t> Group::elsewhere() const {
  std::vector<uint32_t> ranks;
  for (uint32_t member = 0; member < size(); ++member)
    if (hosts_->host_of[member] != hosts_->host_of[index_]) ranks.push_back(rank_of(member));
  return ranks;
}

std::string Group::state_of(uint32_t member, uint32_t tick) const {
  const Member& who = members_[member];
  const BoardCall& last = who.board->calls[(tick - 1) & 1];
  const Board& board = fabric_.heap_->board(who.slot);
  if (last.tick.load() != tick - 1 || last.kind == CallKind::none)
    return fmt::format("rank {} (which has called nothing before)", who.rank);
  const BoardCall& call = last.kind == CallKind::done ? who.board->calls[tick & 1] : last;
  return fmt::format("rank {} (whose last was call {}, {} at {})", who.rank, call.call,
                     call_kind_name(call.kind), board.flight.sites[call.site % kMostSites].text);
}

}  // namespace tutti
