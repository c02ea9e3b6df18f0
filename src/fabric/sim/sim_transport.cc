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
  epoch_ = epoch;
}

void SimTransport::end_epoch(Error why) {
  over_ = std::move(why);
  epoch_ = 0;
  end_calls(calls_.begin(), calls_.end(), over_);
}

// They take themselves out of the table when their frames end, which is later.
void SimTransport::end_calls(std::multimap<uint64_t, simnet::Errand*>::iterator first,
                             std::multimap<uint64_t, simnet::Errand*>::iterator last,
                             const Error& why) {
  for (; first != last; ++first) first->second->end_with(why);
}

void SimTransport::refuse_here(uint64_t scope, const Error& why) {
  if (!refused_.emplace(scope, why).second) return;
  if (refused_.size() > kMostRefused) refused_.erase(refused_.begin());
  const auto [first, last] = calls_.equal_range(scope);
  end_calls(first, last, why);
}

Task<void> SimTransport::refuse(std::vector<uint32_t> ranks, uint64_t scope, Error why) {
  if (epoch_ == 0) co_return;
  refuse_here(scope, why);
  Clock& clock = hub_.sim_host(rank()).clock();
  const Instant by = clock.now() + kRefusalPatience;
  auto telling = tell_all(std::move(ranks), scope, why);
  (void)co_await with_deadline(clock, by, std::move(telling));
}

Task<Result<void>> SimTransport::tell_all(std::vector<uint32_t> ranks, uint64_t scope,
                                          const Error& why) {
  Scope tellers;
  for (const uint32_t rank : ranks) tellers.spawn(tell(rank, scope, why));
  auto joined = co_await tellers.join();
  co_return joined;
}

Task<Result<void>> SimTransport::tell(uint32_t rank, uint64_t scope, const Error& why) {
  simnet::Telling telling(*this, rank, scope, why);
  telling.start();
  auto told = co_await telling;
  co_return told;
}

Result<void> SimTransport::check(uint32_t rank, uint64_t scope) const {
  if (epoch_ == 0) return fail(over_);
  const auto refused = refused_.find(scope);
  if (refused != refused_.end()) return fail(refused->second);
  if (rank >= hub_.ranks())
    return fail(Code::invalid, "there is no rank {}; there are {}", rank, hub_.ranks());
  return {};
}

Task<Result<void>> SimTransport::send(uint32_t rank, Tag tag, Bytes bytes, Priority priority) {
  auto checked = check(rank, tag.scope);
  if (!checked) co_return checked;
  simnet::Send send(*this, rank, tag, bytes, priority);
  send.start();
  auto sent = co_await send;
  co_return sent;
}

Task<Result<void>> SimTransport::receive(uint32_t rank, Tag tag, MutableBytes into) {
  auto checked = check(rank, tag.scope);
  if (!checked) co_return checked;
  simnet::Receive receive(*this, rank, tag, into);
  receive.start();
  auto received = co_await receive;
  co_return received;
}

Task<Result<void>> SimTransport::put(uint32_t rank, uint64_t offset, Bytes from,
                                     Priority priority) {
  auto checked = check(rank, 0);
  if (!checked || from.empty()) co_return checked;
  simnet::Put put(*this, rank, offset, from, priority);
  put.start();
  auto done = co_await put;
  co_return done;
}

Task<Result<void>> SimTransport::get(uint32_t rank, uint64_t offset, MutableBytes into,
                                     Priority priority) {
  auto checked = check(rank, 0);
  if (!checked || into.empty()) co_return checked;
  simnet::Get get(*this, rank, offset, into, priority);
  get.start();
  auto got = co_await get;
  co_return got;
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
