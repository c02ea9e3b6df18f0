// What protects the frames of one connection, direction by direction: keys that only the two ends
// have, made of the epoch's key and both nonces of their handshake.
//
//   plain    | frame 64 | u64 XXH3 of it, seeded by key and count of frames |  payload as it is
//   sealed   | frame 64, AES-128-GCM | tag 16 |                    payload, AES-128-GCM
//
// The check of the payload is in the frame: XXH3-64, zeros without checksums, or the tag of GCM.
// The header is checked before it is believed, so nothing is put where a stranger wants it. An IV
// is a salt of the key's and a counter, twice for each frame: nothing is sealed twice by one.
#pragma once

#include <array>
#include <initializer_list>
#include <memory>

#include "base/hash.h"
#include "fabric/tcp_frame.h"
#include "fabric/tcp_transport.h"

namespace tutti::tcp {

using Key = JobKey;

Key hmac(const Key& key, std::initializer_list<Bytes> parts);
// Whether they are equal, in a time that does not tell where they differ.
bool same(Bytes a, Bytes b);
Key epoch_key(const Key& job, uint64_t epoch);

struct Protection {
  bool checksums = true;
  bool encrypt = false;
  bool operator==(const Protection&) const = default;
};

class Cipher;

class Sealer {
 public:
  Sealer(const Key& key, Protection protection);
  ~Sealer();

  bool encrypts() const { return cipher_ != nullptr; }
  size_t header_bytes() const;
  // Writes the header. With encryption the payload to send is then in `sealed`, as many bytes.
  void seal(Frame frame, Bytes payload, std::byte* header, std::byte* sealed);
  // By this key, payloads and headers.
  uint64_t bytes() const { return bytes_; }

 private:
  uint64_t seed_;
  Protection protection_;
  std::unique_ptr<Cipher> cipher_;
  uint64_t count_ = 0;
  uint64_t bytes_ = 0;
};

class Opener {
 public:
  Opener(const Key& key, Protection protection);
  ~Opener();

  size_t header_bytes() const;
  Result<Frame> open(const std::byte* header);
  // Of the payload of the frame opened last, all of it, piece after piece; decrypted in place.
  void absorb(MutableBytes piece);
  // When all of it was: whether it is what was sent.
  Result<void> finish();

 private:
  uint64_t seed_;
  Protection protection_;
  std::unique_ptr<Cipher> cipher_;
  uint64_t count_ = 0;
  Check expected_{};
  Hasher hasher_;
};

}  // namespace tutti::tcp
