#include "fabric/tcp_frame.h"

#include <algorithm>

namespace tutti::tcp {

namespace {

// What a type of frame may have.
struct Shape {
  std::string_view name;
  bool scope = false;
  bool number = false;
  bool offset = false;
  bool total = false;
  uint32_t most = 0;  // bytes of payload
};

constexpr std::array<Shape, kFrameTypes + 1> kShapes = {{
    {"nothing"},
    {.name = "message", .scope = true, .number = true, .most = kSmallBytes},
    {.name = "take", .scope = true, .number = true, .offset = true, .total = true},
    {.name = "get",
     .scope = true,
     .offset = true,
     .total = true,
     .most = uint32_t{Strides::kMostEncoded}},
    {.name = "stop"},
    {.name = "put", .scope = true, .offset = true, .total = true, .most = kChunkBytes},
    {.name = "received", .number = true},
    {.name = "waiting", .scope = true, .number = true, .total = true},
    {.name = "still", .scope = true, .number = true, .total = true},
    {.name = "ping"},
    {.name = "delivered"},
    {.name = "refused", .scope = true, .number = true, .most = kMaxErrorText},
    {.name = "data", .number = true, .offset = true, .total = true, .most = kChunkBytes},
    {.name = "placed", .offset = true},
    {.name = "released"},
    {.name = "doubt"},
    {.name = "pong"},
}};

const Shape& shape_of(FrameType type) { return kShapes[static_cast<uint8_t>(type)]; }

Result<void> check(const Frame& frame) {
  const Shape& shape = shape_of(frame.type);
  const bool stray = (!shape.scope && frame.scope != 0) || (!shape.number && frame.number != 0) ||
                     (!shape.offset && frame.offset != 0) || (!shape.total && frame.total != 0);
  if (stray) return fail(Code::corrupt, "a {} frame with more than it has", shape.name);
  if (frame.length > shape.most)
    return fail(Code::corrupt, "a {} frame of {} bytes; at most {} fit", shape.name, frame.length,
                shape.most);
  if (!shape.total) return {};
  if (frame.total == 0 || frame.total > kMaxMessage)
    return fail(Code::corrupt, "a {} frame for {} bytes", shape.name, frame.total);
  if (frame.offset % kChunkBytes != 0 || frame.offset >= frame.total)
    return fail(Code::corrupt, "a {} frame at byte {} of {}", shape.name, frame.offset,
                frame.total);
  if (frame.has_piece() && frame.length != piece_bytes(frame.offset, frame.total))
    return fail(Code::corrupt, "a piece of {} bytes at {} of {}", frame.length, frame.offset,
                frame.total);
  return {};
}

}  // namespace

std::string_view frame_name(FrameType type) { return shape_of(type).name; }

void store_frame(const Frame& frame, std::byte* to) {
  to[0] = std::byte{static_cast<uint8_t>(frame.type)};
  to[1] = std::byte{static_cast<uint8_t>(frame.priority)};
  store_le<uint16_t>(to + 2, 0);
  store_le(to + 4, frame.length);
  store_le(to + 8, frame.id);
  store_le(to + 16, frame.scope);
  store_le(to + 24, frame.number);
  store_le(to + 32, frame.offset);
  store_le(to + 40, frame.total);
  std::copy(frame.check.begin(), frame.check.end(), to + 48);
}

Result<Frame> load_frame(const std::byte* from) {
  const auto type = std::to_integer<uint8_t>(from[0]);
  const auto priority = std::to_integer<uint8_t>(from[1]);
  if (type == 0 || type > kFrameTypes) return fail(Code::corrupt, "{} is no type of frame", type);
  if (priority > static_cast<uint8_t>(Priority::bulk) || load_le<uint16_t>(from + 2) != 0)
    return fail(Code::corrupt, "a garbled frame");
  Frame frame{.type = static_cast<FrameType>(type),
              .priority = static_cast<Priority>(priority),
              .length = load_le<uint32_t>(from + 4),
              .id = load_le<uint64_t>(from + 8),
              .scope = load_le<uint64_t>(from + 16),
              .number = load_le<uint64_t>(from + 24),
              .offset = load_le<uint64_t>(from + 32),
              .total = load_le<uint64_t>(from + 40)};
  std::copy_n(from + 48, frame.check.size(), frame.check.begin());
  TRY_DO(check(frame));
  return frame;
}

Bytes refusal_text(const Error& why) {
  const Bytes text = as_bytes(why.message());
  return text.first(std::min(text.size(), kMaxErrorText));
}

Frame refusal(Refused what, uint64_t id, const Error& why) {
  return {.type = FrameType::refused,
          .priority = Priority::urgent,
          .id = id,
          .scope = static_cast<uint64_t>(what),
          .number = static_cast<uint64_t>(why.code())};
}

Error refusal_error(const Frame& frame, Bytes text) {
  const bool known = frame.number <= static_cast<uint64_t>(Code::internal);
  return {known ? static_cast<Code>(frame.number) : Code::internal, std::string(as_text(text))};
}

namespace {

constexpr uint32_t kNobody = ~0U;
constexpr size_t kRefusalBytes = 13;  // before the words

}  // namespace

std::string store_refusal(const Refusal& refusal) {
  std::string told(kRefusalBytes, '\0');
  auto* to = reinterpret_cast<std::byte*>(told.data());
  to[0] = std::byte{static_cast<uint8_t>(refusal.why.code())};
  store_le(to + 1, refusal.left.value_or(kNobody));
  store_le(to + 5, refusal.from.number);
  return told + refusal.why.text().substr(0, kMaxErrorText);
}

Result<Refusal> load_refusal(uint64_t scope, Bytes told) {
  if (told.size() < kRefusalBytes) return fail(Code::corrupt, "a refusal of {} bytes", told.size());
  const auto code = std::to_integer<uint8_t>(told[0]);
  const bool known = code <= static_cast<uint8_t>(Code::internal);
  Refusal refusal{.from = {scope, load_le<uint64_t>(told.data() + 5)},
                  .why = {known ? static_cast<Code>(code) : Code::corrupt,
                          std::string(as_text(told.subspan(kRefusalBytes)))}};
  const auto left = load_le<uint32_t>(told.data() + 1);
  if (left != kNobody) refusal.left = left;
  return refusal;
}

}  // namespace tutti::tcp
