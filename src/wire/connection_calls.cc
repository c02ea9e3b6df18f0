// How a connection finds, opens, answers and ends calls; its strands are in connection.cc.
#include "wire/connection.h"
#include "wire/failure.h"
#include "wire/wire.pb.h"
#include "world/fault.h"

namespace tutti::wire {

namespace {

constexpr size_t kRequestHead = 16;

uint16_t slot_of(uint32_t stream) { return static_cast<uint16_t>(stream); }
uint16_t generation_of(uint32_t stream) { return static_cast<uint16_t>(stream >> 16); }

}  // namespace

Result<void> Connection::handle(const Frame& frame) {
  switch (frame.type) {
    case FrameType::request: return handle_request(frame);
    case FrameType::ping: control(FrameType::pong, 0, 0, frame.payload); return {};
    case FrameType::pong: return {};
    case FrameType::goaway: return peer_leaves(frame);
    case FrameType::hello:
    case FrameType::reject:
      return fail(Code::corrupt, "a {} frame in the middle of a connection",
                  frame_type_name(frame.type));
    default: return handle_for_call(frame);
  }
}

Result<void> Connection::handle_request(const Frame& frame) {
  active_ = true;
  const uint16_t slot = slot_of(frame.stream);
  if (frame.payload.size() < kRequestHead || !frame.has(FrameFlags::opener))
    return fail(Code::corrupt, "a garbled request");
  if (slot >= limits_.max_calls)
    return fail(Code::corrupt, "it used slot {} of {}", slot, limits_.max_calls);
  if (slot >= incoming_.size()) incoming_.resize(slot + 1U);
  if (incoming_[slot] != nullptr) return fail(Code::corrupt, "it opened slot {} twice", slot);
  if (peer_is_leaving_) return fail(Code::corrupt, "it opened a call after its goaway");

  const auto refuse = [&](const Error& error) -> Result<void> {
    const std::string payload = encode_failure(error);
    control(FrameType::failure, 0, frame.stream, as_bytes(payload));
    return {};
  };
  if (closing_)
    return refuse(Error(Code::unavailable, "not started: this side is closing; call another"));
  const auto method = load_le<uint64_t>(frame.payload.data());
  const Handler* handler = methods_ == nullptr ? nullptr : methods_->find(method);
  if (handler == nullptr)
    return refuse(
        Error(Code::not_found, fmt::format("no method has the id {:016x}; there are: {}", method,
                                           methods_ ? methods_->names() : "none")));
  const auto timeout_ns = load_le<uint64_t>(frame.payload.data() + 8);
  const Instant now = timeout_ns == 0 ? Instant() : clock_.now();
  const bool forever = timeout_ns == 0 || timeout_ns > static_cast<uint64_t>(to_ns(kNever - now));
  const Instant deadline = forever ? kNever : now + Duration(static_cast<int64_t>(timeout_ns));

  if (incoming_pool_.empty()) {
    incoming_records_.push_back(std::make_unique<IncomingCall>(*this));
    incoming_pool_.push_back(incoming_records_.back().get());
  }
  IncomingCall& call = *incoming_pool_.back();
  incoming_pool_.pop_back();
  incoming_[slot] = &call;
  ++incoming_busy_;
  return call.begin(frame.stream, *handler, deadline, frame, frame.payload.subspan(kRequestHead));
}

void Connection::leave_slot(IncomingCall& call) {
  const uint16_t slot = slot_of(call.stream_);
  if (incoming_[slot] == &call) incoming_[slot] = nullptr;
}

void Connection::call_finished(IncomingCall& call) {
  incoming_pool_.push_back(&call);
  --incoming_busy_;
  if (incoming_busy_ == 0 && handlers_done_) handlers_done_->set();
  if (leaving_) outbox_.wake_writer();
}

Exchange* Connection::find(uint32_t stream, bool opened_by_peer) const {
  const uint16_t slot = slot_of(stream);
  Exchange* exchange = nullptr;
  if (opened_by_peer) {
    if (slot < incoming_.size()) exchange = incoming_[slot];
  } else if (slot < outgoing_.size()) {
    exchange = outgoing_[slot].exchange;
  }
  return exchange != nullptr && exchange->stream_ == stream ? exchange : nullptr;
}

Result<void> Connection::handle_for_call(const Frame& frame) {
  active_ = true;
  receiving_into_ = Blob();
  Exchange* exchange = find(frame.stream, frame.has(FrameFlags::opener));
  if (exchange != nullptr) return exchange->receive(frame);
  if (!frame.has(FrameFlags::opener)) return handle_abandoned(frame);
  TUTTI_PROBE("wire: a frame crossed the end of its call");
  return {};
}

Result<void> Connection::handle_abandoned(const Frame& frame) {
  const uint16_t slot = slot_of(frame.stream);
  if (slot >= outgoing_most_) return fail(Code::corrupt, "it answered a call that was never made");
  if (slot >= outgoing_.size()) return {};
  const Outgoing& call = outgoing_[slot];
  const bool over = frame.type == FrameType::end || frame.type == FrameType::failure;
  if (over && call.busy && call.generation == generation_of(frame.stream)) {
    TUTTI_PROBE("wire: a call that was given up was answered");
    free_slot(frame.stream);
  }
  return {};
}

Result<MutableBytes> Connection::place(const FrameHeader& header) {
  Exchange* exchange = find(header.stream, (header.flags & FrameFlags::opener) != 0);
  if (exchange == nullptr) return MutableBytes();
  TRY(const MutableBytes to, exchange->place(header));
  // The call may end while its bytes are still coming.
  receiving_into_ = exchange->arriving_->blob;
  return to;
}

Result<void> Connection::check_usable(size_t request_bytes) const {
  if (end_) return fail(*end_);
  if (leaving_) return fail(*leaving_);
  if (request_bytes > peer_.max_message)
    return fail(Code::invalid, "a message of {} bytes is over the peer's limit of {}",
                request_bytes, peer_.max_message);
  return {};
}

bool Connection::slot_is_free() const {
  return outgoing_busy_ < peer_.max_calls && has_room() && slot_waiters_.empty();
}

void Connection::want_slot(SlotWaiter& waiter) {
  if (slot_is_free()) return waiter.begin();
  slot_waiters_.push_back(waiter);
}

void Connection::serve_slot_waiters() {
  while (!slot_waiters_.empty() && outgoing_busy_ < peer_.max_calls && has_room())
    slot_waiters_.pop_front().begin();
}

uint32_t Connection::take_slot(Exchange& exchange) {
  if (outgoing_free_.empty()) {
    outgoing_free_.push_back(static_cast<uint16_t>(outgoing_.size()));
    outgoing_.push_back({.generation = first_generation_});
    outgoing_most_ = std::max<uint32_t>(outgoing_most_, outgoing_.size());
  }
  active_ = true;
  const uint16_t slot = outgoing_free_.back();
  outgoing_free_.pop_back();
  Outgoing& call = outgoing_[slot];
  call.exchange = &exchange;
  call.busy = true;
  ++outgoing_busy_;
  return uint32_t{call.generation} << 16 | slot;
}

void Connection::free_slot(uint32_t stream) {
  const uint16_t slot = slot_of(stream);
  Outgoing& call = outgoing_[slot];
  call.exchange = nullptr;
  call.busy = false;
  if (++call.generation == 0) call.generation = 1;  // 0 is for frames of the connection
  outgoing_free_.push_back(slot);
  --outgoing_busy_;
  serve_slot_waiters();
  if (leaving_) outbox_.wake_writer();
}

void Connection::abandon_slot(uint32_t stream) { outgoing_[slot_of(stream)].exchange = nullptr; }

void Connection::forget(Exchange& exchange) {
  if (exchange.opener_) abandon_slot(exchange.stream_);
}

void Connection::release_idle() {
  outbox_.release_idle();
  link_.release_idle(reader_);
  if (incoming_busy_ == 0) {
    incoming_ = std::vector<IncomingCall*>();
    incoming_pool_ = std::vector<IncomingCall*>();
    incoming_records_ = std::vector<std::unique_ptr<IncomingCall>>();
  }
  if (outgoing_busy_ == 0) {
    // Slots begin again past every generation they had: what is under way means no new call.
    for (const Outgoing& slot : outgoing_)
      first_generation_ = std::max(first_generation_, slot.generation);
    outgoing_ = std::vector<Outgoing>();
    outgoing_free_ = std::vector<uint16_t>();
  }
  for (std::shared_ptr<Budget>* budget : {&receiving_, &requests_, &replies_})
    if (*budget && (*budget)->in_use() == 0) budget->reset();
}

Budget& Connection::made(std::shared_ptr<Budget>& budget, uint64_t limit) {
  if (!budget) budget = std::make_shared<Budget>(limit);
  return *budget;
}

}  // namespace tutti::wire
