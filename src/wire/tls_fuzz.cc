// Any bytes, at each place where a stranger's bytes arrive. The first byte chooses the place: a
// server's handshake, a client's, an established seal, the simulated claim, a certificate file.
// Nothing may crash or hang, and nobody may get in.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "wire/authority.h"
#include "wire/faulty_stream.h"
#include "wire/sim_seal.h"
#include "wire/tls.h"
#include "world/manual_clock.h"
#include "world/scope.h"

namespace tutti::wire {
namespace {

std::shared_ptr<const TlsContext> context() {
  static const auto made =
      TlsContext::make(Authority::create("lab", 0).value().issue({Role::head, "head"}, 0).value());
  return made.value();
}

Task<void> shake(Seal& seal, Stream& stream, std::optional<Result<Identity>>& out) {
  auto identity = co_await seal.handshake(stream);
  out.emplace(std::move(identity));
}

// Bytes that nobody with a key sent must not end in a handshake that succeeded.
void fuzz_handshake(Side side, std::string_view bytes) {
  Executor executor;
  ManualClock clock;
  auto [ours, theirs] = FaultyStream::make_pair();
  theirs->outgoing().bytes = bytes;
  theirs->outgoing().ended = true;
  const auto seal = make_tls_seal(context(), clock, {.side = side});
  std::optional<Result<Identity>> result;
  Scope scope{Scope::Root{}};
  scope.spawn(shake(*seal, *ours, result));
  executor.run_ready();
  TUTTI_ASSERT(result.has_value(), "a handshake ends when the stream does");
  TUTTI_ASSERT(!result->has_value(), "nobody gets in without a certificate");
}

// A seal whose handshake is over, with a true peer; its bytes then come from anybody.
void fuzz_open(std::string_view bytes) {
  Executor executor;
  ManualClock clock;
  auto [ours, theirs] = FaultyStream::make_pair();
  const auto seal = make_tls_seal(context(), clock, {.side = Side::accepting});
  const auto peer = make_tls_seal(context(), clock, {.side = Side::connecting});
  std::optional<Result<Identity>> result;
  std::optional<Result<Identity>> peer_result;
  Scope scope{Scope::Root{}};
  scope.spawn(shake(*seal, *ours, result));
  scope.spawn(shake(*peer, *theirs, peer_result));
  executor.run_ready();
  TUTTI_ASSERT(result && *result, "a true peer gets in");
  std::string plain;
  auto opened = seal->open(as_bytes(bytes), plain);
  static_cast<void>(opened);
  TUTTI_ASSERT(plain.empty(), "nothing is opened that the peer did not seal");
}

void fuzz_claim(std::string_view text) {
  const auto claim = parse_claim(text);
  if (!claim) return;
  const auto again = parse_claim(format_claim(*claim));
  TUTTI_ASSERT(again && again->identity == claim->identity, "a claim reads back from its text");
  judge(*claim, context()->claim(), {}, Side::accepting, 0);
}

}  // namespace
}  // namespace tutti::wire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti::wire;
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 5) {
    case 0: fuzz_handshake(Side::accepting, rest); break;
    case 1: fuzz_handshake(Side::connecting, rest); break;
    case 2: fuzz_open(rest); break;
    case 3: fuzz_claim(rest); break;
    default: static_cast<void>(Certificate::from_pem(rest)); break;
  }
  return 0;
}
