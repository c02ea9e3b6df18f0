#include "fabric/tcp_answerer.h"

#include <algorithm>
#include <cstring>

#include "fabric/tcp_caller.h"

namespace tutti::tcp {

namespace {

// Gets that are answered are forgotten when so many are there, or twice as many as are not.
constexpr size_t kSweptGets = 64;

}  // namespace

Answerer::Answerer(Context& context, EpochState& epoch, uint32_t rank)
    : context_(context), epoch_(epoch), rank_(rank), work_(context.clock()) {
  epoch_.scope.spawn(run());
}

Answerer::~Answerer() { end({Code::unavailable, "the transport is gone"}); }

void Answerer::end(const Error& why) {
  flooded_ = why;
  for (const auto& [place, receive] : std::exchange(expected_, {})) receive->fail_with(why);
  for (const auto& [serial, send] : std::exchange(by_serial_, {})) {
    if (bundle_ != nullptr) bundle_->withdraw(send->flow);
    send->finish(fail(why));
  }
  sends_.clear();
  takes_.clear();
  untaken_.clear();
}

// ---- The link ----

Result<void> Answerer::admit(const Introduction& who) const {
  if (session_ && *session_ != who.session)
    return fail(Code::denied, "a second process says to be rank {} of epoch {}", rank_, who.epoch);
  if (who.incarnation < incarnation_)
    return fail(Code::denied, "a link of rank {} that it has given up", rank_);
  if (who.incarnation == incarnation_ &&
      (who.streams != streams_.size() || streams_[who.stream] != nullptr ||
       joined_ == streams_.size()))
    return fail(Code::denied, "a connection of rank {} that is there already", rank_);
  return {};
}

void Answerer::join(const Welcome& welcome, std::unique_ptr<Stream> stream) {
  const Introduction& who = welcome.who;
  session_ = who.session;
  if (who.incarnation > incarnation_) {
    incarnation_ = who.incarnation;
    joined_ = 0;
    complete_ = false;
    streams_.clear();
    streams_.resize(who.streams);
    secrets_.resize(who.streams);
  }
  streams_[who.stream] = std::move(stream);
  secrets_[who.stream] = welcome.secrets;
  if (++joined_ < who.streams) return;
  complete_ = true;
  if (serving_ != nullptr) serving_->cancel();
  work_.ring();
}

// One link after the other: what was on its way over the one before does not come any more.
Task<void> Answerer::run() {
  for (;;) {
    if (!complete_) {
      auto waited = co_await work_.until(kNever);
      if (!waited) co_return;
      continue;
    }
    complete_ = false;
    FrameTaker& taker = *this;
    bundle_ = std::make_unique<Bundle>(context_.world(), taker, context_.counters);
    for (size_t i = 0; i < streams_.size(); ++i)
      bundle_->add(std::move(streams_[i]), secrets_[i].to_caller, secrets_[i].to_called,
                   context_.protection());
    up_ = true;
    Result<void> ended;
    {
      Scope scope;
      serving_ = &scope;
      scope.spawn(bundle_->run());
      ended = co_await scope.join();
      serving_ = nullptr;
    }
    up_ = false;
    reset();
    bundle_.reset();
    if (Strand::current()->cancelled()) co_return;
    if (!ended && context_.tell_broken.allow(context_.clock().now()))
      TUTTI_LOG(debug, "a rank's link to us ended",
                {{"rank", rank_},
                 {"epoch", epoch_.number},
                 {"why", ended.error().text()},
                 {"more_like_it", context_.tell_broken.take_suppressed()}});
  }
}

// What was asked over the link is asked again over the next, if it is still wanted.
void Answerer::reset() {
  takes_.clear();
  untaken_.clear();
  for (const auto& [serial, send] : by_serial_) {
    bundle_->withdraw(send->flow);
    send->stale = true;
  }
  gets_.clear();
  doubts_.clear();
}

void Answerer::answer(FrameType type, uint64_t id, uint64_t offset) {
  if (up_) bundle_->send({.type = type, .priority = Priority::urgent, .id = id, .offset = offset});
}

void Answerer::refuse(Refused what, uint64_t id, const Error& why) {
  if (what == Refused::message || what == Refused::send) {
    auto& kept = what == Refused::message ? kept_ : kept_sends_;
    if (kept.size() >= kMaxKeptErrors) kept.erase(kept.begin());
    kept.insert_or_assign(id, why);
  }
  if (up_) bundle_->send(refusal(what, id, why), refusal_text(why));
}

Error Answerer::misfit(Tag tag, uint32_t sender, uint64_t sent, uint32_t receiver,
                       uint64_t wanted) {
  return {Code::invalid,
          fmt::format("rank {} sent {} bytes with tag {:x}.{} where rank {} receives {}", sender,
                      sent, tag.scope, tag.number, receiver, wanted)};
}

// ---- Small messages ----

void Answerer::expect(Receive& receive) {
  const auto stored = stored_.lower_bound({receive.tag, 0});
  if (stored == stored_.end() || stored->first.first != receive.tag) {
    if (flooded_) return receive.fail_with(*flooded_);
    receive.order = next_receive_++;
    expected_.emplace(Place(receive.tag, receive.order), &receive);
    return;
  }
  const uint64_t id = stored->first.second;
  const std::string message = std::move(stored->second);
  stored_.erase(stored);
  stored_bytes_ -= message.size();
  deliver(receive, id, as_bytes(message));
}

void Answerer::forget(Receive& receive) { expected_.erase({receive.tag, receive.order}); }

Receive* Answerer::first_expected(Tag tag) const {
  const auto found = expected_.lower_bound({tag, 0});
  return found == expected_.end() || found->first.first != tag ? nullptr : found->second;
}

// The receive is not among those expected.
void Answerer::deliver(Receive& receive, uint64_t id, Bytes message) {
  if (message.size() != receive.into.size()) {
    const Error why =
        misfit(receive.tag, rank_, message.size(), context_.options.rank, receive.into.size());
    refuse(Refused::message, id, why);
    return receive.fail_with(why);
  }
  if (!message.empty()) std::memcpy(receive.into.data(), message.data(), message.size());
  answer(FrameType::delivered, id);
  receive.finish({});
}

void Answerer::take_message(const Frame& frame, Bytes payload) {
  if (frame.id <= last_id_) return take_again(frame);
  last_id_ = frame.id;
  if (frame.scope == kRefusalScope) {
    answer(FrameType::delivered, frame.id);
    if (auto refusal = load_refusal(frame.number, payload)) epoch_.refuse_here(*refusal);
    return;
  }
  Receive* receive = first_expected(frame.tag());
  if (receive == nullptr) return store(frame, payload);
  forget(*receive);
  deliver(*receive, frame.id, payload);
}

// It came before, over a link that broke: what became of it?
void Answerer::take_again(const Frame& frame) {
  ++context_.counters.duplicates;
  if (stored_.contains({frame.tag(), frame.id})) return;  // it waits
  if (const auto kept = kept_.find(frame.id); kept != kept_.end())
    return refuse(Refused::message, frame.id, Error(kept->second));
  answer(FrameType::delivered, frame.id);
}

void Answerer::store(const Frame& frame, Bytes payload) {
  if (stored_bytes_ + payload.size() > kMaxUnexpectedBytes || stored_.size() >= kMaxUnexpected) {
    Error why(Code::exhausted,
              fmt::format("rank {} has {} messages ({} bytes) of rank {} that it does not receive; "
                          "receive what is sent",
                          context_.options.rank, stored_.size(), stored_bytes_, rank_));
    if (!flooded_) TUTTI_LOG(error, "a rank sends more than is received", {{"why", why.message()}});
    flooded_ = why;
    refuse(Refused::message, frame.id, why);
    for (const auto& [place, receive] : std::exchange(expected_, {})) receive->fail_with(why);
    return;
  }
  ++context_.counters.unexpected;
  stored_bytes_ += payload.size();
  stored_.emplace(Place(frame.tag(), frame.id), as_text(payload));
}

SmallReceive::~SmallReceive() {
  if (!done()) withdraw();
}
void SmallReceive::withdraw() { answerer.forget(*this); }

// ---- One-sided ----

Result<void> Answerer::check_put(const Frame& frame) const {
  const uint64_t heap = context_.options.heap.size();
  if (frame.total > heap || frame.scope > heap - frame.total)
    return fail(Code::invalid, "{} bytes at {} are not in the heap of rank {}, which has {}",
                frame.total, frame.scope, context_.options.rank, heap);
  if (!context_.options.may_put || !context_.options.may_put(frame.scope, frame.total))
    return fail(Code::denied, "rank {} lets nobody put {} bytes at {}", context_.options.rank,
                frame.total, frame.scope);
  return {};
}

Result<MutableBytes> Answerer::place(const Frame& frame) {
  if (frame.type != FrameType::put)
    return fail(Code::corrupt, "a {} frame from who called", frame_name(frame.type));
  if (!check_put(frame)) return MutableBytes();
  return context_.options.heap.subspan(frame.scope + frame.offset, frame.length);
}

void Answerer::take_put(const Frame& frame, bool landed) {
  if (landed) return answer(FrameType::placed, frame.id, frame.offset);
  const auto checked = check_put(frame);
  if (!checked) refuse(Refused::put, frame.id, checked.error());
}

Result<void> Answerer::take_get(const Frame& frame, Bytes apart) {
  const MutableBytes heap = context_.options.heap;
  Strides from{.offset = frame.scope, .run = frame.total};
  if (!apart.empty()) {
    TRY(from, Strides::decode(frame.scope, apart));
  }
  if (!from.fits(heap.size(), frame.total)) {
    refuse(Refused::pull, frame.id,
           Error(Code::invalid,
                 fmt::format("{} bytes at {} are not in the heap of rank {}, which has {}",
                             frame.total, frame.scope, context_.options.rank, heap.size())));
    return {};
  }
  if (gets_.size() >= gets_swept_at_) {
    std::erase_if(gets_, [](const auto& get) { return !get.second->linked(); });
    gets_swept_at_ = std::max(kSweptGets, 2 * gets_.size());
  }
  if (gets_.size() >= kMaxOperations) return fail(Code::exhausted, "too many gets at once");
  auto flow = std::make_unique<Flow>();
  flow->frame = {
      .type = FrameType::data, .priority = frame.priority, .id = frame.id, .total = frame.total};
  if (from.loop_count == 0) {
    flow->bytes = heap.subspan(from.offset, frame.total);
  } else {
    flow->bytes = heap.first(frame.total);  // as many; they lie elsewhere
    flow->apart = from;
  }
  flow->next = frame.offset;
  bundle_->start(*flow);
  gets_.insert_or_assign(frame.id, std::move(flow));
  return {};
}

// ---- What comes ----

Result<void> Answerer::take(const Frame& frame, Bytes payload, bool landed) {
  switch (frame.type) {
    case FrameType::message: take_message(frame, payload); return {};
    case FrameType::take: return take_take(frame);
    case FrameType::get: return take_get(frame, payload);
    case FrameType::stop: take_stop(frame.id); return {};
    case FrameType::put: take_put(frame, landed); return {};
    case FrameType::received: take_received(frame); return {};
    case FrameType::waiting: take_waiting(frame); return {};
    case FrameType::still: take_still(frame); return {};
    case FrameType::ping: answer(FrameType::pong, 0); return {};
    default: return fail(Code::corrupt, "a {} frame from who called", frame_name(frame.type));
  }
}

}  // namespace tutti::tcp
