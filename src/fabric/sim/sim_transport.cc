#include "fabric/sim/sim_transport.h"

#include <algorithm>

#include "world/scope.h"

namespace tutti {

namespace {

constexpr Duration kRefusalPatience = 1s;  // for those that cannot be reached
constexpr size_t kMostRefused = 1024;      // scopes that are kept for who asks again

}  // namespace

SimTransport::SimTransport(SimHub& hub, SimTransportOptions options)
    : hub_(hub), options_(std::move(options)), over_(Code::unavailable, "no epoch has begun") {
  TUTTI_ASSERT(options_.rank < hub.ranks(), "a rank of the hub");
  hub_.arrive(options_.rank, *this);
}

SimTransport::~SimTransport() { hub_.depart(options_.rank, *this); }

void SimTransport::begin_epoch(uint64_t epoch) {
  TUTTI_ASSERT(epoch > 0, "epochs begin at 1");
  end_epoch({Code::unavailable, fmt::format("epoch {} began", epoch)});
  refused_.clear();
  left_.clear();
  linked_.clear();
  epoch_ = epoch;
}

void SimTransport::end_epoch(Error why) {
  over_ = std::move(why);
  epoch_ = 0;
  end_calls(calls_.begin(), calls_.end(), over_);
}

// They take themselves out of the table when their frames end, which is later.
void SimTransport::end_calls(Calls::iterator first, Calls::iterator last, const Error& why) {
  for (; first != last; ++first) first->second->end_with(why);
}

void SimTransport::refuse_here(const Refusal& refusal) {
  if (refusal.left) left_.insert(*refusal.left);
  const auto [known, added] = refused_.emplace(refusal.from.scope, refusal);
  if (!added && refusal.from.number >= known->second.from.number) return;
  known->second = refusal;
  const Tag last{.scope = refusal.from.scope, .number = ~uint64_t{0}};
  end_calls(calls_.lower_bound(refusal.from), calls_.upper_bound(last), refusal.why);
  if (refused_.size() > kMostRefused) refused_.erase(refused_.begin());
}

std::optional<uint32_t> SimTransport::left_in(uint64_t scope) const {
  const auto found = refused_.find(scope);
  return found == refused_.end() ? std::nullopt : found->second.left;
}

Task<void> SimTransport::refuse(std::vector<uint32_t> ranks, Refusal refusal) {
  if (epoch_ == 0) co_return;
  refuse_here(refusal);
  Clock& clock = hub_.sim_host(rank()).clock();
  const Instant by = clock.now() + kRefusalPatience;
  auto telling = tell_all(std::move(ranks), refusal);
  (void)co_await with_deadline(clock, by, std::move(telling));
}

Task<Result<void>> SimTransport::tell_all(std::vector<uint32_t> ranks, const Refusal& refusal) {
  Scope tellers;
  for (const uint32_t rank : ranks) tellers.spawn(tell(rank, refusal));
  auto joined = co_await tellers.join();
  co_return joined;
}

Task<Result<void>> SimTransport::tell(uint32_t rank, const Refusal& refusal) {
  simnet::Telling telling(*this, rank, refusal);
  telling.start();
  auto told = co_await telling;
  co_return told;
}

// What may begin links two ranks, as a connection would.
Result<void> SimTransport::check(uint32_t rank, Tag tag) {
  if (epoch_ == 0) return fail(over_);
  const auto refused = refused_.find(tag.scope);
  if (refused != refused_.end() && tag.number >= refused->second.from.number)
    return fail(refused->second.why);
  if (rank >= hub_.ranks())
    return fail(Code::invalid, "there is no rank {}; there are {}", rank, hub_.ranks());
  linked_.insert(rank);
  SimTransport* there = hub_.transport(rank);
  if (there != nullptr && there->epoch_ == epoch_) there->linked_.insert(options_.rank);
  return {};
}

Task<Result<void>> SimTransport::send(uint32_t rank, Tag tag, Bytes bytes, Priority priority) {
  auto checked = check(rank, tag);
  if (!checked) co_return checked;
  simnet::Send send(*this, rank, tag, bytes, priority);
  send.start();
  auto sent = co_await send;
  co_return sent;
}

Task<Result<void>> SimTransport::receive(uint32_t rank, Tag tag, MutableBytes into) {
  auto checked = check(rank, tag);
  if (!checked) co_return checked;
  simnet::Receive receive(*this, rank, tag, into);
  receive.start();
  auto received = co_await receive;
  co_return received;
}

Task<Result<void>> SimTransport::put(uint32_t rank, uint64_t offset, Bytes from,
                                     Priority priority) {
  auto checked = check(rank, {});
  if (!checked || from.empty()) co_return checked;
  simnet::Put put(*this, rank, offset, from, priority);
  put.start();
  auto done = co_await put;
  co_return done;
}

Task<Result<void>> SimTransport::get(uint32_t rank, Strides from, MutableBytes into,
                                     Priority priority, Tag tag) {
  auto checked = check(rank, tag);
  if (!checked || into.empty()) co_return checked;
  simnet::Get get(*this, rank, from, into, priority, tag);
  get.start();
  auto got = co_await get;
  co_return got;
}

Result<const std::byte*> SimTransport::readable(const Strides& strides, uint64_t bytes) const {
  if (!strides.fits(options_.heap.size(), bytes))
    return fail(Code::invalid, "{} bytes from {} on are not in the heap of rank {}, which has {}",
                bytes, strides.offset, rank(), options_.heap.size());
  return options_.heap.data();
}

Result<MutableBytes> SimTransport::readable(uint64_t offset, uint64_t bytes) const {
  if (offset > options_.heap.size() || bytes > options_.heap.size() - offset)
    return fail(Code::invalid, "bytes {} to {} are not in the heap of rank {}, which has {}",
                offset, offset + bytes, rank(), options_.heap.size());
  return options_.heap.subspan(offset, bytes);
}

Result<MutableBytes> SimTransport::writable(uint64_t offset, uint64_t bytes) const {
  TRY(const MutableBytes room, readable(offset, bytes));
  if (!options_.may_put || !options_.may_put(offset, bytes))
    return fail(Code::denied, "rank {} lets nobody write to {} to {} of its heap", rank(), offset,
                offset + bytes);
  return room;
}

}  // namespace tutti
