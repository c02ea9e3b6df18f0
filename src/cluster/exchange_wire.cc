#include "cluster/exchange_wire.h"

#include <array>
#include <cstring>

namespace tutti {
namespace {

constexpr uint32_t kMagic = 0x48435854;  // "TXCH"
constexpr uint16_t kVersion = 1;
constexpr size_t kMaxAnswerMessage = 64 << 10;

// As they travel, little-endian; name and value follow.
struct RequestHeader {
  uint32_t magic;
  uint16_t version;
  uint16_t op;
  uint64_t job;
  uint64_t life;
  uint64_t gang_epoch;
  uint64_t round;
  int64_t timeout_ns;
  uint32_t process;
  uint32_t name_bytes;
  uint32_t value_bytes;
  uint32_t reserved;
};
static_assert(sizeof(RequestHeader) == 64);
// Message and value follow.
struct AnswerHeader {
  uint32_t magic;
  uint16_t version;
  uint16_t code;  // 0: ok, else 1 + tutti::Code
  uint64_t gang_epoch;
  uint32_t message_bytes;
  uint32_t value_bytes;
};
static_assert(sizeof(AnswerHeader) == 24);
static_assert(std::endian::native == std::endian::little);

template <class Header>
std::string join(const Header& header, const std::string& first, const std::string& second) {
  std::string bytes(sizeof header, '\0');
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes + first + second;
}

Task<Result<std::string>> read_bytes(Stream& stream, size_t size) {
  std::string bytes(size, '\0');
  for (size_t got = 0; got < size;) {
    const MutableBytes into = as_mutable_bytes(bytes).subspan(got);
    auto read = co_await stream.read(into);
    if (!read) co_return fail(std::move(read).error());
    if (*read == 0) co_return fail(Code::unavailable, "the other end has gone away");
    got += *read;
  }
  co_return bytes;
}

Result<void> check(const RequestHeader& header) {
  if (header.magic != kMagic) return fail(Code::invalid, "this is no request of the exchange");
  if (header.version != kVersion)
    return fail(Code::unsupported, "version {} of the exchange is asked for, {} is spoken here",
                header.version, kVersion);
  if (header.op < 1 || header.op > 5)
    return fail(Code::unsupported, "the exchange has no operation {}", header.op);
  const bool named = header.op != static_cast<uint16_t>(ExchangeRequest::Op::ready);
  if ((named && header.name_bytes == 0) || header.name_bytes > kMaxExchangeName)
    return fail(Code::invalid, "a name or key has 1 to {} bytes, not {}", kMaxExchangeName,
                header.name_bytes);
  if (header.value_bytes > kMaxExchangeValue)
    return fail(Code::invalid, "a value has at most {} bytes, not {}; put larger things in files",
                kMaxExchangeValue, header.value_bytes);
  return {};
}

}  // namespace

std::string encode(const ExchangeRequest& request) {
  const RequestHeader header{.magic = kMagic,
                             .version = kVersion,
                             .op = static_cast<uint16_t>(request.op),
                             .job = request.job,
                             .life = request.life,
                             .gang_epoch = request.gang_epoch,
                             .round = request.round,
                             .timeout_ns = request.timeout_ns,
                             .process = request.process,
                             .name_bytes = static_cast<uint32_t>(request.name.size()),
                             .value_bytes = static_cast<uint32_t>(request.value.size()),
                             .reserved = 0};
  return join(header, request.name, request.value);
}

std::string encode(const ExchangeAnswer& answer) {
  const AnswerHeader header{
      .magic = kMagic,
      .version = kVersion,
      .code = static_cast<uint16_t>(answer.ok ? 0 : 1 + static_cast<int>(answer.code)),
      .gang_epoch = answer.gang_epoch,
      .message_bytes = static_cast<uint32_t>(answer.message.size()),
      .value_bytes = static_cast<uint32_t>(answer.value.size())};
  return join(header, answer.message, answer.value);
}

Task<Result<ExchangeRequest>> read_request(Stream& stream) {
  auto bytes = co_await read_bytes(stream, sizeof(RequestHeader));
  if (!bytes) co_return fail(std::move(bytes).error());
  RequestHeader header;
  std::memcpy(&header, bytes->data(), sizeof header);
  CO_TRY_DO(check(header));
  ExchangeRequest request{.op = static_cast<ExchangeRequest::Op>(header.op),
                          .job = header.job,
                          .life = header.life,
                          .gang_epoch = header.gang_epoch,
                          .round = header.round,
                          .timeout_ns = header.timeout_ns,
                          .process = header.process,
                          .name = {},
                          .value = {}};
  auto name = co_await read_bytes(stream, header.name_bytes);
  if (!name) co_return fail(std::move(name).error());
  request.name = std::move(*name);
  auto value = co_await read_bytes(stream, header.value_bytes);
  if (!value) co_return fail(std::move(value).error());
  request.value = std::move(*value);
  co_return request;
}

Task<Result<ExchangeAnswer>> read_answer(Stream& stream) {
  auto bytes = co_await read_bytes(stream, sizeof(AnswerHeader));
  if (!bytes) co_return fail(std::move(bytes).error());
  AnswerHeader header;
  std::memcpy(&header, bytes->data(), sizeof header);
  if (header.magic != kMagic || header.message_bytes > kMaxAnswerMessage ||
      header.value_bytes > kMaxGangTable)
    co_return fail(Code::corrupt, "this is no answer of the exchange");
  ExchangeAnswer answer{.ok = header.code == 0,
                        .code = static_cast<Code>(header.code == 0 ? 0 : header.code - 1),
                        .gang_epoch = header.gang_epoch,
                        .message = {},
                        .value = {}};
  auto message = co_await read_bytes(stream, header.message_bytes);
  if (!message) co_return fail(std::move(message).error());
  answer.message = std::move(*message);
  auto value = co_await read_bytes(stream, header.value_bytes);
  if (!value) co_return fail(std::move(value).error());
  answer.value = std::move(*value);
  co_return answer;
}

}  // namespace tutti
