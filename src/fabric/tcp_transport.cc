#include "fabric/tcp_transport.h"

#include <algorithm>

#include "fabric/tcp_carry.h"
#include "fabric/tcp_epoch.h"

namespace tutti {

namespace {

// After accept() failed for want of descriptors: some may be closed by then.
constexpr Duration kAcceptPause = 50ms;

}  // namespace

using tcp::Epoch;

TcpTransport::TcpTransport(TcpOptions options)
    : context_(std::make_unique<tcp::Context>(std::move(options))),
      over_(Code::unavailable, "no epoch has begun"),
      tell_refused_(10s, 10) {}

TcpTransport::~TcpTransport() { scope_.kill(); }

Task<Result<std::unique_ptr<TcpTransport>>> TcpTransport::open(TcpOptions options) {
  if (options.streams == 0 || options.streams > tcp::kMaxStreams)
    co_return fail(Code::invalid, "{} streams per link; use 1 to {}", options.streams,
                   tcp::kMaxStreams);
  const Address at = options.listen;
  auto listener = co_await options.world.network().listen(at);
  if (!listener) co_return fail(listener.error());
  std::unique_ptr<TcpTransport> transport(new TcpTransport(std::move(options)));
  transport->listener_ = std::move(*listener);
  transport->scope_.spawn(transport->accept_all());
  co_return transport;
}

Task<void> TcpTransport::stop() {
  const Instant by = context_->clock().now() + tcp::kPartingTime;
  while (epoch_ != nullptr && !epoch_->quiet() && context_->clock().now() < by) {
    auto slept = co_await context_->clock().sleep(tcp::kPartingPause);
    if (!slept) break;
  }
  end_epoch({Code::unavailable, "the transport was stopped"});
  scope_.cancel();
  const Shield until_all_are_gone;
  auto joined = co_await scope_.join();
  static_cast<void>(joined);
  listener_.reset();
}

std::string_view TcpTransport::name() const {
  const Carrier* carrier = context_->options.carrier;
  return carrier == nullptr ? "tcp" : carrier->name();
}

const TcpCounters& TcpTransport::counters() const { return context_->counters; }

// ---- Epochs ----

void TcpTransport::begin_epoch(uint64_t epoch) {
  TUTTI_ASSERT(epoch > last_epoch_, "epochs grow");
  end_epoch({Code::unavailable, fmt::format("epoch {} began", epoch)});
  last_epoch_ = epoch;
  epoch_ = std::make_unique<Epoch>(*context_, epoch);
  epoch_->scope.spawn(publish(epoch));
}

void TcpTransport::end_epoch(Error why) {
  over_ = std::move(why);
  if (epoch_ == nullptr) return;
  epoch_->end(over_);
  scope_.spawn(bury(std::move(epoch_)));
}

Task<void> TcpTransport::bury(std::unique_ptr<Epoch> epoch) {
  const Shield until_its_strands_are_gone;
  co_await epoch->join();
}

Task<void> TcpTransport::publish(uint64_t epoch) {
  Duration pause = tcp::kFirstPause;
  for (;;) {
    auto published = co_await context_->options.addresses.publish(epoch, address());
    if (published || Strand::current()->cancelled()) co_return;
    if (context_->tell_failed.allow(context_->clock().now()))
      TUTTI_LOG(warn, "cannot tell the others where we are; trying again",
                {{"epoch", epoch}, {"why", published.error().text()}});
    auto slept = co_await context_->clock().sleep(pause);
    if (!slept) co_return;
    pause = std::min(2 * pause, tcp::kLongestPause);
  }
}

// ---- Who connects ----

Task<void> TcpTransport::accept_all() {
  for (;;) {
    auto stream = co_await listener_->accept();
    if (!stream) {
      if (stream.error().code() == Code::cancelled) co_return;
      refused(stream.error());
      auto slept = co_await context_->clock().sleep(kAcceptPause);
      if (!slept) co_return;
      continue;
    }
    if (greeting_ >= tcp::kMaxGreeting) {
      refused(Error(Code::exhausted, "too many connections are proving themselves"));
      continue;
    }
    scope_.spawn(greet(std::move(*stream)));
    co_await yield();
  }
}

// Without a word: nothing is answered that is not proved.
void TcpTransport::refused(const Error& why) {
  ++context_->counters.strangers;
  if (!tell_refused_.allow(context_->clock().now())) return;
  TUTTI_LOG(warn, "turned a connection away",
            {{"rank", context_->options.rank},
             {"why", why.text()},
             {"more_like_it", tell_refused_.take_suppressed()}});
}

namespace {

// A call under way is known by its tag.
class Watch {
 public:
  Watch(const Epoch& epoch, Tag tag, tcp::Errand& errand)
      : calls_(epoch.calls()), at_(calls_->emplace(tag, &errand)) {}
  ~Watch() { calls_->erase(at_); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  std::shared_ptr<Epoch::Calls> calls_;
  Epoch::Calls::iterator at_;
};

struct Counted {
  explicit Counted(uint32_t& count) : count(count) { ++count; }
  ~Counted() { --count; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  uint32_t& count;
};

}  // namespace

// The epoch may be another when the proof is there.
class TcpTransport::Door final : public tcp::Doorkeeper {
 public:
  explicit Door(TcpTransport& transport) : transport_(transport) {}
  Result<void> admit(const tcp::Introduction& who) override {
    if (transport_.epoch_ != nullptr) return transport_.epoch_->admit(who);
    return fail(Code::denied, "rank {} is in epoch {}, we are in none", who.from, who.epoch);
  }

 private:
  TcpTransport& transport_;
};

// Nothing is said of a carrier before the proof.
Task<Result<tcp::Welcome>> TcpTransport::let_in(std::unique_ptr<Stream>& stream, Door& door) {
  auto welcomed =
      co_await tcp::welcome(*stream, context_->world().random(), context_->options.key, door);
  Carrier* carrier = context_->options.carrier;
  if (!welcomed || carrier == nullptr) {
    if (welcomed) stream->keep_close();
    co_return welcomed;
  }
  const tcp::Secrets& keys = welcomed->secrets;
  auto over = co_await tcp::carried(*carrier, std::move(stream), keys.to_caller, keys.to_called);
  if (!over) co_return fail(over.error());
  stream = std::move(*over);
  co_return welcomed;
}

Task<void> TcpTransport::greet(std::unique_ptr<Stream> stream) {
  const Counted counted(greeting_);
  Door door(*this);
  World& world = context_->world();
  auto work = let_in(stream, door);
  const Instant by = world.clock().now() + tcp::kHandshakeTimeout;
  auto welcomed = co_await with_deadline(world.clock(), by, std::move(work));
  if (!welcomed) {
    if (welcomed.error().code() != Code::cancelled) refused(welcomed.error());
    co_return;
  }
  // Admitted a moment ago, but not in the same turn.
  auto admitted = door.admit(welcomed->who);
  if (!admitted) {
    refused(admitted.error());
    co_return;
  }
  epoch_->answerer(welcomed->who.from).join(*welcomed, std::move(stream));
}

// ---- Calls ----

Task<void> TcpTransport::refuse(std::vector<uint32_t> ranks, Refusal refusal) {
  if (epoch_ == nullptr) co_return;
  epoch_->refuse_here(refusal);
  const std::string told = tcp::store_refusal(refusal);
  const Instant by = context_->clock().now() + tcp::kRefusalPatience;
  auto telling = tell_all(std::move(ranks), refusal.from.scope, as_bytes(told));
  (void)co_await with_deadline(context_->clock(), by, std::move(telling));
}

std::vector<uint32_t> TcpTransport::left() const {
  if (epoch_ == nullptr) return {};
  return {epoch_->left().begin(), epoch_->left().end()};
}

std::optional<uint32_t> TcpTransport::left_in(uint64_t scope) const {
  return epoch_ == nullptr ? std::nullopt : epoch_->left_in(scope);
}

std::vector<uint32_t> TcpTransport::linked() const {
  return epoch_ == nullptr ? std::vector<uint32_t>() : epoch_->linked();
}

Task<Result<void>> TcpTransport::tell_all(std::vector<uint32_t> ranks, uint64_t scope, Bytes told) {
  Scope tellers;
  for (const uint32_t rank : ranks)
    tellers.spawn(send(rank, {tcp::kRefusalScope, scope}, told, Priority::urgent));
  auto joined = co_await tellers.join();
  co_return joined;
}

Result<void> TcpTransport::check(uint32_t rank, Tag tag) const {
  if (epoch_ == nullptr) return fail(over_);
  if (const Error* refused = epoch_->refusal(tag)) return fail(*refused);
  if (rank >= context_->options.world_size)
    return fail(Code::invalid, "there is no rank {}; there are {}", rank,
                context_->options.world_size);
  return {};
}

Task<Result<void>> TcpTransport::send(uint32_t rank, Tag tag, Bytes bytes, Priority priority) {
  auto checked = check(rank, tag);
  if (!checked) co_return checked;
  if (bytes.size() <= tcp::kSmallBytes) {
    tcp::Caller& caller = epoch_->caller(rank);
    tcp::SmallSend send(caller, tag, bytes, priority);
    const Watch watch(*epoch_, tag, send);
    caller.start(send);
    auto sent = co_await send;
    co_return sent;
  }
  tcp::Answerer& answerer = epoch_->answerer(rank);
  tcp::LargeSend send(answerer, tag, bytes, priority);
  const Watch watch(*epoch_, tag, send);
  answerer.start(send);
  auto sent = co_await send;
  co_return sent;
}

Task<Result<void>> TcpTransport::receive(uint32_t rank, Tag tag, MutableBytes into) {
  auto checked = check(rank, tag);
  if (!checked) co_return checked;
  tcp::Answerer& answerer = epoch_->answerer(rank);
  if (into.size() <= tcp::kSmallBytes) {
    tcp::SmallReceive receive(answerer, tag, into);
    const Watch watch(*epoch_, tag, receive);
    answerer.start(receive);
    auto received = co_await receive;
    co_return received;
  }
  tcp::Caller& caller = epoch_->caller(rank);
  tcp::Pull pull(caller, answerer, tag, into);
  const Watch watch(*epoch_, tag, pull);
  answerer.start(pull);
  if (!pull.done()) caller.start(pull);
  auto received = co_await pull;
  co_return received;
}

Task<Result<void>> TcpTransport::put(uint32_t rank, uint64_t offset, Bytes from,
                                     Priority priority) {
  auto checked = check(rank, {});
  if (!checked || from.empty()) co_return checked;
  tcp::Caller& caller = epoch_->caller(rank);
  tcp::Put put(caller, offset, from, priority);
  caller.start(put);
  auto done = co_await put;
  co_return done;
}

Task<Result<void>> TcpTransport::get(uint32_t rank, Strides from, MutableBytes into,
                                     Priority priority, Tag tag) {
  auto checked = check(rank, tag);
  if (!checked || into.empty()) co_return checked;
  if (from.bytes() != into.size())
    co_return fail(Code::invalid, "{} bytes are asked for, and there is room for {}", from.bytes(),
                   into.size());
  tcp::Caller& caller = epoch_->caller(rank);
  tcp::Pull pull(caller, epoch_->answerer(rank), from, into, priority);
  const Watch watch(*epoch_, tag, pull);
  caller.start(pull);
  auto got = co_await pull;
  co_return got;
}

}  // namespace tutti
