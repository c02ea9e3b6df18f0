#include "fabric/tcp_handshake.h"

#include <algorithm>

namespace tutti::tcp {

namespace {

constexpr std::string_view kMagic = "TUTTIFAB";
constexpr size_t kSaid = kHelloBytes - sizeof(Key);  // of the hello, without its HMAC
constexpr uint8_t kChecksums = 1;
constexpr uint8_t kEncrypt = 2;
constexpr uint8_t kCarried = 4;

using Answer = std::array<std::byte, kAnswerBytes>;

Key answer_code(const Key& key, const Hello& hello, Bytes nonce) {
  return hmac(key, {as_bytes("answer"), hello, nonce});
}
Key proof_code(const Key& key, const Hello& hello, const Answer& answer) {
  return hmac(key, {as_bytes("proof"), hello, answer});
}
Secrets secrets_of(const Key& key, const Hello& hello, const Answer& answer) {
  return {.to_called = hmac(key, {as_bytes("to called"), hello, answer}),
          .to_caller = hmac(key, {as_bytes("to caller"), hello, answer})};
}

}  // namespace

Task<Result<void>> read_all(Stream& stream, MutableBytes into) {
  while (!into.empty()) {
    auto got = co_await stream.read(into);
    if (!got) co_return fail(got.error());
    if (*got == 0) co_return fail(Code::unavailable, "the other side hung up");
    into = into.subspan(*got);
  }
  co_return {};
}

Hello make_hello(const Introduction& who, const Nonce& nonce, const Key& job) {
  Hello hello{};
  std::byte* to = hello.data();
  std::ranges::copy(as_bytes(kMagic), to);
  store_le(to + 8, kVersion);
  to[10] = std::byte{who.streams};
  to[11] = std::byte{who.stream};
  to[12] = std::byte{static_cast<uint8_t>((who.protection.checksums ? kChecksums : 0) |
                                          (who.protection.encrypt ? kEncrypt : 0) |
                                          (who.carried ? kCarried : 0))};
  store_le(to + 16, who.epoch);
  store_le(to + 24, who.from);
  store_le(to + 28, who.to);
  store_le(to + 32, who.session);
  store_le(to + 40, who.incarnation);
  std::ranges::copy(nonce, to + 48);
  const Key code = hmac(epoch_key(job, who.epoch), {as_bytes("hello"), Bytes(hello).first(kSaid)});
  std::ranges::copy(code, to + kSaid);
  return hello;
}

Result<Introduction> check_hello(const Hello& hello, const Key& job) {
  const std::byte* from = hello.data();
  if (as_text(Bytes(hello).first(kMagic.size())) != kMagic)
    return fail(Code::corrupt, "what came is no hello of the fabric");
  const auto version = load_le<uint16_t>(from + 8);
  if (version != kVersion)
    return fail(Code::unsupported, "version {} of the protocol; we speak {}", version, kVersion);
  const auto flags = std::to_integer<uint8_t>(from[12]);
  const Introduction who{
      .epoch = load_le<uint64_t>(from + 16),
      .from = load_le<uint32_t>(from + 24),
      .to = load_le<uint32_t>(from + 28),
      .session = load_le<uint64_t>(from + 32),
      .incarnation = load_le<uint64_t>(from + 40),
      .streams = std::to_integer<uint8_t>(from[10]),
      .stream = std::to_integer<uint8_t>(from[11]),
      .protection = {.checksums = (flags & kChecksums) != 0, .encrypt = (flags & kEncrypt) != 0},
      .carried = (flags & kCarried) != 0};
  const Key code = hmac(epoch_key(job, who.epoch), {as_bytes("hello"), Bytes(hello).first(kSaid)});
  if (!same(code, Bytes(hello).subspan(kSaid)))
    return fail(Code::denied, "who says to be rank {} of epoch {} does not know the job's key",
                who.from, who.epoch);
  if (who.streams == 0 || who.streams > kMaxStreams || who.stream >= who.streams)
    return fail(Code::corrupt, "connection {} of {} of a link", who.stream, who.streams);
  return who;
}

Task<Result<Secrets>> introduce(Stream& stream, Random& random, Key job, Introduction who) {
  Nonce nonce;
  random.fill(nonce);
  const Hello hello = make_hello(who, nonce, job);
  auto said = co_await stream.write(hello);
  if (!said) co_return fail(said.error());
  Answer answer;
  auto heard = co_await read_all(stream, answer);
  if (!heard) co_return fail(heard.error());
  const Key key = epoch_key(job, who.epoch);
  const Key code = answer_code(key, hello, Bytes(answer).first(sizeof(Nonce)));
  if (!same(code, Bytes(answer).subspan(sizeof(Nonce))))
    co_return fail(Code::denied, "who answers for rank {} does not know the job's key", who.to);
  const Key proof = proof_code(key, hello, answer);
  auto proved = co_await stream.write(proof);
  if (!proved) co_return fail(proved.error());
  co_return secrets_of(key, hello, answer);
}

Task<Result<Welcome>> welcome(Stream& stream, Random& random, Key job, Doorkeeper& door) {
  Hello hello;
  auto heard = co_await read_all(stream, hello);
  if (!heard) co_return fail(heard.error());
  auto who = check_hello(hello, job);
  if (!who) co_return fail(who.error());
  auto admitted = door.admit(*who);
  if (!admitted) co_return fail(admitted.error());
  const Key key = epoch_key(job, who->epoch);
  Answer answer;
  random.fill(MutableBytes(answer).first(sizeof(Nonce)));
  const Key code = answer_code(key, hello, Bytes(answer).first(sizeof(Nonce)));
  std::ranges::copy(code, answer.begin() + sizeof(Nonce));
  auto said = co_await stream.write(answer);
  if (!said) co_return fail(said.error());
  Key proof;
  auto proved = co_await read_all(stream, proof);
  if (!proved) co_return fail(proved.error());
  if (!same(proof, proof_code(key, hello, answer)))
    co_return fail(Code::denied, "rank {} did not prove itself: a hello said again", who->from);
  // Meanwhile a later link, or an epoch, may have come.
  admitted = door.admit(*who);
  if (!admitted) co_return fail(admitted.error());
  co_return Welcome{.who = *who, .secrets = secrets_of(key, hello, answer)};
}

}  // namespace tutti::tcp
