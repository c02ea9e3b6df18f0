#include "fabric/fabric.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "base/hash.h"
#include "fabric/group.h"

namespace tutti {

namespace {

// Looks before yielding, and yields before sleeping, when every rank has a core: some tens of
// microseconds, which is what a sleeper takes to wake. With fewer cores than ranks whoever spins
// keeps the other from coming.
constexpr int kSpins = 500;
constexpr int kYields = 200;
constexpr int kSpinsShared = 20;
constexpr int kYieldsShared = 200;
// Between looks at everything that may go wrong, while spinning.
constexpr int kLooksBetweenChecks = 64;
// A bell that was not rung, since its ringer died first, is missed for so long at most.
constexpr Duration kLongestSleep = 20ms;
// One that failed looks as if it had finished, until its keeper gives its page to its successor.
constexpr Duration kFinishedPatience = 2s;
// Told one by one that we leave, whether there is a connection or not.
constexpr size_t kFewRanks = 16;
constexpr Duration kLeavePause = 100us;  // between looks whether they know
// Before the cluster is asked again who is where.
constexpr Duration kWiringPause = 10ms;

void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Groups of all ranks that join() makes, apart from those that were asked for.
constexpr uint32_t kWorlds = 1U << 31;

// Of ranks in ascending order, whatever their order in the group: those who ask for another one
// find each other, and see it.
uint64_t key_of(uint64_t epoch, const std::vector<uint32_t>& ranks, uint32_t ordinal) {
  Hasher hasher;
  hasher.update(std::as_bytes(std::span(&epoch, 1)));
  hasher.update(std::as_bytes(std::span(&ordinal, 1)));
  hasher.update(std::as_bytes(std::span(ranks)));
  return hasher.digest64() | 1;  // never 0
}

}  // namespace

// Shows our board, and looks for those of the others.
class Fabric::Joining final : public Pending {
 public:
  explicit Joining(Fabric& fabric) : fabric_(fabric), looked_(fabric.world_size()) {
    if (fabric.worlds_ == 0 || fabric.over() || fabric.page_epoch() != fabric.epoch_) return;
    known_ = true;  // we take part already
    for (uint32_t rank = 0; rank < looked_.size(); ++rank) looked_[rank] = !fabric.here(rank);
  }

  Result<bool> advance() override {
    const tutti_control_page& page = fabric_.page();
    const uint64_t now = tutti_control_epoch(&page);
    if (tutti_control_aborted(&page, now) != 0) return false;  // the next is about to begin
    if (now != fabric_.epoch_) show(now);
    TRY(const bool known, find_nodes());
    if (!known) return false;
    for (uint32_t slot = 0; slot < fabric_.heap_->slots(); ++slot) look(slot);
    if (std::ranges::count(looked_, true) != std::ssize(looked_)) return look_for_finished();
    if (group_ == nullptr) TRY_DO(meet());
    TRY(const bool found, group_->find_members());
    if (!found) return false;
    group_->own().met.store(1);
    if (group_->wide()) {
      TRY(const bool met, meet_hosts());
      if (!met) return false;
    }
    return measure();
  }

  std::string missing() const override {
    if (tutti_control_aborted(&fabric_.page(), fabric_.page_epoch()) != 0) return next_epoch();
    if (fabric_.options_.wiring != nullptr && !known_)
      return "word from the cluster of where the ranks are; see `tutti status`";
    std::string ranks;
    for (uint32_t rank = 0; rank < looked_.size(); ++rank)
      if (!looked_[rank])
        ranks += fmt::format("{}rank {} of {} ({})", ranks.empty() ? "" : ", ", rank,
                             looked_.size(), state_of(rank));
    if (ranks.empty() && group_ != nullptr) ranks = group_->missing();
    for (const auto& operation : {barrier_, agreement_, measuring_})
      if (ranks.empty() && operation != nullptr && !operation->done()) ranks = operation->missing();
    return ranks + "; `tutti stuck JOB` shows what they do instead";
  }

  // Who has returned 0 does not come back, unlike who failed: that one's page is given to another.
  Result<bool> look_for_finished() {
    std::vector<uint32_t> finished;
    for (uint32_t slot = 0; slot < fabric_.heap_->slots(); ++slot) {
      const Board& board = fabric_.heap_->board(slot);
      if (board.magic == kBoardMagic && board.gang == fabric_.options_.gang &&
          board.left.load() != 0 && board.pid == fabric_.page_of(slot).pid)
        finished.push_back(board.rank);
    }
    const Instant now = fabric_.parking_.now();
    if (finished.empty()) finished_since_ = kNever;
    finished_since_ = std::min(finished_since_, now);
    if (finished.empty() || now - finished_since_ < kFinishedPatience) return false;
    std::ranges::sort(finished);
    return fail(Code::not_found, "ranks {} have finished and left; there is nothing to join",
                fmt::join(finished, ", "));
  }

  std::shared_ptr<Group> take() { return std::move(group_); }

  void abandon() override {
    if (finding_ != nullptr && !finding_->done()) {
      finding_->cancel();
      finding_->wait();
    }
    for (const auto& operation : {barrier_, agreement_, measuring_})
      if (operation != nullptr) operation->abandon();
  }

 private:
  // Who died in this one is to be replaced first.
  std::string next_epoch() const {
    tutti_control_dead dead;
    tutti_control_read_lost(&fabric_.page(), fabric_.page_epoch(), &dead);
    std::vector<uint32_t> ranks;
    for (uint32_t rank = 0; rank < looked_.size(); ++rank)
      if (tutti_control_is_dead(&dead, fabric_.process_of(rank)) != 0) ranks.push_back(rank);
    const std::string whom =
        ranks.empty()
            ? "whoever was lost"
            : fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
    return fmt::format(
        "the next epoch, which begins when {} can be started again; `tutti ps` shows what keeps it",
        whom);
  }

  // Of one of this host that is not here.
  std::string_view state_of(uint32_t rank) const {
    for (uint32_t slot = 0; slot < fabric_.heap_->slots(); ++slot) {
      const Board& board = fabric_.heap_->board(slot);
      if (board.magic != kBoardMagic || board.gang != fabric_.options_.gang || board.rank != rank)
        continue;
      if (board.pid != fabric_.page_of(slot).pid) break;  // its predecessor's
      if (fabric_.ended(slot)) return "whose process has ended";
      return board.left.load() != 0 ? "which has left" : "which is still in an earlier epoch";
    }
    return "whose process has not called join() yet";
  }

  // Who is where, as the cluster says; ranks elsewhere need not be looked for.
  Result<bool> find_nodes() {
    if (fabric_.options_.wiring == nullptr || known_) return true;
    if (finding_ == nullptr) {
      Wiring* wiring = fabric_.options_.wiring;
      found_ = std::make_shared<std::vector<uint32_t>>();
      finding_ = fabric_.on_engine([wiring, found = found_, epoch = fabric_.epoch_] {
        return begin_epoch(*wiring, found, epoch);
      });
    }
    if (!finding_->done()) return false;
    const Result<void> outcome = finding_->result();
    if (!outcome) {
      const Code code = outcome.error().code();
      if (code == Code::cancelled || code == Code::unavailable) return retry();
      return fail(outcome.error());
    }
    if (found_->size() != looked_.size())
      return fail(Code::internal, "the table of the gang has {} ranks, not {}", found_->size(),
                  looked_.size());
    fabric_.nodes_ = *found_;
    const uint32_t here = fabric_.node_of(fabric_.rank());
    for (uint32_t rank = 0; rank < looked_.size(); ++rank) {
      if (fabric_.node_of(rank) == here) continue;
      fabric_.peers_[rank] = {.process = fabric_.process_of(rank)};
      looked_[rank] = true;
    }
    known_ = true;
    return true;
  }

  // The page will soon tell of another epoch; if not, the same is tried again.
  bool retry() {
    const Instant now = fabric_.parking_.now();
    if (retry_at_ == kNever) retry_at_ = now + kWiringPause;
    if (now < retry_at_) return false;
    retry_at_ = kNever;
    finding_ = nullptr;
    return false;
  }

  static Task<Result<void>> begin_epoch(Wiring& wiring,
                                        std::shared_ptr<std::vector<uint32_t>> found,
                                        uint64_t epoch) {
    auto nodes = co_await wiring.begin_epoch(epoch);
    if (!nodes) co_return fail(std::move(nodes).error());
    *found = *std::move(nodes);
    co_return Result<void>{};
  }

  // Those of this host are here; now all of them.
  Result<bool> meet_hosts() {
    if (barrier_ == nullptr) {
      TRY(barrier_, group_->start({.kind = CallKind::barrier, .site = "join"}));
    }
    TRY(const bool here, met(barrier_->advance()));
    if (!here) return false;
    // What rank 0 says of the tuning is for all hosts.
    if (agreement_ == nullptr) {
      words_ = group_->tuning_words();
      words_[kMeasureWord] = static_cast<uint64_t>(wish_);
      auto* words = reinterpret_cast<std::byte*>(words_.data());
      TRY(agreement_, group_->start({.kind = CallKind::broadcast,
                                     .type = DType::i64,
                                     .elements = kTuningWords,
                                     .input = words,
                                     .output = words,
                                     .site = "join"}));
    }
    TRY(const bool told, met(agreement_->advance()));
    if (told && !std::exchange(agreed_, true)) group_->adopt_tuning(words_);
    return told;
  }

  // Who has left this epoch does not come back in it, nor is it replaced.
  Result<bool> met(Result<bool> advanced) const {
    if (!advanced && advanced.error().code() == Code::unavailable && fabric_.first_left_)
      return fail(Code::not_found, "rank {} has finished and left; there is nothing to join",
                  *fabric_.first_left_);
    return advanced;
  }

  // Now, if rank 0 was asked to.
  Result<bool> measure() {
    if (measuring_ == nullptr && group_->measure_ != TuneWhen::now) return true;
    if (measuring_ == nullptr) {
      fabric_.tuning_ = fabric_.joined_tuning_ = group_->tuning();
      TRY(measuring_, group_->start({.kind = CallKind::barrier, .site = "join"}));
    }
    return measuring_->advance();
  }

  void show(uint64_t epoch) {
    Board& board = fabric_.board();
    board.epoch.store(0);
    board.magic = kBoardMagic;
    board.layout = kBoardLayout;
    board.gang = fabric_.options_.gang;
    board.rank = fabric_.rank();
    board.world_size = fabric_.world_size();
    board.process = fabric_.page().rank;
    board.pid = fabric_.page().pid;
    board.left.store(0);
    for (BoardGroup& group : board.groups) {
      if (group.key.load() == 0) break;  // they are taken in order
      group.key.store(0);
      group.failed.store(0);
    }
    for (Letter& letter : board.letters) letter.state.store(LetterState::none);
    fabric_.flight_.begin_epoch(
        epoch,
        {.gang = board.gang, .rank = board.rank, .world_size = board.world_size, .pid = board.pid});
    fabric_.groups_.clear();
    fabric_.worlds_ = 0;
    fabric_.wide_groups_.clear();
    fabric_.first_left_.reset();
    fabric_.epoch_ = epoch;
    board.epoch.store(epoch);
    for (uint32_t slot = 0; slot < fabric_.heap_->slots(); ++slot) fabric_.ring(slot);
    looked_.assign(looked_.size(), false);
    if (finding_ != nullptr) finding_->cancel();
    finding_ = nullptr;
    known_ = false;
    retry_at_ = kNever;
    barrier_ = agreement_ = measuring_ = nullptr;
    agreed_ = false;
    group_ = nullptr;
  }

  void look(uint32_t slot) {
    const Board& board = fabric_.heap_->board(slot);
    if (board.epoch.load() != fabric_.epoch_ || board.magic != kBoardMagic ||
        board.gang != fabric_.options_.gang || board.rank >= looked_.size())
      return;
    fabric_.peers_[board.rank] = {.slot = slot, .process = board.process, .pid = board.pid};
    looked_[board.rank] = true;
  }

  Result<void> meet() {
    std::vector<uint32_t> all(fabric_.world_size());
    for (uint32_t rank = 0; rank < all.size(); ++rank) all[rank] = rank;
    const uint64_t key = key_of(fabric_.epoch_, all, kWorlds + fabric_.worlds_++);
    group_ = std::shared_ptr<Group>(new Group(fabric_, "world", std::move(all), key));
    fabric_.look_up_tuning(*group_);
    wish_ = group_->measure_;
    return group_->claim("join()");
  }

  Fabric& fabric_;
  std::vector<bool> looked_;
  std::shared_ptr<Group> group_;
  Instant finished_since_ = kNever;
  // Of several hosts.
  bool known_ = false;  // who is where
  std::shared_ptr<std::vector<uint32_t>> found_;
  std::shared_ptr<EngineJob> finding_;
  Instant retry_at_ = kNever;
  std::shared_ptr<Operation> barrier_;
  std::shared_ptr<Operation> agreement_;  // on the tuning
  TuneWhen wish_ = TuneWhen::never;       // rank 0's
  TuningWords words_{};
  bool agreed_ = false;
  std::shared_ptr<Operation> measuring_;
};

Task<void> Pending::abandon(World&) {
  abandon();
  co_return;
}

Result<std::unique_ptr<Fabric>> Fabric::open(Parking& parking, FabricOptions options) {
  if (options.world_size == 0 || options.rank >= options.world_size)
    return fail(Code::invalid, "rank {} of {} cannot be", options.rank, options.world_size);
  const uint64_t slots = options.control->bytes().size() / TUTTI_CONTROL_BYTES;
  if (options.slot >= slots)
    return fail(Code::invalid, "there is no control page {} among {}", options.slot, slots);
  TRY(auto heap,
      Heap::open(parking, std::move(options.heap), static_cast<uint32_t>(slots), options.slot));
  auto fabric = std::unique_ptr<Fabric>(new Fabric(parking, std::move(options), std::move(heap)));
  if (fabric->page().magic != TUTTI_CONTROL_MAGIC)
    return fail(Code::corrupt, "there is no control page at {}", fabric->options_.slot);
  fabric->board().parked.store(kNotParked);  // whoever slept here before is gone
  fabric->flight_.wait_in(kWaitsForNothing);
  fabric->announce_flight();
  return fabric;
}

Fabric::Fabric(Parking& parking, FabricOptions options, std::unique_ptr<Heap> heap)
    : parking_(parking),
      options_(std::move(options)),
      heap_(std::move(heap)),
      flight_(parking_, board().flight),
      peers_(options_.world_size),
      spins_(options_.cores >= options_.world_size),
      tuning_(Tuning::defaults(spins_, 1)),
      joined_tuning_(tuning_) {}

Fabric::~Fabric() { leave(); }

void Fabric::begin_to_leave() {
  if (epoch_ == 0) return;
  if (world_ != nullptr && world_->wide() && !over()) tell_of_leave();
  epoch_ = 0;
  board().left.store(1);
  flight_.leave();
  board().epoch.store(0);
  for (uint32_t slot = 0; slot < heap_->slots(); ++slot) ring(slot);
}

void Fabric::leave() {
  begin_to_leave();
  for (const auto& job : std::exchange(telling_, {})) job->wait();
}

void Fabric::was_killed() {
  epoch_ = 0;
  telling_.clear();
}

Task<void> Fabric::leave(World& world) {
  begin_to_leave();
  for (const auto& job : std::exchange(telling_, {})) {
    while (!job->done()) {
      auto slept = co_await world.clock().sleep(kLeavePause);
      if (!slept) co_return;
    }
  }
}

// Those of other hosts who are connected with us, or all if they are few: who waits for us in a
// call and is not told by us is told by another member.
static Task<Result<void>> tell_left(Transport& transport, std::vector<uint32_t> ranks,
                                    Refusal refusal) {
  if (ranks.size() > kFewRanks) {
    const auto linked = transport.linked();
    std::erase_if(ranks, [&](uint32_t rank) { return !std::ranges::binary_search(linked, rank); });
  }
  const auto left = transport.left();
  std::erase_if(ranks, [&](uint32_t rank) { return std::ranges::count(left, rank) != 0; });
  co_await transport.refuse(std::move(ranks), std::move(refusal));
  co_return Result<void>{};
}

// What comes after the calls that we have done cannot be done any more.
void Fabric::tell_of_leave() {
  std::vector<std::shared_ptr<Group>> groups = wide_groups_;
  groups.push_back(world_);
  for (const auto& group : groups) {
    Refusal refusal = group->refusal(group->next_call(), left_error(rank()), rank());
    telling_.push_back(on_engine([transport = &transport(), ranks = group->elsewhere(),
                                  refusal = std::move(refusal)] mutable {
      return tell_left(*transport, std::move(ranks), std::move(refusal));
    }));
  }
  refuse_parcels();
}

tutti_control_page& Fabric::page_of(uint32_t slot) const {
  return *reinterpret_cast<tutti_control_page*>(options_.control->bytes().data() +
                                                uint64_t{slot} * TUTTI_CONTROL_BYTES);
}

std::atomic<uint32_t>& Fabric::bell(uint32_t slot) const {
  return reinterpret_cast<std::atomic<uint32_t>&>(page_of(slot).word);
}

// For who copies it from outside.
void Fabric::announce_flight() {
  const uint64_t offset = *heap_->find(&board().flight, sizeof(FlightRecord));
  tutti_control_set_record(&page(), offset, sizeof(FlightRecord), kFlightBriefBytes);
}

// What was begun goes on when join() is called again after its time was up: others may have found
// the group that we showed them.
Fabric::Joining& Fabric::joining() {
  if (world_ != nullptr && world_->wide()) wide_groups_.push_back(world_);  // until the epoch ends
  world_ = nullptr;
  if (joining_ == nullptr) joining_ = std::make_unique<Joining>(*this);
  return *joining_;
}

Result<void> Fabric::join(Duration timeout) {
  TRY_DO(wait(joining(), parking_.now() + timeout));
  return finish_joining();
}

Task<Result<void>> Fabric::join(World& world, Duration timeout) {
  Joining& pending = joining();
  const Instant deadline = parking_.now() + timeout;
  auto waited = co_await wait(world, pending, deadline);
  if (!waited) co_return waited;
  co_return finish_joining();
}

// All ranks have left whatever they did before, so nobody uses our predecessor's scratch.
Result<void> Fabric::finish_joining() {
  world_ = joining_->take();
  tuning_ = joined_tuning_ = world_->tuning();
  joining_ = nullptr;
  made_.clear();
  unmet_.clear();
  if (!std::exchange(scratch_cleared_, true)) heap_->clear_scratch();
  return {};
}

// Rank 0's counts. Ranks that share cores disturb each other more than tuning could tell apart.
void Fabric::look_up_tuning(Group& world) {
  if (!tuned_) world.tuning_ = Tuning::defaults(spins_, world.hosts().hosts());
  if (tuned_) world.tuning_ = tuning_;
  if (rank() != 0 || tuned_ || world_size() == 1 || options_.tune == TuneWhen::never) return;
  world.measure_ = options_.tune;
  if (options_.tune == TuneWhen::now) return;
  const TuningShape here = shape(world);
  const auto found = options_.tunings == nullptr ? std::nullopt : options_.tunings->load(here);
  if (found) world.tuning_ = *found;
  if (found || here.cores < here.ranks) world.measure_ = TuneWhen::never;
}

void Fabric::tuned(const Group& world) {
  tuning_ = world.tuning();
  tuned_ = true;
  if (rank() == 0 && options_.tunings != nullptr && tuning_.origin == TuningOrigin::measured)
    options_.tunings->save(shape(world), tuning_);
}

TuningShape Fabric::shape(const Group& world) const {
  return {.cores = options_.cores,
          .ranks = static_cast<uint32_t>(world.local_.size()),
          .hosts = world.hosts().hosts()};
}

Result<std::shared_ptr<Group>> Fabric::make_group(std::vector<uint32_t> ranks, std::string name,
                                                  const std::string& site) {
  if (world_ == nullptr) return fail(Code::invalid, "join() comes before group()");
  std::vector<uint32_t> sorted = ranks;
  std::ranges::sort(sorted);
  if (std::ranges::adjacent_find(sorted) != sorted.end() || sorted.empty() ||
      sorted.back() >= world_size())
    return fail(Code::invalid, "a group has different ranks from 0 to {}", world_size() - 1);
  if (std::ranges::find(ranks, rank()) == ranks.end())
    return fail(Code::invalid, "rank {} is not in the group it asks for", rank());
  if (first_left_ && std::ranges::binary_search(sorted, *first_left_))
    return fail(left_error(*first_left_));
  const uint64_t set = key_of(0, sorted, 0);
  const auto unmet = unmet_.find(set);
  if (unmet != unmet_.end() && unmet->second->is_of(ranks, name)) return unmet->second;
  const uint64_t key = key_of(epoch_, sorted, worlds_ * kMostGroups + ++made_[set]);
  auto made = std::shared_ptr<Group>(new Group(*this, std::move(name), std::move(ranks), key));
  TRY_DO(made->claim(site));
  made->asked_for_ = true;
  unmet_[set] = made;
  return made;
}

// Others may find what we showed them also when our time is up.
Result<std::shared_ptr<Group>> Fabric::made_group(std::shared_ptr<Group> made, Result<void> met) {
  if (met || met.error().code() != Code::deadline)
    std::erase_if(unmet_, [&](const auto& entry) { return entry.second == made; });
  if (!met) return fail(std::move(met).error());
  if (made->wide()) wide_groups_.push_back(made);
  return made;
}

Result<std::shared_ptr<Group>> Fabric::group(std::vector<uint32_t> ranks, std::string name,
                                             const std::string& site) {
  TRY(auto made, make_group(std::move(ranks), std::move(name), site));
  auto met = made->meet();
  return made_group(std::move(made), std::move(met));
}

Task<Result<std::shared_ptr<Group>>> Fabric::group(World& world, std::vector<uint32_t> ranks,
                                                   std::string name, std::string site) {
  CO_TRY(auto made, make_group(std::move(ranks), std::move(name), site));
  auto met = co_await made->meet(world);
  co_return made_group(std::move(made), std::move(met));
}

bool Fabric::over() const { return tutti_control_aborted(&page_of(options_.slot), epoch_) != 0; }

bool Fabric::ended(uint32_t slot) const {
  return __atomic_load_n(&page_of(slot).lifeline, __ATOMIC_ACQUIRE) == TUTTI_CONTROL_LIFELINE_ENDED;
}

std::shared_ptr<Group> Fabric::group_with(uint64_t key) const {
  for (const auto& each : groups_)
    if (auto group = each.lock(); group != nullptr && group->key_ == key) return group;
  return nullptr;
}

void Fabric::heard_left(uint32_t rank) {
  if (!first_left_) first_left_ = rank;
}

std::vector<uint32_t> Fabric::lost() const {
  if (first_left_ && !over()) return {*first_left_};
  tutti_control_dead dead;
  tutti_control_read_lost(&page_of(options_.slot), epoch_, &dead);
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < peers_.size(); ++rank) {
    if (tutti_control_is_dead(&dead, peers_[rank].process) != 0) {
      ranks.push_back(rank);
      continue;
    }
    if (node_of(rank) != node_of(this->rank())) continue;
    const Board& board = heap_->board(peers_[rank].slot);
    const bool elsewhere = board.epoch.load() != epoch_;
    const bool replaced = elsewhere && board.pid != peers_[rank].pid;
    const bool left = elsewhere && board.left.load() != 0;
    if (replaced || left) ranks.push_back(rank);
  }
  return ranks;
}

Error Fabric::epoch_error() const {
  const auto ranks = lost();
  if (ranks.empty())
    return {Code::unavailable, fmt::format("epoch {} is over; join the next", epoch_)};
  return {Code::unavailable,
          fmt::format("lost {} {}; join the next epoch", ranks.size() == 1 ? "rank" : "ranks",
                      fmt::join(ranks, ", "))};
}

Result<void> Fabric::check(const Pending& pending, Instant deadline) {
  if (world_ != nullptr && over()) return fail(epoch_error());
  if (parking_.now() < deadline) return {};
  return fail(Code::deadline, "the time is up; missing: {}", pending.missing());
}

Result<void> Fabric::wait(Pending& pending, Instant deadline) {
  auto waited = wait_for_end(pending, deadline);
  if (!waited && waited.error().code() != Code::deadline) pending.abandon();
  return waited;
}

Result<void> Fabric::wait_for_end(Pending& pending, Instant deadline) {
  const int spins = spins_ ? kSpins : kSpinsShared;
  const int yields = spins_ ? kYields : kYieldsShared;
  for (int look = 1;; ++look) {
    TRY(const bool done, pending.advance());
    if (done) {
      flight_.wait_in(kWaitsForNothing);
      return {};
    }
    if (pending.busy()) {
      TRY_DO(check(pending, deadline));
      look = 0;
      continue;
    }
    // Whoever gives up waiting is still shown here: it is what the rank did last.
    if (look == spins + 1) pending.note_wait(flight_);
    if (look % kLooksBetweenChecks == 0 || look > spins) TRY_DO(check(pending, deadline));
    if (look <= spins) {
      pause_processor();
    } else if (look <= spins + yields) {
      parking_.yield();
    } else {
      break;
    }
  }
  Board& own = board();
  while (true) {
    const uint32_t seen = bell(options_.slot).load(std::memory_order_acquire);
    const uint32_t whom = pending.waits_for();
    own.parked.store(whom, std::memory_order_seq_cst);
    auto advanced = pending.advance();
    // Somebody else is to be waited for by now, who has not seen that we do: look again.
    if (advanced.has_value() && !*advanced && !pending.busy() && pending.waits_for() != whom)
      continue;
    if (advanced.has_value() && !*advanced) {
      auto checked = check(pending, deadline);
      if (!checked) advanced = fail(std::move(checked).error());
    }
    if (!advanced.has_value() || *advanced) {
      own.parked.store(kNotParked, std::memory_order_relaxed);
      if (!advanced.has_value()) return fail(std::move(advanced).error());
      flight_.wait_in(kWaitsForNothing);
      return {};
    }
    if (!pending.busy())
      parking_.park(bell(options_.slot), seen, std::min(deadline, parking_.now() + kLongestSleep));
    own.parked.store(kNotParked, std::memory_order_relaxed);
  }
}

Task<Result<void>> Fabric::wait(World& world, Pending& pending, Instant deadline) {
  auto waited = co_await wait_for_end(world, pending, deadline);
  if (!waited && waited.error().code() != Code::deadline) co_await pending.abandon(world);
  co_return waited;
}

Task<Result<void>> Fabric::wait_for_end(World& world, Pending& pending, Instant deadline) {
  pending.note_wait(flight_);
  while (true) {
    const uint32_t seen = bell(options_.slot).load();
    board().parked.store(kParkedForAny);
    auto advanced = pending.advance();
    if (advanced.has_value() && !*advanced) {
      auto checked = check(pending, deadline);
      if (!checked) advanced = fail(std::move(checked).error());
    }
    if (!advanced.has_value() || *advanced) {
      board().parked.store(kNotParked);
      if (!advanced.has_value()) co_return fail(std::move(advanced).error());
      flight_.wait_in(kWaitsForNothing);
      co_return Result<void>{};
    }
    if (pending.busy()) {
      auto rested = co_await world.clock().sleep(Duration(0));
      if (!rested) co_return fail(std::move(rested).error());
      continue;
    }
    const Instant until = std::min(deadline, parking_.now() + kLongestSleep);
    auto woken = co_await world.memory().wait(bell(options_.slot), seen, until);
    if (!woken && woken.error().code() != Code::deadline) co_return fail(std::move(woken).error());
  }
}

std::shared_ptr<EngineJob> Fabric::on_engine(std::function<Task<Result<void>>()> make) {
  return EngineJob::begin(*options_.engine, std::move(make), [this] { ring_ourselves(); });
}

static Task<Result<void>> refuse(Transport& transport, std::vector<uint32_t> ranks,
                                 Refusal refusal) {
  co_await transport.refuse(std::move(ranks), std::move(refusal));
  co_return Result<void>{};
}

void Fabric::tell_others(std::vector<uint32_t> ranks, Refusal refusal) {
  std::erase_if(telling_, [](const auto& job) { return job->done(); });
  telling_.push_back(on_engine(
      [transport = &transport(), ranks = std::move(ranks), refusal = std::move(refusal)] mutable {
        return refuse(*transport, std::move(ranks), std::move(refusal));
      }));
}

// From the engine.
void Fabric::ring_ourselves() {
  if (board().parked.load(std::memory_order_seq_cst) == kNotParked) return;
  bell(options_.slot).fetch_add(1, std::memory_order_release);
  parking_.wake_all(bell(options_.slot));
}

void Fabric::ring(uint32_t slot) {
  if (slot == options_.slot) return;
  const uint32_t parked = heap_->board(slot).parked.load(std::memory_order_seq_cst);
  if (parked != kParkedForAny && parked != 1 + options_.slot) return;
  bell(slot).fetch_add(1, std::memory_order_release);
  parking_.wake_all(bell(slot));
}

}  // namespace tutti
