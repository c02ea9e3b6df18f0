#include "wire/frame.h"

#include <algorithm>
#include <array>

#include "base/hash.h"

namespace tutti::wire {

namespace {

// Between two large payloads only the header is read through the inbox, and what comes with it.
constexpr size_t kBulkRead = 2048;
// Below this, a copy costs less than another system call.
constexpr size_t kSmallestInPlace = 16 * 1024;

constexpr std::array<std::string_view, kLastFrameType + 1> kTypeNames = {
    "none",    "hello",  "reject", "request", "message", "data",  "end",
    "failure", "cancel", "credit", "ping",    "pong",    "goaway"};

}  // namespace

std::string_view frame_type_name(FrameType type) {
  const auto index = static_cast<uint8_t>(type);
  return index <= kLastFrameType ? kTypeNames[index] : "unknown";
}

void FrameHeader::store(std::byte* to) const {
  store_le(to, checksum);
  store_le(to + 4, length);
  store_le(to + 8, stream);
  store_le(to + 12, static_cast<uint8_t>(type));
  store_le(to + 13, flags);
  store_le(to + 14, uint16_t{0});
}

FrameHeader FrameHeader::load(const std::byte* from) {
  return {load_le<uint32_t>(from), load_le<uint32_t>(from + 4), load_le<uint32_t>(from + 8),
          static_cast<FrameType>(load_le<uint8_t>(from + 12)), load_le<uint8_t>(from + 13)};
}

uint32_t frame_checksum(const FrameHeader& header, Bytes payload) {
  const uint64_t place = uint64_t{header.stream} << 32 | header.length;
  const uint64_t kind = uint64_t{static_cast<uint8_t>(header.type)} << 8 | header.flags;
  // Odd multiplier (2^64 / golden ratio): every bit of the kind reaches the high half of the seed.
  const uint64_t hash = hash64(payload, place ^ (kind + 1) * 0x9E3779B97F4A7C15U);
  return static_cast<uint32_t>(hash >> 32) ^ static_cast<uint32_t>(hash);
}

void store_frame_header(std::byte* to, FrameType type, uint8_t flags, uint32_t stream,
                        Bytes payload) {
  FrameHeader header{0, static_cast<uint32_t>(payload.size()), stream, type, flags};
  header.checksum = frame_checksum(header, payload);
  header.store(to);
}

std::string frame_bytes(FrameType type, std::string_view payload) {
  std::string frame(kFrameHeaderSize, '\0');
  frame += payload;
  store_frame_header(as_mutable_bytes(frame).data(), type, 0, 0, as_bytes(payload));
  return frame;
}

size_t FrameReader::missing() const {
  const size_t wanted = kFrameHeaderSize + (header_ ? header_->length : 0);
  const size_t have = inbox_.size() - given_;
  return have < wanted ? wanted - have : 1;
}

MutableBytes FrameReader::room() {
  const size_t asked = std::exchange(asked_, 0);
  if (!direct_.empty()) return direct_.subspan(direct_filled_);
  inbox_.consume(std::exchange(given_, 0));
  // A read that one long message filled says nothing of what comes behind it: the next read asks
  // for its rest and a little more. A quiet connection so stays small, whatever comes now and then.
  const bool filled = got_ == asked;
  if (got_ != 0 && !(filled && header_ && asked == read_size_.get())) read_size_.was(filled, got_);
  got_ = 0;
  read_size_.shrink(inbox_);
  asked_ = in_bulk_  ? std::max(missing(), kBulkRead)
           : header_ ? missing() + read_size_.get()
                     : std::max(missing(), read_size_.get());
  return inbox_.room(asked_).first(asked_);
}

void FrameReader::received(size_t size) {
  if (asked_ == 0) {
    direct_filled_ += size;
  } else {
    if (!in_bulk_) got_ = size;
    inbox_.commit(size);
  }
}

void FrameReader::append(Bytes bytes) {
  if (!direct_.empty()) {
    const Bytes wanted = bytes.first(std::min(bytes.size(), direct_.size() - direct_filled_));
    std::copy(wanted.begin(), wanted.end(), direct_.begin() + direct_filled_);
    direct_filled_ += wanted.size();
    bytes = bytes.subspan(wanted.size());
  }
  inbox_.append(bytes);
}

void FrameReader::release_idle(bool receiving) {
  read_size_.rest();
  if (!receiving && inbox_.empty()) inbox_.release();
}

Result<std::optional<Frame>> FrameReader::next() {
  inbox_.consume(std::exchange(given_, 0));
  if (!direct_.empty()) {
    if (direct_filled_ < direct_.size()) return std::nullopt;
    in_bulk_ = true;
    return finish(std::exchange(direct_, {}), true);
  }
  if (!header_) {
    if (inbox_.size() < kFrameHeaderSize) return std::nullopt;
    TRY_DO(read_header());
  }
  const size_t size = kFrameHeaderSize + header_->length;
  if (inbox_.size() >= size) {
    given_ = size;
    in_bulk_ = in_bulk_ && header_->type == FrameType::data;
    return finish(inbox_.bytes().subspan(kFrameHeaderSize, header_->length), false);
  }
  if (header_->type == FrameType::data && missing() >= kSmallestInPlace && !asked_sink_)
    TRY_DO(receive_in_place());
  return std::nullopt;
}

Result<void> FrameReader::receive_in_place() {
  asked_sink_ = true;
  TRY(direct_, sink_.place(*header_));
  if (direct_.empty()) return {};
  TUTTI_ASSERT(direct_.size() == header_->length, "the sink gives room for exactly the payload");
  const Bytes begun = inbox_.bytes().subspan(kFrameHeaderSize);
  std::copy(begun.begin(), begun.end(), direct_.begin());
  direct_filled_ = begun.size();
  inbox_.clear();
  return {};
}

Result<void> FrameReader::read_header() {
  const std::byte* bytes = inbox_.data();
  const FrameHeader header = FrameHeader::load(bytes);
  const auto type = static_cast<uint8_t>(header.type);
  if (type == 0 || type > kLastFrameType)
    return fail(Code::corrupt, "frame at byte {}: {} is not a frame type", offset_, type);
  if (header.length > max_payload_)
    return fail(Code::corrupt, "frame at byte {}: a {} of {} bytes is over the limit of {}",
                offset_, frame_type_name(header.type), header.length, max_payload_);
  if ((header.flags & ~FrameFlags::all) != 0)
    return fail(Code::corrupt, "frame at byte {}: flags {:#04x} are not known", offset_,
                header.flags);
  if (load_le<uint16_t>(bytes + 14) != 0)
    return fail(Code::corrupt, "frame at byte {}: the reserved bytes are not zero", offset_);
  header_ = header;
  asked_sink_ = false;
  return {};
}

Result<std::optional<Frame>> FrameReader::finish(Bytes payload, bool in_place) {
  const FrameHeader header = *std::exchange(header_, std::nullopt);
  const uint32_t checksum = frame_checksum(header, payload);
  if (checksum != header.checksum)
    return fail(Code::corrupt,
                "frame at byte {}: the checksum of a {} of {} bytes is {:08x}, its header says "
                "{:08x}",
                offset_, frame_type_name(header.type), header.length, checksum, header.checksum);
  offset_ += kFrameHeaderSize + header.length;
  return Frame{header.type, header.flags, header.stream, in_place, payload};
}

}  // namespace tutti::wire
