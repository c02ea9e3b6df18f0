#include "fabric/tcp_carry.h"

#include "fabric/tcp_handshake.h"

namespace tutti::tcp {

namespace {

constexpr std::string_view kMagic = "TUTTICAR";
constexpr size_t kHeadBytes = kMagic.size() + sizeof(uint32_t);
// UCX's addresses have some hundred bytes for each way to reach a process.
constexpr size_t kMaxWords = 64_KiB;

Key words_code(const Key& key, const Carrier& carrier, Bytes said) {
  return hmac(key, {as_bytes("carrier"), as_bytes(carrier.name()), said});
}

std::string seal_words(const Carrier& carrier, Bytes words, const Key& key) {
  std::string said(kMagic);
  said.resize(kHeadBytes);
  store_le(as_mutable_bytes(said).data() + kMagic.size(), static_cast<uint32_t>(words.size()));
  said += as_text(words);
  const Key code = words_code(key, carrier, as_bytes(said));
  said += as_text(code);
  return said;
}

}  // namespace

Task<Result<std::unique_ptr<Stream>>> carried(Carrier& carrier, std::unique_ptr<Stream> connection,
                                              Key out, Key in) {
  auto end = carrier.make_end();
  if (!end) co_return fail(end.error());
  const std::string said = seal_words(carrier, (*end)->words(), out);
  auto written = co_await connection->write(as_bytes(said));
  if (!written) co_return fail(written.error());
  std::string heard(kHeadBytes, '\0');
  const MutableBytes head = as_mutable_bytes(heard);
  auto got = co_await read_all(*connection, head);
  if (!got) co_return fail(got.error());
  const auto length = load_le<uint32_t>(head.data() + kMagic.size());
  if (!heard.starts_with(kMagic) || length == 0 || length > kMaxWords)
    co_return fail(Code::corrupt, "what came are no words of a carrier");
  heard.resize(kHeadBytes + length + sizeof(Key));
  const MutableBytes rest = as_mutable_bytes(heard).subspan(kHeadBytes);
  got = co_await read_all(*connection, rest);
  if (!got) co_return fail(got.error());
  const Bytes all = as_bytes(heard);
  const Key code = words_code(in, carrier, all.first(kHeadBytes + length));
  if (!same(code, all.subspan(kHeadBytes + length)))
    co_return fail(Code::denied, "somebody changed the words of the other side's carrier");
  auto attached = (*end)->attach(all.subspan(kHeadBytes, length), std::move(connection));
  if (!attached) co_return fail(attached.error());
  co_return std::unique_ptr<Stream>(std::move(*end));
}

}  // namespace tutti::tcp
