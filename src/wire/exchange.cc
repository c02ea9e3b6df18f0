#include "wire/exchange.h"

#include <algorithm>
#include <array>

#include "wire/connection.h"
#include "wire/failure.h"
#include "world/fault.h"

namespace tutti::wire {

namespace {
constexpr size_t kRequestHead = 16;  // u64 method, u64 nanoseconds allowed
}

// Only a crash leaves a call open: its frame is destroyed without being run.
Exchange::~Exchange() {
  if (connection_ != nullptr) connection_->forget(*this);
}

void Exchange::attach(Connection& connection, uint32_t stream, bool opener) {
  connection_ = &connection;
  stream_ = stream;
  opener_ = opener;
  credit = connection.peer().stream_window;
  window_ = connection.limits().stream_window;
  consumed_ = leased_ = 0;
  peer_is_done_ = end_announced_ = broken_ = false;
}

void Exchange::send_request(uint64_t method, uint64_t timeout_ns, const MessageRef& message,
                            bool last) {
  std::array<std::byte, kRequestHead> head;
  store_le(head.data(), method);
  store_le(head.data() + 8, timeout_ns);
  const uint8_t flags = last ? FrameFlags::last : uint8_t{0};
  const Progress progress = begin_send(FrameType::request, flags, head, message);
  TUTTI_ASSERT(progress == Progress::taken || progress == Progress::started,
               "a request is sent when there is room");
}

Exchange::Progress Exchange::begin_send(FrameType type, uint8_t flags, Bytes head,
                                        const MessageRef& message) {
  if (!connection_->has_room()) return Progress::no_room;
  if (message.size() > kMaxInlineMessage) return start_bulk(type, flags, head, message);
  const bool counts = message.exists() && type != FrameType::failure;
  const uint64_t cost = counts ? message_cost(message.size()) : 0;
  if (credit < cost) return Progress::no_credit;
  credit -= cost;
  flags |= side_flag();
  if (counts) flags |= FrameFlags::message;
  connection_->outbox().add(type, flags, stream_, head.size() + message.size(),
                            [&](std::byte* payload) {
                              payload = std::copy(head.begin(), head.end(), payload);
                              message.write_to(payload);
                            });
  return Progress::taken;
}

Exchange::Progress Exchange::start_bulk(FrameType type, uint8_t flags, Bytes head,
                                        const MessageRef& message) {
  flags |= side_flag() | FrameFlags::large;
  end_announced_ = type == FrameType::end;
  connection_->outbox().add(type, flags, stream_, head.size() + sizeof(uint64_t),
                            [&](std::byte* payload) {
                              payload = std::copy(head.begin(), head.end(), payload);
                              store_le(payload, uint64_t{message.size()});
                            });
  start(message.to_blob(), stream_, side_flag());
  if (credit != 0) connection_->outbox().add_bulk(*this);
  return Progress::started;
}

void Exchange::bulk_done() {
  if (sending_ != nullptr) sending_->finish(std::nullopt);
}

void Exchange::abandon(Error why) {
  if (connection_ == nullptr) return;
  connection_->control(FrameType::cancel, side_flag(), stream_, {});
  // An end that was announced is the other side's last word: no other would free the slot.
  if (arriving_ && arriving_->end) {
    TUTTI_PROBE("wire: a call was given up amid its large reply");
    connection_->free_slot(stream_);
  } else {
    connection_->abandon_slot(stream_);
  }
  close(fail(std::move(why)));
}

void Exchange::send_failure(const Error& error) {
  const std::string payload = encode_failure(error);
  connection_->control(FrameType::failure, side_flag(), stream_, as_bytes(payload));
}

void Exchange::close(Result<void> status) {
  if (budget_wait_.linked()) arrivals().withdraw(budget_wait_);
  connection_ = nullptr;
  stop();
  arriving_.reset();
  if (sending_ != nullptr)
    sending_->finish(status ? Error(Code::unavailable, "the other side ended the call")
                            : status.error());
  ended(std::move(status));
}

void Exchange::orphan() {
  connection_ = nullptr;
  budget_wait_.unlink();
}

Result<void> Exchange::receive(const Frame& frame) {
  switch (frame.type) {
    case FrameType::message:
    case FrameType::end: return receive_messages(frame, frame.payload);
    case FrameType::data: return receive_data(frame);
    case FrameType::credit: return receive_credit(frame.payload);
    case FrameType::failure: return receive_failure(frame.payload);
    case FrameType::cancel:
      if (opener_) return fail(Code::corrupt, "it cancelled a call that it did not open");
      cancelled_by_peer();
      return {};
    default:
      return fail(Code::corrupt, "a {} frame does not belong to a call",
                  frame_type_name(frame.type));
  }
}

Result<void> Exchange::receive_messages(const Frame& frame, Bytes payload) {
  const bool end = frame.type == FrameType::end;
  const bool last = end || frame.has(FrameFlags::last);
  if (end && !opener_) return fail(Code::corrupt, "it ended a call that we answer");
  if (arriving_) return fail(Code::corrupt, "it sent a message inside a message");
  const bool bare_end = end && !frame.has(FrameFlags::large) && !frame.has(FrameFlags::message);
  if (peer_is_done_ && !bare_end) return fail(Code::corrupt, "it sent a message after its last");
  peer_is_done_ = last;
  if (frame.has(FrameFlags::large)) return announce(payload, last, end);
  if (frame.has(FrameFlags::message)) return receive_message(payload, last, end);
  if (!payload.empty()) return fail(Code::corrupt, "it sent bytes that are no message");
  if (last) no_more();
  if (end && open()) {
    connection_->free_slot(stream_);
    close({});
  }
  return {};
}

Result<void> Exchange::receive_message(Bytes message, bool last, bool end) {
  if (message.size() > kMaxInlineMessage)
    return fail(Code::corrupt, "a message of {} bytes must be announced", message.size());
  const uint64_t cost = message_cost(message.size());
  TRY_DO(take_window(cost));
  // The slot is free before the caller hears of it: it may call again at once.
  if (end) connection_->free_slot(stream_);
  deliver({.bytes = message, .window = cost}, last);
  if (end && open()) close({});
  return {};
}

Result<void> Exchange::announce(Bytes payload, bool last, bool end) {
  if (payload.size() != sizeof(uint64_t)) return fail(Code::corrupt, "a garbled announcement");
  const auto total = load_le<uint64_t>(payload.data());
  if (total <= kMaxInlineMessage || total > connection_->limits().max_message)
    return fail(Code::corrupt, "it announced a message of {} bytes; {} to {} can be", total,
                kMaxInlineMessage + 1, connection_->limits().max_message);
  arriving_.emplace(total, last, end);
  ask_budget();
  return {};
}

Budget& Exchange::arrivals() { return connection_->receiving(); }

void Exchange::ask_budget() {
  const uint64_t bytes = arriving_->total;
  const bool within = leased_ + bytes <= connection_->limits().stream_budget;
  if (leased_ != 0 && !within) return;  // until the consumer takes something
  budget_wait_.bytes = bytes;
  arrivals().ask(budget_wait_);
}

void Exchange::budget_granted(Lease lease) {
  const uint64_t bytes = lease.bytes();
  leased_ += bytes;
  arriving_->lease = std::move(lease);
  // The last message of a call needs no more than the window, if it fits.
  if (!arriving_->last || bytes > window_) grant(bytes);
}

void Exchange::grant(uint64_t bytes) {
  window_ += bytes;
  std::array<std::byte, sizeof bytes> payload;
  store_le(payload.data(), bytes);
  connection_->control(FrameType::credit, side_flag(), stream_, payload);
}

MutableBytes Exchange::Arriving::room(size_t size, uint64_t window) {
  if (blob.size() - filled < size) {
    const uint64_t whole = lease.bytes() != 0 ? total : std::min(total, filled + window);
    Blob larger = Blob::uninitialised(whole);
    const Bytes begun = blob.bytes().first(filled);
    std::copy(begun.begin(), begun.end(), larger.writable().begin());
    blob = std::move(larger);
  }
  return blob.writable().subspan(filled, size);
}

Result<MutableBytes> Exchange::place(const FrameHeader& header) {
  if (!arriving_) return fail(Code::corrupt, "data came for a message that was not announced");
  const uint64_t rest = arriving_->total - arriving_->filled;
  if (header.length > rest)
    return fail(Code::corrupt, "{} bytes came for the last {} of a message", header.length, rest);
  TRY_DO(check_window(header.length));
  return arriving_->room(header.length, window_);
}

Result<void> Exchange::receive_data(const Frame& frame) {
  const FrameHeader header{0, static_cast<uint32_t>(frame.payload.size()), frame.stream, frame.type,
                           frame.flags};
  TRY(const MutableBytes to, place(header));
  TRY_DO(take_window(to.size()));
  if (!frame.in_place) std::copy(frame.payload.begin(), frame.payload.end(), to.begin());
  arriving_->filled += to.size();
  if (arriving_->filled < arriving_->total) return {};
  Arriving message = *std::exchange(arriving_, std::nullopt);
  // Without a lease all of it came within the window.
  if (budget_wait_.linked()) arrivals().withdraw(budget_wait_);
  const uint64_t window = message.lease.bytes() == 0 ? message.total : 0;
  if (message.end) connection_->free_slot(stream_);
  deliver({message.blob.bytes(), &message.blob, window, &message.lease}, message.last);
  if (message.end && open()) close({});
  return {};
}

Result<void> Exchange::check_window(uint64_t bytes) const {
  if (bytes <= window_) return {};
  return fail(Code::corrupt, "it sent {} bytes with credit for {}", bytes, window_);
}

Result<void> Exchange::take_window(uint64_t bytes) {
  TRY_DO(check_window(bytes));
  window_ -= bytes;
  return {};
}

Result<void> Exchange::receive_credit(Bytes payload) {
  if (payload.size() != sizeof(uint64_t)) return fail(Code::corrupt, "a garbled credit");
  const auto granted = load_le<uint64_t>(payload.data());
  if (granted > UINT64_MAX - credit) return fail(Code::corrupt, "credit without end");
  const bool had_none = credit == 0;
  credit += granted;
  if (active()) {
    if (had_none && credit != 0) connection_->outbox().add_bulk(*this);
  } else if (sending_ != nullptr && sending_->progress_ == Progress::no_credit) {
    sending_->retry();
  }
  return {};
}

Result<void> Exchange::receive_failure(Bytes payload) {
  if (!opener_) return fail(Code::corrupt, "it failed a call that we answer");
  TRY(Error error, decode_failure(payload));
  connection_->free_slot(stream_);
  close(fail(error.context("from " + connection_->peer().text())));
  return {};
}

void Exchange::consumed(uint64_t window, uint64_t leased) {
  if (!open()) return;
  leased_ -= leased;
  const bool unasked = arriving_ && arriving_->lease.bytes() == 0 && !budget_wait_.linked();
  if (unasked) ask_budget();
  if (peer_is_done_) return;
  consumed_ += window;
  if (consumed_ >= connection_->limits().stream_window / 2) grant(std::exchange(consumed_, 0));
}

Exchange::Send::~Send() {
  if (exchange_.sending_ == this) exchange_.sending_ = nullptr;
}

bool Exchange::Send::await_ready() {
  TUTTI_ASSERT(exchange_.sending_ == nullptr, "a call sends one message at a time");
  if (cancelled_already()) {
    error_ = cancelled_error();
    return true;
  }
  return try_again();
}

bool Exchange::Send::try_again() {
  if (!exchange_.open() || exchange_.broken_) {
    error_ = Error(Code::unavailable, "the call is over");
    return true;
  }
  const uint64_t limit = exchange_.connection_->peer().max_message;
  if (message_.size() > limit) {
    error_ = Error(Code::invalid, fmt::format("a message of {} bytes is over the limit of {}: {}",
                                              message_.size(), limit, "send several"));
    return true;
  }
  progress_ = exchange_.begin_send(type_, flags_, {}, message_);
  return progress_ == Progress::taken;
}

void Exchange::Send::await_suspend(std::coroutine_handle<> coroutine) {
  TUTTI_PROBE("wire: a message waited for credit or room");
  park(coroutine);
  exchange_.sending_ = this;
  if (progress_ == Progress::no_room) exchange_.connection_->wait_room(*this);
}

Result<void> Exchange::Send::await_resume() {
  if (error_) return fail(std::move(*error_));
  return {};
}

void Exchange::Send::retry() {
  if (try_again()) {
    finish(std::move(error_));
  } else if (progress_ == Progress::no_room) {
    exchange_.connection_->wait_room(*this);
  }
}

void Exchange::Send::finish(std::optional<Error> error) {
  exchange_.sending_ = nullptr;
  error_ = std::move(error);
  wake();
}

void Exchange::Send::on_cancel() {
  if (progress_ == Progress::started) {
    exchange_.stop();
    exchange_.broken_ = true;
  }
  finish(cancelled_error());
}

}  // namespace tutti::wire
