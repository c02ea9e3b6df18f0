#include "world/real/ucx/ucx_stream.h"

#include <algorithm>
#include <cstring>

namespace tutti {

namespace {

// Copied messages: one fits what UCX sends as a whole over TCP and InfiniBand (8 KiB).
constexpr size_t kCopiedBytes = 8000;
// So many bytes of them may be on their way, unread: less than the kernel's buffers hold, so that
// none waits within UCX, whose version 1.13 dies when an endpoint with waiting ones is closed.
constexpr uint64_t kWindow = 64_KiB;
// Below, copying costs less than the reader's asking.
constexpr size_t kInPlaceBytes = 32_KiB;
// One at a time, and the next may overtake the word that the one before was fetched.
constexpr size_t kMaxUnfetched = 4;
// UCX fetches no more than the fabric's pieces, and nobody may make us store more.
constexpr size_t kMaxInPlaceBytes = 64_MiB;
// For an operation that is about to end anyway. Then the endpoint is closed, which ends it at once.
constexpr Duration kGrace = 1ms;

constexpr size_t kEndBytes = sizeof(uint64_t);

}  // namespace

UcxStream::UcxStream(UcxCarrier& carrier, uint64_t end)
    : carrier_(carrier), end_(end), words_(kEndBytes, '\0'), allowed_bytes_(kWindow) {
  store_le(as_mutable_bytes(words_).data(), end);
  words_ += as_text(carrier.address());
}

UcxStream::~UcxStream() {
  let_go_read();
  let_go_write();
  drop_inbox();
  carrier_.forget_end(end_);
  if (peer_ == nullptr) return;
  std::erase(peer_->streams, this);
  tether_->stream = nullptr;
  if (!broken_) {
    // The last word: after so many messages nothing more comes.
    std::array<std::byte, sizeof sent_> last;
    store_le(last.data(), sent_);
    const Bytes word = last;
    (void)tether_->connection->write_now({&word, 1});
  }
  (void)tether_->connection->shutdown_write();
  carrier_.bury(std::move(tether_));
}

Result<void> UcxStream::attach(Bytes theirs, std::unique_ptr<Stream> connection) {
  TUTTI_ASSERT(peer_ == nullptr, "a stream is attached once");
  if (theirs.size() <= kEndBytes) return fail(Code::corrupt, "the other side says nothing of UCX");
  their_end_ = load_le<uint64_t>(theirs.data());
  TRY(peer_, carrier_.peer(std::string(as_text(theirs.subspan(kEndBytes)))));
  peer_->streams.push_back(this);
  tether_ = std::make_unique<UcxTether>(carrier_.clock(), std::move(connection), peer_, this);
  carrier_.listen(*tether_);
  return {};
}

Result<void> UcxStream::shutdown_write() {
  return fail(Code::unsupported, "a stream over UCX is closed as a whole");
}

Result<Credentials> UcxStream::peer_credentials() const {
  return fail(Code::unsupported, "UCX does not say who is at the other end");
}

// ---- Out ----

bool UcxStream::attempt(Write& write) {
  while (!write.finished()) {
    if (sending_) return false;
    if (all_ && !broken_) broken_ = Error(Code::unavailable, "the other side closed the stream");
    if (broken_) {
      write.set(fail(*broken_));
      return true;
    }
    const Bytes part = write.parts().front().subspan(write.offset());
    if (part.size() >= kInPlaceBytes) {
      send_in_place(part.first(std::min(part.size(), kMaxInPlaceBytes)), write);
    } else if (!send_copied(write)) {
      return false;
    }
  }
  write.set({});
  return true;
}

void UcxStream::send_in_place(Bytes part, Write& write) {
  sending_header_ = {.end = their_end_, .number = sent_++};
  sending_bytes_ = part.size();
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_AM_SEND_FLAG_RNDV;
  param.cb.send = on_sent;
  param.user_data = this;
  const ucs_status_ptr_t request =
      carrier_.ucx().ucp_am_send_nbx(peer_->endpoint, 0, &sending_header_, sizeof sending_header_,
                                     part.data(), part.size(), &param);
  if (request == nullptr) {
    write.advance(part.size());
  } else if (UCS_PTR_IS_ERR(request)) {
    broken_ = ucx_error(carrier_.ucx(), UCS_PTR_STATUS(request), "send");
  } else {
    sending_ = true;
    carrier_.began(*peer_);
  }
}

void UcxStream::on_sent(void* request, ucs_status_t status, void* self) {
  auto& stream = *static_cast<UcxStream*>(self);
  stream.carrier_.ucx().ucp_request_free(request);
  stream.carrier_.ended(*stream.peer_);
  stream.sending_ = false;
  stream.send_status_ = status;
  stream.carrier_.ready(stream.end_);
}

void UcxStream::finish_send() {
  const ucs_status_t status = *std::exchange(send_status_, std::nullopt);
  if (status != UCS_OK && !broken_) broken_ = ucx_error(carrier_.ucx(), status, "send");
  if (status == UCS_OK && write_ != nullptr) write_->advance(sending_bytes_);
}

// One message of what is small in a row; false when the window is closed.
bool UcxStream::send_copied(Write& write) {
  const uint64_t room = std::min<uint64_t>(allowed_bytes_ - copied_bytes_, kCopiedBytes);
  if (room == 0) return false;
  std::string bytes;
  size_t offset = write.offset();
  for (const Bytes& part : write.parts()) {
    const Bytes left = part.subspan(offset);
    offset = 0;
    if (left.size() >= kInPlaceBytes || bytes.size() == room) break;
    bytes += as_text(left.first(std::min(left.size(), room - bytes.size())));
  }
  const size_t size = bytes.size();
  const UcxHeader header{.end = their_end_, .number = sent_++};
  auto sent = carrier_.send_copy(*peer_, header, std::move(bytes));
  if (!sent) broken_ = std::move(sent).error();
  copied_bytes_ += size;
  write.advance(size);
  return true;
}

void UcxStream::withdraw_write(Write&) {
  write_ = nullptr;
  let_go_write();
}

void UcxStream::let_go_write() {
  if (!sending_ && !send_status_) return;
  carrier_.progress_while(sending_, kGrace);
  if (sending_) carrier_.break_off(*peer_, {Code::unavailable, "a write was given up"});
  advance();
}

// ---- In ----

ucs_status_t UcxStream::came(const UcxHeader& header, void* data, size_t bytes,
                             bool fetched_later) {
  if (broken_) return UCS_OK;
  carrier_.ready(end_);
  if (header.kind == UcxHeader::Kind::credit) {
    if (header.number <= copied_bytes_)
      allowed_bytes_ = std::max(allowed_bytes_, header.number + kWindow);
    return UCS_OK;
  }
  const bool known = header.number < next_ || inbox_.contains(header.number);
  const bool fits = fetched_later ? bytes <= kMaxInPlaceBytes : bytes + stored_bytes_ <= kWindow;
  unfetched_ += fetched_later ? 1 : 0;
  if (known || bytes == 0 || !fits || unfetched_ > kMaxUnfetched) {
    const Error why(Code::corrupt, "the other side sent more over UCX than it may");
    if (peer_ != nullptr) carrier_.lost(*peer_, why);
    if (peer_ == nullptr) broken_ = why;
    return UCS_OK;
  }
  Message& message = inbox_[header.number];
  if (fetched_later) {
    message.later = data;
    message.later_bytes = bytes;
    return UCS_INPROGRESS;
  }
  message.bytes.assign(static_cast<const char*>(data), bytes);
  stored_bytes_ += bytes;
  return UCS_OK;
}

bool UcxStream::attempt(Read& read) {
  for (;;) {
    if (fetching_) return false;
    if (broken_) {
      read.set(fail(*broken_));
      return true;
    }
    if (const size_t got = take_copied(read.into); got != 0) {
      open_window();
      read.set(got);
      return true;
    }
    const auto next = inbox_.find(next_);
    if (next == inbox_.end()) {
      if (all_ != next_) return false;
      read.set(0);
      return true;
    }
    const size_t bytes = next->second.later_bytes;
    const bool here = bytes > read.into.size();
    fetch(next->second, read);
    if (fetching_ || broken_ || here) continue;
    inbox_.erase(next);
    ++next_;
    read.set(bytes);
    return true;
  }
}

// From small messages, as many as come next.
size_t UcxStream::take_copied(MutableBytes into) {
  size_t got = 0;
  for (auto next = inbox_.find(next_); next != inbox_.end() && next->second.later == nullptr;
       next = inbox_.find(next_)) {
    Message& message = next->second;
    const size_t some = std::min(into.size() - got, message.bytes.size() - message.read);
    std::memcpy(into.data() + got, message.bytes.data() + message.read, some);
    got += some;
    message.read += some;
    if (message.counted) {
      stored_bytes_ -= some;
      read_bytes_ += some;
    }
    if (message.read < message.bytes.size()) break;
    inbox_.erase(next);
    ++next_;
  }
  return got;
}

void UcxStream::open_window() {
  if (read_bytes_ - opened_bytes_ < kWindow / 2) return;
  opened_bytes_ = read_bytes_;
  const UcxHeader header{.end = their_end_, .number = read_bytes_, .kind = UcxHeader::Kind::credit};
  auto sent = carrier_.send_copy(*peer_, header, {});
  if (!sent) broken_ = std::move(sent).error();
}

// Right to where it is wanted, if there is room for all of it; else to memory of ours.
void UcxStream::fetch(Message& message, Read& read) {
  void* into = read.into.data();
  fetching_here_ = message.later_bytes > read.into.size();
  if (fetching_here_) {
    message.bytes.resize(message.later_bytes);
    message.counted = false;
    into = message.bytes.data();
  }
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.recv_am = on_fetched;
  param.user_data = this;
  void* later = std::exchange(message.later, nullptr);
  --unfetched_;
  const ucs_status_ptr_t request = carrier_.ucx().ucp_am_recv_data_nbx(
      carrier_.worker(), later, into, message.later_bytes, &param);
  if (request == nullptr) return;
  if (UCS_PTR_IS_ERR(request)) {
    broken_ = ucx_error(carrier_.ucx(), UCS_PTR_STATUS(request), "receive");
    return;
  }
  fetching_ = true;
  carrier_.began(*peer_);
}

void UcxStream::on_fetched(void* request, ucs_status_t status, size_t, void* self) {
  auto& stream = *static_cast<UcxStream*>(self);
  stream.carrier_.ucx().ucp_request_free(request);
  stream.carrier_.ended(*stream.peer_);
  stream.fetching_ = false;
  stream.fetch_status_ = status;
  stream.carrier_.ready(stream.end_);
}

void UcxStream::finish_fetch() {
  const ucs_status_t status = *std::exchange(fetch_status_, std::nullopt);
  if (status != UCS_OK) {
    if (!broken_) broken_ = ucx_error(carrier_.ucx(), status, "receive");
    return;
  }
  if (fetching_here_) return;  // and is read from there
  const auto next = inbox_.find(next_);
  const size_t bytes = next->second.later_bytes;
  inbox_.erase(next);
  ++next_;
  if (read_ != nullptr) {
    std::exchange(read_, nullptr)->complete(bytes);
  } else if (!broken_) {
    broken_ = Error(Code::unavailable, "a read was given up");
  }
}

void UcxStream::withdraw_read(Read&) {
  read_ = nullptr;
  let_go_read();
}

void UcxStream::let_go_read() {
  // What has come is told before its place is changed.
  if (!fetching_ && !fetch_status_) return;
  if (fetching_here_ && read_ != nullptr) return;
  carrier_.progress_while(fetching_, kGrace);
  if (fetching_) carrier_.break_off(*peer_, {Code::unavailable, "a read was given up"});
  advance();
}

void UcxStream::drop_inbox() {
  for (const auto& [number, message] : inbox_)
    if (message.later != nullptr)
      carrier_.ucx().ucp_am_data_release(carrier_.worker(), message.later);
  inbox_.clear();
}

// ---- Ends ----

void UcxStream::advance() {
  if (send_status_) finish_send();
  if (fetch_status_) finish_fetch();
  if (write_ != nullptr && attempt(*write_)) std::exchange(write_, nullptr)->wake();
  if (read_ != nullptr && attempt(*read_)) std::exchange(read_, nullptr)->wake();
}

void UcxStream::break_with(const Error& why) {
  if (!broken_) broken_ = why;
  advance();
}

void UcxStream::connection_ended(std::optional<uint64_t> messages) {
  if (messages) {
    all_ = messages;
    return advance();
  }
  const Error why(Code::unavailable, "the other side hung up");
  if (sending_ || fetching_) return carrier_.break_off(*peer_, why);
  break_with(why);
}

}  // namespace tutti
