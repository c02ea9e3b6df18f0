#include "cluster/keeper_stream.h"

#include <algorithm>

namespace tutti {
namespace {

constexpr size_t kHeaderBytes = 8;
// Of a read: enough for the usual command at first, since a keeper waits for one most of its life,
// and at last for a command with a usual environment.
constexpr size_t kLeastRoom = 128;
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

// Reads until `wanted` bytes lie unused in received_.
Task<Result<void>> KeeperStream::fill(size_t wanted) {
  while (received_.size() - used_ < wanted) {
    const size_t have = received_.size() - used_;
    make_room(wanted);
    const MutableBytes into = as_mutable_bytes(received_).subspan(have);
    auto count = co_await stream_->read(into, &handles_);
    received_.resize(have + count.value_or(0));
    if (!count) co_return fail(std::move(count).error());
    if (*count == 0 && have == 0) co_return fail(Code::unavailable, "the other end has closed");
    if (*count == 0) co_return fail(Code::unavailable, "the other end closed within a message");
    if (handles_.size() > 2 * kMaxKeeperHandles)
      co_return fail(Code::corrupt, "{} handles came that no message claims", handles_.size());
    if (*count == into.size()) room_ = std::min(2 * into.size(), kMostRoom);
  }
  co_return {};
}

Task<Result<KeeperFrame>> KeeperStream::receive() {
  auto filled = co_await fill(kHeaderBytes);
  if (!filled) co_return fail(std::move(filled).error());
  const std::byte* header = as_bytes(received_).data() + used_;
  const size_t bytes = load_le<uint32_t>(header);
  const size_t handles = load_le<uint16_t>(header + 6);
  KeeperFrame frame;
  frame.kind = static_cast<KeeperMessage>(load_le<uint16_t>(header + 4));
  if (bytes > kMaxKeeperMessage)
    co_return fail(Code::corrupt, "keeper message of {} bytes; the limit is {}", bytes,
                   kMaxKeeperMessage);
  auto completed = co_await fill(kHeaderBytes + bytes);
  if (!completed) co_return fail(std::move(completed).error());
  if (handles > handles_.size())
    co_return fail(Code::corrupt, "keeper message promises {} handles, {} came", handles,
                   handles_.size());
  frame.body.assign(received_, used_ + kHeaderBytes, bytes);
  used_ += kHeaderBytes + bytes;
  const auto last = handles_.begin() + static_cast<ptrdiff_t>(handles);
  frame.handles.assign(std::make_move_iterator(handles_.begin()), std::make_move_iterator(last));
  handles_.erase(handles_.begin(), last);
  co_return frame;
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
