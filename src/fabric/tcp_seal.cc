#include "fabric/tcp_seal.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <string>

#include "wire/openssl.h"

namespace tutti::tcp {

namespace {

constexpr size_t kPlainHeader = kFrameBytes + 8;
constexpr size_t kSealedHeader = kFrameBytes + 16;
// Of a key: 16 bytes for AES, 4 of salt, 8 for the seed of checksums.
constexpr size_t kSaltAt = 16;
constexpr size_t kSeedAt = 20;

// Both are given the count of frames twice over: once for the header, once for the payload.
uint64_t header_number(uint64_t count) { return 2 * count; }
uint64_t payload_number(uint64_t count) { return 2 * count + 1; }

unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

uint64_t header_sum(const std::byte* header, uint64_t seed, uint64_t count) {
  return hash64({header, kFrameBytes}, seed + count);
}

Check sum_as_check(uint64_t sum) {
  Check check{};
  store_le(check.data(), sum);
  return check;
}

}  // namespace

Key hmac(const Key& key, std::initializer_list<Bytes> parts) {
  std::string all;
  for (const Bytes part : parts) all += as_text(part);
  Key out;
  unsigned int size = 0;
  const auto* made = HMAC(EVP_sha256(), key.data(), key.size(), raw(as_bytes(all).data()),
                          all.size(), raw(out.data()), &size);
  TUTTI_ASSERT(made != nullptr && size == out.size(), "OpenSSL has SHA-256");
  return out;
}

bool same(Bytes a, Bytes b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Key epoch_key(const Key& job, uint64_t epoch) {
  std::array<std::byte, 8> number;
  store_le(number.data(), epoch);
  return hmac(job, {as_bytes("tutti fabric epoch"), number});
}

// AES-128-GCM in one direction; pieces may be of any size.
class Cipher {
 public:
  Cipher(const Key& key, bool encrypt) : context_(EVP_CIPHER_CTX_new()) {
    std::copy_n(key.begin() + kSaltAt, 4, iv_.begin());
    const int ready = EVP_CipherInit_ex(context_.get(), EVP_aes_128_gcm(), nullptr, raw(key.data()),
                                        nullptr, encrypt ? 1 : 0);
    TUTTI_ASSERT(ready == 1, "OpenSSL has AES-128-GCM");
  }

  void begin(uint64_t number) {
    store_le(iv_.data() + 4, number);
    const int ready =
        EVP_CipherInit_ex(context_.get(), nullptr, nullptr, nullptr, raw(iv_.data()), -1);
    TUTTI_ASSERT(ready == 1, "an IV of 12 bytes");
  }
  void update(Bytes from, std::byte* to) {
    int size = 0;
    const int done = EVP_CipherUpdate(context_.get(), raw(to), &size, raw(from.data()),
                                      static_cast<int>(from.size()));
    TUTTI_ASSERT(done == 1 && static_cast<size_t>(size) == from.size(), "GCM keeps sizes");
  }
  void tag(std::byte* to) {
    int size = 0;
    std::array<unsigned char, 16> nothing;
    const bool done =
        EVP_CipherFinal_ex(context_.get(), nothing.data(), &size) == 1 &&
        EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_GCM_GET_TAG, sizeof(Check), to) == 1;
    TUTTI_ASSERT(done, "GCM gives a tag");
  }
  bool matches(const std::byte* tag) {
    int size = 0;
    Check wanted;
    std::copy_n(tag, wanted.size(), wanted.begin());
    std::array<unsigned char, 16> nothing;
    if (EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_GCM_SET_TAG, wanted.size(), wanted.data()) !=
        1)
      return false;
    return EVP_CipherFinal_ex(context_.get(), nothing.data(), &size) == 1;
  }

 private:
  wire::OpensslPointer<EVP_CIPHER_CTX, EVP_CIPHER_CTX_free> context_;
  std::array<std::byte, 12> iv_{};
};

Sealer::Sealer(const Key& key, Protection protection)
    : seed_(load_le<uint64_t>(key.data() + kSeedAt)), protection_(protection) {
  if (protection.encrypt) cipher_ = std::make_unique<Cipher>(key, true);
}
Sealer::~Sealer() = default;

size_t Sealer::header_bytes() const { return cipher_ ? kSealedHeader : kPlainHeader; }

void Sealer::seal(Frame frame, Bytes payload, std::byte* header, std::byte* sealed) {
  frame.length = static_cast<uint32_t>(payload.size());
  const uint64_t count = count_++;
  bytes_ += header_bytes() + payload.size();
  if (!cipher_) {
    frame.check = {};
    if (protection_.checksums && !payload.empty()) frame.check = sum_as_check(hash64(payload));
    store_frame(frame, header);
    store_le(header + kFrameBytes, header_sum(header, seed_, count));
    return;
  }
  if (!payload.empty()) {
    cipher_->begin(payload_number(count));
    cipher_->update(payload, sealed);
    cipher_->tag(frame.check.data());
  }
  std::array<std::byte, kFrameBytes> plain;
  store_frame(frame, plain.data());
  cipher_->begin(header_number(count));
  cipher_->update(plain, header);
  cipher_->tag(header + kFrameBytes);
}

Opener::Opener(const Key& key, Protection protection)
    : seed_(load_le<uint64_t>(key.data() + kSeedAt)), protection_(protection) {
  if (protection.encrypt) cipher_ = std::make_unique<Cipher>(key, false);
}
Opener::~Opener() = default;

size_t Opener::header_bytes() const { return cipher_ ? kSealedHeader : kPlainHeader; }

Result<Frame> Opener::open(const std::byte* header) {
  const uint64_t count = count_++;
  std::array<std::byte, kFrameBytes> plain;
  if (cipher_) {
    cipher_->begin(header_number(count));
    cipher_->update({header, kFrameBytes}, plain.data());
    if (!cipher_->matches(header + kFrameBytes))
      return fail(Code::corrupt, "frame {} is not what was sent", count);
  } else {
    if (load_le<uint64_t>(header + kFrameBytes) != header_sum(header, seed_, count))
      return fail(Code::corrupt, "frame {} has a wrong checksum", count);
    std::copy_n(header, kFrameBytes, plain.begin());
  }
  TRY(const Frame frame, load_frame(plain.data()));
  expected_ = frame.check;
  if (cipher_) {
    if (frame.length != 0) cipher_->begin(payload_number(count));
  } else if (protection_.checksums) {
    hasher_.reset();
  }
  if (frame.length == 0 && frame.check != Check{})
    return fail(Code::corrupt, "an empty {} frame with a checksum", frame_name(frame.type));
  return frame;
}

void Opener::absorb(MutableBytes piece) {
  if (cipher_) {
    cipher_->update(piece, piece.data());
  } else if (protection_.checksums) {
    hasher_.update(piece);
  }
}

Result<void> Opener::finish() {
  const bool good = cipher_                  ? cipher_->matches(expected_.data())
                    : !protection_.checksums ? expected_ == Check{}
                                             : expected_ == sum_as_check(hasher_.digest64());
  if (!good) return fail(Code::corrupt, "the payload of frame {} is not what was sent", count_ - 1);
  return {};
}

}  // namespace tutti::tcp
