#include "base/ids.h"

namespace tutti {
namespace {

constexpr size_t kUuidChars = 36;

constexpr bool is_dash_position(size_t at) { return at == 8 || at == 13 || at == 18 || at == 23; }

// The value of a hexadecimal digit, or 16.
uint64_t hex_value(char c) {
  if (c >= '0' && c <= '9') return static_cast<uint64_t>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<uint64_t>(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') return static_cast<uint64_t>(c - 'A' + 10);
  return 16;
}

std::unexpected<Error> not_a_uuid(std::string_view text) {
  return fail(Code::invalid,
              "'{}' is not a UUID; write it like 9b2e4c1a-7d35-4f60-8a91-0c5f6e7d8b9a", text);
}

}  // namespace

std::string Uuid::text() const {
  return fmt::format("{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", high_ >> 32, (high_ >> 16) & 0xffff,
                     high_ & 0xffff, low_ >> 48, low_ & 0xffff'ffff'ffff);
}

Result<Uuid> Uuid::parse(std::string_view text) {
  if (text.size() != kUuidChars) return not_a_uuid(text);
  uint64_t high = 0, low = 0;
  for (size_t at = 0; at < kUuidChars; ++at) {
    if (is_dash_position(at)) {
      if (text[at] != '-') return not_a_uuid(text);
      continue;
    }
    const uint64_t digit = hex_value(text[at]);
    if (digit > 15) return not_a_uuid(text);
    high = (high << 4) | (low >> 60);
    low = (low << 4) | digit;
  }
  return Uuid(high, low);
}

}  // namespace tutti
