#include "fabric/tcp_bundle.h"

#include <algorithm>
#include <cstring>

namespace tutti::tcp {

namespace {

std::byte* own_memory(std::unique_ptr<std::byte[]>& memory, size_t bytes) {
  if (memory == nullptr) memory = std::make_unique_for_overwrite<std::byte[]>(bytes);
  return memory.get();
}

}  // namespace

Bundle::Bundle(World& world, FrameTaker& taker, TcpCounters& counters)
    : world_(world), taker_(taker), counters_(counters) {}
Bundle::~Bundle() = default;

void Bundle::add(std::unique_ptr<Stream> stream, const Key& out, const Key& in,
                 Protection protection) {
  connections_.push_back(
      std::make_unique<Connection>(world_.clock(), std::move(stream), out, in, protection));
}

Task<Result<void>> Bundle::run() {
  Scope scope;
  for (const auto& connection : connections_) {
    scope.spawn(read_loop(*connection));
    scope.spawn(write_loop(*connection));
  }
  auto joined = co_await scope.join();
  co_return joined;
}

// ---- Out ----

void Bundle::send(const Frame& frame, Bytes payload) {
  Connection& to = *connections_.front();
  const size_t header = to.sealer.header_bytes();
  std::byte* at = to.filling.extend(header + payload.size());
  to.sealer.seal(frame, payload, at, at + header);
  if (!to.sealer.encrypts() && !payload.empty())
    std::memcpy(at + header, payload.data(), payload.size());
  to.work.ring();
}

void Bundle::start(Flow& flow) {
  flow.unlink();
  if (flow.next >= flow.bytes.size()) return;
  flows_[static_cast<size_t>(flow.frame.priority)].push_back(flow);
  for (const auto& connection : connections_) connection->work.ring();
}

void Bundle::withdraw(Flow& flow) {
  flow.unlink();
  for (const auto& connection : connections_) {
    if (connection->sending != &flow) continue;
    if (connection->carried != nullptr) connection->carried->let_go_write();
    // The frame has begun: its end is sent from a copy.
    Bytes& piece = connection->parts[2];
    std::byte* copy = own_memory(connection->own, kChunkBytes);
    std::memcpy(copy, piece.data(), piece.size());
    piece = {copy, piece.size()};
    connection->sending = nullptr;
  }
}

Flow* Bundle::next_flow() {
  for (List<Flow>& flows : flows_)
    if (!flows.empty()) return &flows.front();
  return nullptr;
}

// A batch is what is small, and one piece of what is large.
bool Bundle::take_batch(Connection& to) {
  if (first(to)) taker_.fill(*this);
  std::swap(to.filling, to.writing);
  to.parts = {to.writing.bytes(), Bytes(), Bytes()};
  if (next_flow() != nullptr) take_piece(to);
  return !to.parts[0].empty() || !to.parts[1].empty();
}

void Bundle::take_piece(Connection& to) {
  Flow& flow = *next_flow();
  flow.unlink();
  Bytes piece = flow.bytes.subspan(flow.next, piece_bytes(flow.next, flow.bytes.size()));
  if (flow.apart) {
    const MutableBytes into(own_memory(to.together, kChunkBytes), piece.size());
    flow.apart->gather(flow.bytes.data(), flow.next, into);
    piece = into;
  }
  Frame frame = flow.frame;
  frame.offset = flow.next;
  flow.next += piece.size();
  // Those of equal priority take turns.
  if (flow.next < flow.bytes.size()) flows_[static_cast<size_t>(frame.priority)].push_back(flow);
  std::byte* sealed = to.sealer.encrypts() ? own_memory(to.own, kChunkBytes) : nullptr;
  to.sealer.seal(frame, piece, to.header.data(), sealed);
  to.parts[1] = Bytes(to.header).first(to.sealer.header_bytes());
  to.parts[2] = sealed == nullptr ? piece : Bytes(sealed, piece.size());
  to.sending = sealed == nullptr && !flow.apart ? &flow : nullptr;
  counters_.bytes_sent += piece.size();
}

Task<Result<void>> Bundle::write_loop(Connection& to) {
  for (;;) {
    if (!take_batch(to)) {
      auto ready = co_await to.work.until(kNever);
      if (!ready) co_return ready;
      continue;
    }
    if (to.sealer.encrypts() && to.sealer.bytes() > kBytesPerKey)
      co_return fail(Code::unavailable, "a key has carried enough; the link is made anew");
    const std::span<const Bytes> parts(to.parts);
    auto written = co_await to.stream->write(parts);
    to.sending = nullptr;
    to.writing.clear();
    if (!written) co_return written;
  }
}

// ---- In ----

// Until the inbox has as much.
Task<Result<void>> Bundle::read_more(Connection& from, size_t wanted) {
  while (from.inbox.size() < wanted) {
    const size_t missing = wanted - from.inbox.size();
    // Behind the header of a piece is the piece, and that is not for the inbox.
    const size_t most = from.in_bulk ? missing : std::max(missing, from.read_size.get());
    const MutableBytes into = from.inbox.room(most).first(most);
    auto got = co_await from.stream->read(into);
    if (!got) co_return fail(got.error());
    if (*got == 0) co_return fail(Code::unavailable, "the other side closed the connection");
    if (!from.in_bulk) from.read_size.was(most, *got);
    from.inbox.commit(*got);
    ++heard_;
  }
  co_return {};
}

Result<void> Bundle::counted(Result<void> checked) {
  if (!checked && checked.error().code() == Code::corrupt) ++counters_.corrupt;
  return checked;
}

Task<Result<void>> Bundle::read_loop(Connection& from) {
  for (;;) {
    const size_t header = from.opener.header_bytes();
    if (from.inbox.size() < header) {
      auto more = co_await read_more(from, header);
      if (!more) co_return more;
    }
    auto frame = from.opener.open(from.inbox.data());
    if (!frame) {
      ++counters_.corrupt;
      co_return fail(frame.error());
    }
    from.inbox.consume(header);
    from.in_bulk = frame->has_piece();
    if (from.in_bulk) {
      const Frame piece = *frame;
      auto landed = co_await land(from, piece);
      if (!landed) co_return landed;
      continue;
    }
    if (from.inbox.size() < frame->length) {
      auto more = co_await read_more(from, frame->length);
      if (!more) co_return more;
    }
    const MutableBytes payload(const_cast<std::byte*>(from.inbox.data()), frame->length);
    if (!payload.empty()) {
      from.opener.absorb(payload);
      auto checked = counted(from.opener.finish());
      if (!checked) co_return checked;
      counters_.bytes_taken += payload.size();
    }
    auto taken = counted(taker_.take(*frame, payload, true));
    if (!taken) co_return taken;
    from.inbox.consume(frame->length);
    if (queued() > kMaxQueuedAnswers)
      co_return fail(Code::exhausted, "the other side does not read what it makes us say");
  }
}

// While somebody reads into a place, who may have to read elsewhere.
class Bundle::Reading {
 public:
  Reading(Connection& from, Stream::Read& read) : from_(from) { from_.reading = &read; }
  ~Reading() { from_.reading = nullptr; }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

 private:
  Connection& from_;
};

Task<Result<void>> Bundle::land(Connection& from, Frame frame) {
  auto place = taker_.place(frame);
  if (!place) co_return counted(fail(place.error()));
  from.landing = *place;
  from.landing_id = place->empty() ? 0 : frame.id;
  uint64_t left = frame.length;
  while (left > 0) {
    const MutableBytes room = from.landing_id != 0
                                  ? from.landing
                                  : MutableBytes(own_memory(from.nowhere, kChunkBytes), left);
    size_t got = std::min({room.size(), from.inbox.size(), left});
    MutableBytes came = room.first(got);
    if (got != 0) {
      std::memcpy(came.data(), from.inbox.data(), got);
      from.inbox.consume(got);
    } else {
      Stream::Read read(*from.stream, room, nullptr);
      const Reading here(from, read);
      auto count = co_await read;
      if (!count) co_return fail(count.error());
      if (*count == 0) co_return fail(Code::unavailable, "the other side closed the connection");
      got = *count;
      came = read.into.first(got);  // where it went: the place may have been abandoned meanwhile
      ++heard_;
    }
    from.opener.absorb(came);
    if (from.landing_id != 0) from.landing = from.landing.subspan(got);
    left -= got;
  }
  auto checked = counted(from.opener.finish());
  if (!checked) co_return checked;
  const bool landed = from.landing_id != 0;
  from.landing_id = 0;
  counters_.bytes_taken += frame.length;
  co_return counted(taker_.take(frame, {}, landed));
}

void Bundle::abandon(uint64_t id) {
  for (const auto& connection : connections_) {
    if (connection->landing_id != id) continue;
    connection->landing_id = 0;
    Stream::Read* read = connection->reading;
    if (read == nullptr) continue;
    if (connection->carried != nullptr) connection->carried->let_go_read();
    std::byte* nowhere = own_memory(connection->nowhere, kChunkBytes);
    // What has come already has not been summed yet.
    if (!read->parked()) std::memcpy(nowhere, read->into.data(), read->into.size());
    read->into = {nowhere, read->into.size()};
  }
}

}  // namespace tutti::tcp
