// The Seal of TCP connections in simulation. There is no cryptography: each side sends its claim in
// plain and takes the other's word for it. What follows is real: the same rules judge the claim
// (rules.h), in the same number of flights as TLS 1.3, and both sides hear the verdict.
//
//   client: claim        server: verdict on the client, claim        client: verdict on the server
//
// A message is a 32-bit length, then text. Never use it outside of simulation and tests.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "wire/rules.h"
#include "wire/seal.h"
#include "world/clock.h"

namespace tutti::wire {

constexpr size_t kMaxSimMessageBytes = 2 << 10;  // a claim takes about 100 bytes, a refusal 400

struct SimSealOptions {
  Side side = Side::connecting;
  Claim ours;
  Expectation expected;
  // Called once per handshake, to charge the host for the arithmetic that TLS would do.
  std::function<void()> charge;
};

// The clock must outlive the seal.
std::unique_ptr<Seal> make_sim_seal(const Clock& clock, SimSealOptions options);

// One line each: "claim 1", identity, authority, not before, not after.
std::string format_claim(const Claim& claim);
Result<Claim> parse_claim(std::string_view text);

}  // namespace tutti::wire
