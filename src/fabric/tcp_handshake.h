// How the two ends of a connection prove to each other that they know the job's key, and which rank
// of which epoch they are. Three messages of fixed size:
//
//   hello   who connects 64, HMAC of it 32
//   answer  the other's nonce 16, HMAC of hello and it 32
//   proof   HMAC of hello and answer 32
//
// with the key of the epoch. Nothing is answered before the hello is verified, and a hello that
// somebody recorded gets no further than the answer, since the proof needs the key. Frames follow.
#pragma once

#include <memory>

#include "fabric/tcp_seal.h"
#include "world/network.h"
#include "world/random.h"

namespace tutti::tcp {

// What a connection says of itself.
struct Introduction {
  uint64_t epoch = 0;
  uint32_t from = 0;
  uint32_t to = 0;
  uint64_t session = 0;      // of the process, drawn with the epoch: a second one is an impostor
  uint64_t incarnation = 0;  // of the link: a later one takes the place of those before
  uint8_t streams = 1;       // connections of the link
  uint8_t stream = 0;        // which of them
  Protection protection;
  bool carried = false;  // a carrier takes over once it has proved itself (tcp_carry.h)
  bool operator==(const Introduction&) const = default;
};

constexpr size_t kHelloBytes = 96;
constexpr size_t kAnswerBytes = 48;
constexpr size_t kProofBytes = 32;
using Hello = std::array<std::byte, kHelloBytes>;
using Nonce = std::array<std::byte, 16>;

Hello make_hello(const Introduction& who, const Nonce& nonce, const Key& job);
// Code::denied when it was not made with this key, Code::corrupt when it is no hello at all.
Result<Introduction> check_hello(const Hello& hello, const Key& job);

Task<Result<void>> read_all(Stream& stream, MutableBytes into);

// Keys for what follows.
struct Secrets {
  Key to_called;
  Key to_caller;
};

// The connecting side. Code::unavailable when the other side hung up, as one that does not like us
// does without a word.
Task<Result<Secrets>> introduce(Stream& stream, Random& random, Key job, Introduction who);

// Who may be let in, apart from knowing the key.
class Doorkeeper {
 public:
  virtual Result<void> admit(const Introduction& who) = 0;

 protected:
  ~Doorkeeper() = default;
};

struct Welcome {
  Introduction who;
  Secrets secrets;
};
// The side that was connected to.
Task<Result<Welcome>> welcome(Stream& stream, Random& random, Key job, Doorkeeper& door);

}  // namespace tutti::tcp
