// Peers that are who they say, and then send TLS messages that hold nothing for us.
#include <openssl/err.h>

#include "wire/openssl.h"
#include "wire/tls_test.h"
#include "wire/tls_verify.h"

namespace tutti::wire {
namespace {

// OpenSSL itself with one of our certificates, to say what our seal never would.
class RawPeer final : private TlsVerifier {
 public:
  RawPeer(const TlsContext& context, Side side) : ssl_(SSL_new(context.get())) {
    SSL_set_bio(ssl_.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    attach_verifier(*ssl_, *this);
    if (side == Side::accepting)
      SSL_set_accept_state(ssl_.get());
    else
      SSL_set_connect_state(ssl_.get());
  }
  // Takes what arrived and gives what it answers.
  std::string step(const std::string& arrived) {
    BIO_write(SSL_get_rbio(ssl_.get()), arrived.data(), static_cast<int>(arrived.size()));
    SSL_do_handshake(ssl_.get());
    return said();
  }
  std::string key_update(int kind) {
    REQUIRE(SSL_key_update(ssl_.get(), kind) == 1);
    REQUIRE(SSL_do_handshake(ssl_.get()) == 1);
    return said();
  }
  std::string ticket() {
    REQUIRE(SSL_new_session_ticket(ssl_.get()) == 1);
    REQUIRE(SSL_do_handshake(ssl_.get()) == 1);
    return said();
  }
  std::string data(std::string_view text) {
    REQUIRE(SSL_write(ssl_.get(), text.data(), static_cast<int>(text.size())) > 0);
    return said();
  }

 private:
  bool verify(x509_store_ctx_st&) override { return true; }
  std::string said() {
    ERR_clear_error();
    std::string bytes = bio_text(*SSL_get_wbio(ssl_.get()));
    static_cast<void>(BIO_reset(SSL_get_wbio(ssl_.get())));
    return bytes;
  }
  SslPointer ssl_;
};

// A seal of ours and a raw peer that have shaken hands; what the peer says is opened at once.
struct FloodBench : SealBench {
  explicit FloodBench(Side ours)
      : raw(ours == Side::accepting ? *agent_context() : *head_context(),
            ours == Side::accepting ? Side::connecting : Side::accepting) {
    server = tls(ours == Side::accepting ? head_context() : agent_context(), {.side = ours});
    root.spawn(shake(*this, *server, streams.second, server_result, 1s));
    executor.run_ready();
    for (int turns = 0; turns < 8; ++turns) {
      const std::string arrived = std::exchange(streams.first->incoming().bytes, {});
      root.spawn(write(*streams.first, raw.step(arrived)));
      executor.run_ready();
    }
    clock.advance(2s);
    REQUIRE(server_result.has_value());
    REQUIRE(server_result->has_value());
    REQUIRE(server->open(as_bytes(std::exchange(streams.first->outgoing().bytes, {})), plain));
  }
  static Task<void> write(FaultyStream& stream, std::string said) {
    if (said.empty()) co_return;
    const Bytes out = as_bytes(said);
    auto written = co_await stream.write(out);
    static_cast<void>(written);
  }
  Result<void> open(const std::string& travelled) {
    bytes += travelled.size();
    return server->open(as_bytes(travelled), plain);
  }

  RawPeer raw;
  std::string plain;
  size_t bytes = 0;
};

// How many bytes the peer gets through before it is cut off.
template <class Say>
size_t bytes_before_cut(FloodBench& bench, Say say) {
  for (int i = 0; i < 100'000; ++i) {
    auto opened = bench.open(say());
    if (opened) continue;
    CHECK(opened.error().code() == Code::corrupt);
    CHECK(says(opened.error(), "bytes of TLS with nothing in them"));
    return bench.bytes;
  }
  FAIL("it was never cut off");
  return 0;
}

TEST_CASE("a peer that changes its keys without end and says nothing is cut off") {
  FloodBench bench(Side::accepting);
  CHECK(bytes_before_cut(bench, [&] {
          return bench.raw.key_update(SSL_KEY_UPDATE_NOT_REQUESTED);
        }) < 3 * kTlsRecordBytes);
}

TEST_CASE("a server that sends tickets without end is cut off") {
  FloodBench bench(Side::connecting);
  CHECK(bytes_before_cut(bench, [&] { return bench.raw.ticket(); }) < 3 * kTlsRecordBytes);
}

TEST_CASE("keys that change between messages are fine, however often") {
  FloodBench bench(Side::accepting);
  for (int i = 0; i < 5000; ++i) {
    REQUIRE(bench.open(bench.raw.key_update(SSL_KEY_UPDATE_NOT_REQUESTED)));
    REQUIRE(bench.open(bench.raw.data("x")));
  }
  CHECK(bench.plain.size() == 5000);
}

TEST_CASE("a peer that asks for new keys without end and does not let us speak is cut off") {
  FloodBench bench(Side::accepting);
  Result<void> opened;
  size_t asked = 0;
  while (opened && asked < 5000) {
    ++asked;
    opened = bench.open(bench.raw.key_update(SSL_KEY_UPDATE_REQUESTED));
    if (opened) opened = bench.open(bench.raw.data("x"));
  }
  REQUIRE(!opened);
  CHECK(says(opened.error(), "asks for new TLS keys without end"));
  std::string owed;
  bench.server->close(owed);
  CHECK(owed.size() < 17 << 10);
}

}  // namespace
}  // namespace tutti::wire
