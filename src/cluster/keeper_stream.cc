#include "cluster/keeper_stream.h"

#include <algorithm>

namespace tutti {
namespace {

constexpr size_t kHeaderBytes = 8;
// Of a read: enough for the usual command at first, since a keeper waits for one most of its life,
// and at last for a command with a usual environment.
constexpr size_t kLeastRoom = 64;
constexpr size_t kMostRoom = 64 << 10;

struct BorrowedHandles final : HandleTable {
  void close_handle(int) override {}
};
BorrowedHandles borrowed_handles;

}  // namespace

Handle borrow(const Handle& handle) { return {handle.number(), borrowed_handles}; }

Result<void> KeeperFrame::parse(google::protobuf::MessageLite& into) const {
  if (into.ParseFromString(body)) return {};
  return fail(Code::corrupt, "keeper message {} of {} bytes is not a {}", static_cast<int>(kind),
              body.size(), into.GetTypeName());
}

void encode_keeper_frame(KeeperMessage kind, const google::protobuf::MessageLite& message,
                         size_t handles, std::string& onto) {
  const size_t bytes = message.ByteSizeLong();
  TUTTI_ASSERT(bytes <= kMaxKeeperMessage, "a sender keeps its messages within the limit");
  TUTTI_ASSERT(handles <= kMaxKeeperHandles, "a sender keeps its handles within the limit");
  const size_t start = onto.size();
  onto.resize(start + kHeaderBytes + bytes);
  std::byte* header = as_mutable_bytes(onto).data() + start;
  store_le(header, static_cast<uint32_t>(bytes));
  store_le(header + 4, static_cast<uint16_t>(kind));
  store_le(header + 6, static_cast<uint16_t>(handles));
  message.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(header + kHeaderBytes));
}

// Takes what was used out of received_ and makes it as long as the next read may need. When nothing
// is left, the wait for the next message may be long: then it is small again.
void KeeperStream::make_room(size_t wanted) {
  const size_t have = received_.size() - used_;
  if (have == 0) {
    std::string().swap(received_);
    room_ = kLeastRoom;
  }
  received_.erase(0, used_);
  used_ = 0;
  received_.resize(std::max(wanted, have + room_));
}

Stream::Read KeeperStream::read_more() {
  have_ = static_cast<uint32_t>(unused_bytes());
  make_room(wanted().value_or(kHeaderBytes));
  return stream_->read(as_mutable_bytes(received_).subspan(have_), &handles_);
}

Result<void> KeeperStream::note_read(const Result<size_t>& count) {
  const size_t room = received_.size() - have_;
  received_.resize(have_ + count.value_or(0));
  if (!count) return fail(count.error());
  if (*count == 0) return fail(end_error({}));
  if (*count == room) room_ = static_cast<uint32_t>(std::min(2 * room, kMostRoom));
  return {};
}

// How many bytes the next message has, as far as can be known yet.
Result<size_t> KeeperStream::wanted() const {
  const size_t have = received_.size() - used_;
  if (have < kHeaderBytes) return kHeaderBytes;
  const size_t bytes = load_le<uint32_t>(as_bytes(received_).data() + used_);
  if (bytes > kMaxKeeperMessage)
    return fail(Code::corrupt, "keeper message of {} bytes; the limit is {}", bytes,
                kMaxKeeperMessage);
  return kHeaderBytes + bytes;
}

Result<KeeperFrame> KeeperStream::take_frame(size_t size) {
  const std::byte* header = as_bytes(received_).data() + used_;
  const size_t handles = load_le<uint16_t>(header + 6);
  if (handles > handles_.size())
    return fail(Code::corrupt, "keeper message promises {} handles, {} came", handles,
                handles_.size());
  KeeperFrame frame;
  frame.kind = static_cast<KeeperMessage>(load_le<uint16_t>(header + 4));
  frame.body.assign(received_, used_ + kHeaderBytes, size - kHeaderBytes);
  used_ += static_cast<uint32_t>(size);
  const auto last = handles_.begin() + static_cast<ptrdiff_t>(handles);
  frame.handles.assign(std::make_move_iterator(handles_.begin()), std::make_move_iterator(last));
  handles_.erase(handles_.begin(), last);
  if (handles_.empty()) std::vector<Handle>().swap(handles_);
  if (used_ == received_.size()) {
    std::string().swap(received_);
    used_ = 0;
  }
  return frame;
}

void KeeperStream::take_in(Bytes bytes, std::vector<Handle> handles) {
  received_.erase(0, std::exchange(used_, 0));
  received_ += as_text(bytes);
  std::ranges::move(handles, std::back_inserter(handles_));
}

Error KeeperStream::end_error(const Result<void>& why) const {
  if (!why) return why.error();
  if (unused_bytes() == 0) return {Code::unavailable, "the other end has closed"};
  return {Code::unavailable, "the other end closed within a message"};
}

Result<std::optional<KeeperFrame>> KeeperStream::next() {
  TRY(const size_t size, wanted());
  if (handles_.size() > 2 * kMaxKeeperHandles)
    return fail(Code::corrupt, "{} handles came that no message claims", handles_.size());
  if (received_.size() - used_ < size) return std::nullopt;
  return take_frame(size);
}

Task<Result<KeeperFrame>> KeeperStream::receive() {
  while (true) {
    auto frame = next();
    if (!frame) co_return fail(std::move(frame).error());
    if (*frame) co_return std::move(**frame);
    const Result<size_t> count = co_await read_more();
    Result<void> noted = note_read(count);
    if (!noted) co_return fail(std::move(noted).error());
  }
}

Task<Result<void>> KeeperStream::send(KeeperMessage kind,
                                      const google::protobuf::MessageLite& message,
                                      std::span<const Handle> handles) {
  std::string frame;
  encode_keeper_frame(kind, message, handles.size(), frame);
  return send_encoded(std::move(frame), handles);
}

Task<Result<void>> KeeperStream::send_encoded(std::string frames, std::span<const Handle> handles) {
  auto turn = co_await sending_.acquire();
  if (!turn) co_return fail(std::move(turn).error());
  const Bytes bytes = as_bytes(frames);
  auto sent = co_await stream_->write(bytes, handles);
  sending_.release();
  co_return sent;
}

}  // namespace tutti
