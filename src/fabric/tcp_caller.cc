#include "fabric/tcp_caller.h"

#include <algorithm>

#include "fabric/tcp_answerer.h"
#include "fabric/tcp_carry.h"

namespace tutti::tcp {

Caller::Caller(Context& context, EpochState& epoch, uint32_t rank)
    : context_(context), epoch_(epoch), rank_(rank), work_(context.clock()) {
  epoch_.scope.spawn(run());
}

Caller::~Caller() { end({Code::unavailable, "the transport is gone"}); }

// ---- What is asked ----

bool Caller::full(Errand& errand) {
  if (pulls_.size() + puts_.size() + unreleased_.size() < kMaxOperations) return false;
  errand.finish(fail(Code::exhausted, "{} transfers with rank {} are under way; wait for some",
                     kMaxOperations, rank_));
  return true;
}

void Caller::start(SmallSend& send) {
  queued_[static_cast<size_t>(send.priority)].push_back(send);
  wake();
}

void Caller::start(Pull& pull) {
  if (full(pull)) return;
  pull.id = next_id_++;
  pulls_.emplace(pull.id, &pull);
  if (up_) ask(pull);
  wake();
}

void Caller::start(Put& put) {
  if (full(put)) return;
  put.flow.frame.id = next_id_++;
  puts_.emplace(put.flow.frame.id, &put);
  if (up_) bundle_->start(put.flow);
  wake();
}

void Caller::withdraw(SmallSend& send) {
  send.unlink();
  in_flight_.erase(send.id);
}

void Caller::withdraw(Pull& pull) {
  if (pulls_.erase(pull.id) == 0) return;
  if (bundle_ == nullptr) return;
  bundle_->abandon(pull.id);
  if (up_) bundle_->send({.type = FrameType::stop, .priority = Priority::urgent, .id = pull.id});
}

void Caller::withdraw(Put& put) {
  if (puts_.erase(put.flow.frame.id) == 0) return;
  if (bundle_ != nullptr) bundle_->withdraw(put.flow);
}

void Caller::tell(FrameType what, const LargeSend& send) {
  if (!up_) {
    wanted_ = true;  // the next time it is told
    return wake();
  }
  bundle_->send({.type = what,
                 .id = send.serial,
                 .scope = send.tag.scope,
                 .number = send.tag.number,
                 .total = send.flow.bytes.size()});
}

void Caller::ask(const Pull& pull) {
  const std::string apart = pull.from.loop_count == 0 ? "" : pull.from.encode();
  bundle_->send({.type = pull.takes ? FrameType::take : FrameType::get,
                 .priority = pull.priority,
                 .id = pull.id,
                 .scope = pull.tag.scope,
                 .number = pull.takes ? pull.tag.number : 0,
                 .offset = pull.pieces.missing(),
                 .total = pull.into.size()},
                as_bytes(apart));
}

bool Caller::quiet() const { return unreleased_.empty(); }

void Caller::end(const Error& why) {
  for (auto& queue : queued_)
    while (!queue.empty()) queue.pop_front().finish(fail(why));
  for (const auto& [id, send] : std::exchange(in_flight_, {})) send->finish(fail(why));
  for (const auto& [id, pull] : std::exchange(pulls_, {})) {
    if (bundle_ != nullptr) bundle_->abandon(id);
    if (pull->takes) pull->answerer.forget(*pull);
    pull->finish(fail(why));
  }
  for (const auto& [id, put] : std::exchange(puts_, {})) {
    if (bundle_ != nullptr) bundle_->withdraw(put->flow);
    put->finish(fail(why));
  }
  unreleased_.clear();
}

// ---- The link ----

bool Caller::busy() const {
  const bool queued =
      std::ranges::any_of(queued_, [](const auto& queue) { return !queue.empty(); });
  return queued || wanted_ || !in_flight_.empty() || !pulls_.empty() || !puts_.empty() ||
         !unreleased_.empty();
}

void Caller::wake() {
  if (up_) bundle_->wake();
  work_.ring();
}

Task<void> Caller::run() {
  Duration pause = kFirstPause;
  for (;;) {
    if (!busy()) {
      auto waited = co_await work_.until(kNever);
      if (!waited) co_return;
      continue;
    }
    FrameTaker& taker = *this;
    bundle_ = std::make_unique<Bundle>(context_.world(), taker, context_.counters);
    auto ended = co_await connect(*bundle_);
    const Instant since = context_.clock().now();
    const bool connected = ended.has_value();
    if (connected) {
      resume();
      ended = co_await attend();
      up_ = false;
    }
    for (const auto& [id, put] : puts_) bundle_->withdraw(put->flow);
    bundle_.reset();
    if (Strand::current()->cancelled()) co_return;
    if (connected) ++context_.counters.broken;
    // Trying again would not help: it is told.
    if (!ended && ended.error().code() == Code::unsupported) end(ended.error());
    // Who is not there yet will be in a moment.
    if (!ended && (connected || pause == kLongestPause)) tell_lost(ended.error());
    if (context_.clock().now() - since > kGoodLink) pause = kFirstPause;
    // Not all at once, where many lost the same peer.
    const auto half = static_cast<uint64_t>(pause.count() / 2);
    const Duration wait(static_cast<int64_t>(half + context_.world().random().below(half + 1)));
    auto slept = co_await context_.clock().sleep(wait);
    if (!slept) co_return;
    pause = std::min(2 * pause, kLongestPause);
  }
}

void Caller::tell_lost(const Error& why) {
  if (!context_.tell_broken.allow(context_.clock().now())) return;
  TUTTI_LOG(debug, "no link to a rank; trying again",
            {{"rank", rank_},
             {"epoch", epoch_.number},
             {"why", why.text()},
             {"more_like_it", context_.tell_broken.take_suppressed()}});
}

Task<Result<void>> Caller::connect(Bundle& bundle) {
  ++incarnation_;
  auto address = co_await context_.options.addresses.find(epoch_.number, rank_);
  if (!address) co_return fail(address.error());
  for (uint32_t stream = 0; stream < context_.options.streams; ++stream) {
    auto work = connect_stream(bundle, *address, static_cast<uint8_t>(stream));
    const Instant by = context_.clock().now() + kHandshakeTimeout;
    auto connected = co_await with_deadline(context_.clock(), by, std::move(work));
    if (!connected) co_return connected;
  }
  co_return {};
}

Task<Result<void>> Caller::connect_stream(Bundle& bundle, Address address, uint8_t stream) {
  auto connected = co_await context_.world().network().connect(address);
  if (!connected) co_return fail(connected.error());
  const Introduction who{.epoch = epoch_.number,
                         .from = context_.options.rank,
                         .to = rank_,
                         .session = epoch_.session,
                         .incarnation = incarnation_,
                         .streams = static_cast<uint8_t>(context_.options.streams),
                         .stream = stream,
                         .protection = context_.protection(),
                         .carried = context_.options.carrier != nullptr};
  auto secrets =
      co_await introduce(**connected, context_.world().random(), context_.options.key, who);
  if (!secrets) co_return fail(secrets.error());
  if (who.carried) {
    auto& carrier = *context_.options.carrier;
    connected =
        co_await carried(carrier, std::move(*connected), secrets->to_called, secrets->to_caller);
    if (!connected) co_return fail(connected.error());
  } else {
    (*connected)->keep_close();
  }
  bundle.add(std::move(*connected), secrets->to_called, secrets->to_caller, who.protection);
  co_return {};
}

// Says again what was not answered.
void Caller::resume() {
  ++context_.counters.links;
  up_ = true;
  wanted_ = false;
  for (const auto& [id, serial] : unreleased_)
    bundle_->send({.type = FrameType::received, .id = id, .number = serial});
  for (const auto& [id, pull] : pulls_) ask(*pull);
  for (const auto& [id, send] : in_flight_) {
    ++context_.counters.resent;
    bundle_->send({.type = FrameType::message,
                   .priority = send->priority,
                   .id = id,
                   .scope = send->tag.scope,
                   .number = send->tag.number},
                  send->bytes);
  }
  for (const auto& [id, put] : puts_) {
    put->flow.next = put->pieces.missing();
    bundle_->start(put->flow);
  }
  bundle_->wake();
}

Task<Result<void>> Caller::attend() {
  Scope scope;
  scope.spawn(bundle_->run());
  scope.spawn(listen_for_life());
  auto joined = co_await scope.join();
  co_return joined;
}

// While somebody waits for an answer.
Task<Result<void>> Caller::listen_for_life() {
  Instant heard_at = context_.clock().now();
  uint64_t heard = bundle_->heard();
  for (;;) {
    auto slept = co_await context_.clock().sleep(kPingInterval);
    if (!slept) co_return slept;
    const Instant now = context_.clock().now();
    if (bundle_->heard() != heard || !busy()) heard_at = now;
    heard = bundle_->heard();
    if (now - heard_at >= kLongestSilence)
      co_return fail(Code::unavailable, "rank {} said nothing for {}", rank_,
                     format_duration(now - heard_at));
    if (busy()) bundle_->send({.type = FrameType::ping, .priority = Priority::urgent});
  }
}

// What goes out with the next batch, the most urgent first.
void Caller::fill(Bundle& bundle) {
  for (auto& queue : queued_) {
    while (!queue.empty() && bundle.queued() < kBatchBytes) {
      SmallSend& send = queue.pop_front();
      send.id = next_id_++;
      in_flight_.emplace(send.id, &send);
      bundle.send({.type = FrameType::message,
                   .priority = send.priority,
                   .id = send.id,
                   .scope = send.tag.scope,
                   .number = send.tag.number},
                  send.bytes);
      context_.counters.bytes_sent += send.bytes.size();
    }
  }
}

// ---- What is answered ----

Result<MutableBytes> Caller::place(const Frame& frame) {
  if (frame.type != FrameType::data)
    return fail(Code::corrupt, "a {} frame from who was called", frame_name(frame.type));
  const auto found = pulls_.find(frame.id);
  if (found == pulls_.end()) return MutableBytes();
  Pull& pull = *found->second;
  if (frame.total != pull.into.size())
    return fail(Code::corrupt, "a piece of {} bytes where {} were asked for", frame.total,
                pull.into.size());
  if (frame.number < pull.serial) return MutableBytes();
  if (frame.number > pull.serial) {
    // The sender gave up the message that had begun, and this is another one.
    bundle_->abandon(pull.id);
    pull.pieces.clear();
    pull.serial = frame.number;
  }
  return pull.into.subspan(frame.offset, frame.length);
}

Result<void> Caller::take_data(const Frame& frame, bool landed) {
  const auto found = pulls_.find(frame.id);
  if (!landed || found == pulls_.end()) return {};
  Pull& pull = *found->second;
  pull.pieces.add(frame.offset);
  if (!pull.pieces.complete()) return {};
  pulls_.erase(found);
  if (pull.takes) {
    pull.answerer.forget(pull);
    unreleased_.emplace(pull.id, pull.serial);
    bundle_->send({.type = FrameType::received,
                   .priority = Priority::urgent,
                   .id = pull.id,
                   .number = pull.serial});
  }
  pull.finish({});
  return {};
}

void Caller::take_placed(const Frame& frame) {
  const auto found = puts_.find(frame.id);
  if (found == puts_.end() || frame.offset >= found->second->flow.bytes.size()) return;
  Put& put = *found->second;
  put.pieces.add(frame.offset);
  if (!put.pieces.complete()) return;
  withdraw(put);
  put.finish({});
}

void Caller::take_refused(const Frame& frame, const Error& why) {
  switch (static_cast<Refused>(frame.scope)) {
    case Refused::message:
      if (const auto found = in_flight_.find(frame.id); found != in_flight_.end()) {
        SmallSend& send = *found->second;
        in_flight_.erase(found);
        send.finish(fail(why));
      }
      return;
    case Refused::pull:
      if (const auto found = pulls_.find(frame.id); found != pulls_.end()) {
        Pull& pull = *found->second;
        bundle_->abandon(pull.id);
        pulls_.erase(found);
        if (pull.takes) pull.answerer.forget(pull);
        pull.finish(fail(why));
      }
      return;
    case Refused::put:
      if (const auto found = puts_.find(frame.id); found != puts_.end()) {
        Put& put = *found->second;
        withdraw(put);
        put.finish(fail(why));
      }
      return;
    case Refused::send: epoch_.answerer(rank_).refused(frame.id, why); return;
  }
}

Result<void> Caller::take(const Frame& frame, Bytes payload, bool landed) {
  switch (frame.type) {
    case FrameType::delivered:
      if (const auto found = in_flight_.find(frame.id); found != in_flight_.end()) {
        SmallSend& send = *found->second;
        in_flight_.erase(found);
        send.finish({});
      }
      return {};
    case FrameType::data: return take_data(frame, landed);
    case FrameType::placed: take_placed(frame); return {};
    case FrameType::released: unreleased_.erase(frame.id); return {};
    case FrameType::doubt: epoch_.answerer(rank_).doubted(frame.id); return {};
    case FrameType::refused:
      if (frame.scope > static_cast<uint64_t>(Refused::send))
        return fail(Code::corrupt, "a refusal of nothing");
      take_refused(frame, refusal_error(frame, payload));
      return {};
    case FrameType::pong: return {};
    default: return fail(Code::corrupt, "a {} frame from who was called", frame_name(frame.type));
  }
}

// ---- Errands ----

SmallSend::~SmallSend() {
  if (!done()) withdraw();
}
void SmallSend::withdraw() { caller.withdraw(*this); }

Pull::~Pull() {
  if (!done()) withdraw();
}
void Pull::withdraw() {
  caller.withdraw(*this);
  if (takes) answerer.forget(*this);
}
void Pull::fail_with(const Error& why) {
  caller.withdraw(*this);
  finish(fail(why));
}

Put::~Put() {
  if (!done()) withdraw();
}
void Put::withdraw() { caller.withdraw(*this); }

}  // namespace tutti::tcp
