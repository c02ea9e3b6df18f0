#include "wire/tls.h"

#include <openssl/err.h>

#include <algorithm>
#include <array>
#include <optional>

#include "wire/openssl.h"
#include "wire/tls_errors.h"
#include "wire/tls_verify.h"

namespace tutti::wire {

namespace {

// What OpenSSL wants to send while we only listen (alerts, key updates) waits for the next seal().
// A peer that makes us owe more than this is not honest.
constexpr size_t kMaxOwedBytes = 16 << 10;
// A sealed record is at most this much longer than what it holds.
constexpr size_t kRecordOverhead = 22;
// Bytes that may come without anything in them for us. A record that is not complete is less; more
// is a peer that sends key updates or tickets without end.
constexpr size_t kMaxSilentBytes = 2 * (kTlsRecordBytes + 256);
// Copying a part of this size costs less than a record of its own.
constexpr size_t kGatherBelowBytes = 4 << 10;

class TlsSeal final : public Seal, public TlsVerifier {
 public:
  TlsSeal(std::shared_ptr<const TlsContext> context, const Clock& clock, TlsOptions options);

  Task<Result<Identity>> handshake(Stream& stream) override;
  Result<void> seal(std::span<const Bytes> plain, std::string& out) override;
  Result<void> open(Bytes travelled, std::string& out) override;
  void close(std::string& out) override;
  bool transforms() const override { return true; }

  // For the BIO: OpenSSL takes what travelled and gives what shall travel.
  size_t take(MutableBytes into);
  void give(Bytes bytes) { outgoing_->append(as_text(bytes)); }

 private:
  bool verify(x509_store_ctx_st& chain) override;

  enum class Step : unsigned char { done, more, failed };
  Step step_handshake(Bytes received);
  Task<void> tell_refusal(Stream& stream);
  Result<void> write_records(Bytes plain);
  Result<void> write_parts(std::span<const Bytes> parts);
  Result<void> read_records(std::string& out);
  Error failure(int result);
  static Error goodbye() { return {Code::unavailable, "the other side closed the connection"}; }
  int64_t now_unix_s() const { return clock_.unix_ns() / 1'000'000'000; }

  std::shared_ptr<const TlsContext> context_;
  const Clock& clock_;
  TlsOptions options_;
  SslPointer ssl_;
  Bytes incoming_;    // what the BIO reads from, during one call
  std::string owed_;  // what the BIO writes to when nobody gave another place
  std::string* outgoing_ = &owed_;
  std::string early_;  // came with the end of the handshake, for the first open()
  size_t handshake_bytes_ = 0;
  size_t silent_bytes_ = 0;  // since the last plain byte: control messages, a part of a record
  uint64_t records_ = 0;     // sealed under the present key
  Identity peer_;
  std::optional<Error> refused_;  // our verdict on their certificate
  std::optional<Error> failed_;   // nothing goes on after this
  bool shaken_ = false;
  bool said_goodbye_ = false;
  bool heard_goodbye_ = false;
};

TlsSeal& seal_of(BIO* bio) { return *static_cast<TlsSeal*>(BIO_get_data(bio)); }

int bio_read(BIO* bio, char* into, size_t size, size_t* got) {
  BIO_clear_retry_flags(bio);
  *got = seal_of(bio).take({reinterpret_cast<std::byte*>(into), size});
  if (*got != 0) return 1;
  BIO_set_retry_read(bio);
  return 0;
}

int bio_write(BIO* bio, const char* from, size_t size, size_t* taken) {
  seal_of(bio).give({reinterpret_cast<const std::byte*>(from), size});
  *taken = size;
  return 1;
}

long bio_control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

int bio_create(BIO* bio) {
  BIO_set_init(bio, 1);
  return 1;
}

// A BIO over the seal's own buffers: no copy between a socket's bytes and OpenSSL's record.
const BIO_METHOD* seal_bio() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "tutti seal");
    const bool ready = made != nullptr && BIO_meth_set_read_ex(made, bio_read) == 1 &&
                       BIO_meth_set_write_ex(made, bio_write) == 1 &&
                       BIO_meth_set_ctrl(made, bio_control) == 1 &&
                       BIO_meth_set_create(made, bio_create) == 1;
    TUTTI_ASSERT(ready, "memory for a BIO method");
    return made;
  }();
  return method;
}

TlsSeal::TlsSeal(std::shared_ptr<const TlsContext> context, const Clock& clock, TlsOptions options)
    : context_(std::move(context)),
      clock_(clock),
      options_(std::move(options)),
      ssl_(SSL_new(context_->get())) {
  TUTTI_ASSERT(ssl_ != nullptr, "memory for a TLS connection");
  BIO* bio = BIO_new(seal_bio());
  TUTTI_ASSERT(bio != nullptr, "memory for a BIO");
  BIO_set_data(bio, this);
  SSL_set_bio(ssl_.get(), bio, bio);
  attach_verifier(*ssl_, *this);
  // Whoever shows a certificate replaces this.
  peer_.role = Role::guest;
  if (options_.side == Side::accepting && options_.expected.roles.has(Role::guest))
    allow_guests(*ssl_);
  if (options_.side == Side::accepting)
    SSL_set_accept_state(ssl_.get());
  else
    SSL_set_connect_state(ssl_.get());
}

size_t TlsSeal::take(MutableBytes into) {
  const size_t size = std::min(into.size(), incoming_.size());
  std::copy_n(incoming_.begin(), size, into.begin());
  incoming_ = incoming_.subspan(size);
  return size;
}

bool TlsSeal::verify(x509_store_ctx_st& chain) {
  const std::string& key = context_->authority_key();
  auto verdict = key.empty() ? verify_peer(chain, context_->claim(), options_.expected,
                                           options_.side, now_unix_s())
                             : verify_head(chain, key, now_unix_s());
  if (verdict)
    peer_ = *verdict;
  else
    refused_ = verdict.error();
  return verdict.has_value();
}

Error TlsSeal::failure(int result) {
  const int kind = SSL_get_error(ssl_.get(), result);
  const unsigned long cause = ERR_peek_error();
  ERR_clear_error();
  if (refused_) return *refused_;
  // A client that is not done has not shown its certificate.
  const bool shown = options_.side == Side::accepting || shaken_;
  return tls_error(kind, cause, context_->claim(), {options_.side, shown, now_unix_s()});
}

TlsSeal::Step TlsSeal::step_handshake(Bytes received) {
  incoming_ = received;
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_.get());
  if (result == 1) {
    shaken_ = true;
    early_.assign(as_text(incoming_));
    return Step::done;
  }
  if (SSL_get_error(ssl_.get(), result) == SSL_ERROR_WANT_READ) return Step::more;
  failed_ = failure(result);
  return Step::failed;
}

// Sends the alert OpenSSL has prepared and waits for the other side to close: closing first, with
// its bytes still unread here, would reset the connection and take the alert with it.
Task<void> TlsSeal::tell_refusal(Stream& stream) {
  if (owed_.empty()) co_return;
  const Bytes alert = as_bytes(owed_);
  auto written = co_await stream.write(alert);
  if (!written || !stream.shutdown_write()) co_return;
  std::array<std::byte, 1024> ignored;
  const MutableBytes into = ignored;
  for (size_t total = 0; total < kMaxHandshakeBytes;) {
    auto got = co_await stream.read(into);
    if (!got || *got == 0) break;
    total += *got;
  }
}

Task<Result<Identity>> TlsSeal::handshake(Stream& stream) {
  std::array<std::byte, 4096> buffer;
  Bytes received;
  for (;;) {
    const Step step = step_handshake(received);
    if (step == Step::failed) {
      co_await tell_refusal(stream);
      co_return fail(*failed_);
    }
    if (!owed_.empty()) {
      const Bytes flight = as_bytes(owed_);
      auto written = co_await stream.write(flight);
      owed_.clear();
      if (!written) co_return fail(written.error().context("TLS handshake"));
    }
    if (step == Step::done) co_return peer_;

    const MutableBytes into = buffer;
    auto got = co_await stream.read(into);
    if (!got) co_return fail(got.error().context("TLS handshake"));
    received = Bytes(buffer).first(*got);
    if (auto wrong = check_received(received, handshake_bytes_, options_.side)) {
      failed_ = wrong;
      co_return fail(*wrong);
    }
    handshake_bytes_ += *got;
  }
}

Result<void> TlsSeal::write_records(Bytes plain) {
  while (!plain.empty()) {
    const size_t size = std::min(plain.size(), kTlsRecordBytes);
    if (++records_ > options_.records_per_key) {
      records_ = 1;
      SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED);
    }
    size_t written = 0;
    const int result = SSL_write_ex(ssl_.get(), plain.data(), size, &written);
    if (result != 1) [[unlikely]] {
      failed_ = failure(result);
      return fail(*failed_);
    }
    plain = plain.subspan(written);
  }
  return {};
}

// Small parts share records; large ones are sealed where they lie.
Result<void> TlsSeal::write_parts(std::span<const Bytes> parts) {
  std::array<std::byte, kTlsRecordBytes> gathered;
  size_t filled = 0;
  for (const Bytes part : parts) {
    const bool small = part.size() < kGatherBelowBytes;
    if (!small || filled + part.size() > gathered.size())
      TRY_DO(write_records(Bytes(gathered).first(std::exchange(filled, 0))));
    if (!small) {
      TRY_DO(write_records(part));
      continue;
    }
    std::copy_n(part.begin(), part.size(), gathered.begin() + static_cast<ptrdiff_t>(filled));
    filled += part.size();
  }
  return write_records(Bytes(gathered).first(filled));
}

Result<void> TlsSeal::seal(std::span<const Bytes> plain, std::string& out) {
  if (failed_) return fail(*failed_);
  if (said_goodbye_) return fail(Code::unavailable, "we closed this connection");
  size_t total = owed_.size();
  for (const Bytes part : plain) total += part.size();
  const size_t records = total / kGatherBelowBytes + 1;
  out.reserve(out.size() + total + records * kRecordOverhead);
  out += owed_;
  owed_.clear();
  outgoing_ = &out;
  auto written = write_parts(plain);
  outgoing_ = &owed_;
  return written;
}

Result<void> TlsSeal::read_records(std::string& out) {
  ERR_clear_error();
  while (!incoming_.empty() || SSL_pending(ssl_.get()) > 0) {
    const size_t before = out.size();
    const size_t fed = incoming_.size();
    // A record is longer than what it holds, so this is room for all there is.
    const size_t room = fed + silent_bytes_;
    int result = 0;
    out.resize_and_overwrite(before + room, [&](char* data, size_t) {
      size_t got = 0;
      result = SSL_read_ex(ssl_.get(), data + before, room, &got);
      return before + got;
    });
    if (result == 1) {
      silent_bytes_ = 0;
      continue;
    }
    silent_bytes_ += fed - incoming_.size();
    const int kind = SSL_get_error(ssl_.get(), result);
    if (kind == SSL_ERROR_WANT_READ) break;
    heard_goodbye_ = kind == SSL_ERROR_ZERO_RETURN;
    if (heard_goodbye_) return fail(goodbye());
    failed_ = failure(result);
    return fail(*failed_);
  }
  if (silent_bytes_ > kMaxSilentBytes)
    failed_ = Error(
        Code::corrupt,
        fmt::format("the other side sent {} bytes of TLS with nothing in them", silent_bytes_));
  if (owed_.size() > kMaxOwedBytes)
    failed_ = Error(Code::corrupt, "the other side asks for new TLS keys without end");
  if (failed_) return fail(*failed_);
  return {};
}

Result<void> TlsSeal::open(Bytes travelled, std::string& out) {
  if (failed_) return fail(*failed_);
  if (heard_goodbye_) return fail(goodbye());
  if (!early_.empty()) [[unlikely]] {
    const std::string early = std::exchange(early_, {});
    incoming_ = as_bytes(early);
    TRY_DO(read_records(out));
  }
  incoming_ = travelled;
  return read_records(out);
}

void TlsSeal::close(std::string& out) {
  if (!failed_ && !said_goodbye_ && shaken_) {
    SSL_shutdown(ssl_.get());
    said_goodbye_ = true;
  }
  ERR_clear_error();
  out += owed_;
  owed_.clear();
}

}  // namespace

std::unique_ptr<Seal> make_tls_seal(std::shared_ptr<const TlsContext> context, const Clock& clock,
                                    TlsOptions options) {
  return std::make_unique<TlsSeal>(std::move(context), clock, std::move(options));
}

}  // namespace tutti::wire
