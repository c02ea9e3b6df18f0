// Who may talk to whom: the rules every Seal applies once it knows what the other side claims and
// who vouches for it. TLS and the simulated handshake both end here, so that a refusal has the same
// cause and the same words in both worlds. Pure functions, callable from any thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "wire/seal.h"

namespace tutti::wire {

constexpr size_t kMaxNameBytes = 64;  // a file name, a line in a log and a certificate hold it

std::string_view role_name(Role role);
Result<Role> parse_role(std::string_view text);
// Letters, digits and . _ : @ + - ; `what` is "cluster" or "name" in the error.
Result<void> check_name(std::string_view what, std::string_view name);

// "tutti://lab/agent/node3", as certificates carry it.
std::string identity_uri(const Identity& identity);
Result<Identity> parse_identity_uri(std::string_view uri);
// "agent node3 of cluster lab", for people.
std::string who_text(const Identity& identity);  // "agent node7", "the head"
std::string identity_text(const Identity& identity);

// "2026-11-13 08:00:00 UTC"
std::string utc_text(int64_t unix_s);

// What a certificate says of its holder.
struct Claim {
  Identity identity;
  std::string authority;  // fingerprint of who vouches for it; empty when nobody we know does
  int64_t not_before_unix_s = 0;
  int64_t not_after_unix_s = 0;  // the first second at which it no longer holds
};

class Roles {
 public:
  constexpr Roles(std::initializer_list<Role> roles) {
    for (const Role role : roles) bits_ |= bit(role);
  }
  // Those that certificates are made for.
  static constexpr Roles all() {
    return {Role::user, Role::agent, Role::head, Role::keeper, Role::worker};
  }
  constexpr bool has(Role role) const { return (bits_ & bit(role)) != 0; }
  std::string text() const;  // "user, agent or head"

 private:
  static constexpr unsigned bit(Role role) { return 1U << static_cast<unsigned>(role); }
  unsigned bits_ = 0;
};

// Whom we are willing to have at the other end.
struct Expectation {
  Roles roles = Roles::all();
  std::string name;  // empty: whoever it is
};

enum class Side : unsigned char { connecting, accepting };

enum class Refusal : unsigned char {
  unknown_authority,
  other_cluster,
  expired,
  not_yet_valid,
  role,
  name,
};

struct Refused {
  Refusal why;
  std::string text;  // what is wrong and what to do
};

// Judges the other side's claim by ours. Nothing when it may go on.
std::optional<Refused> judge(const Claim& theirs, const Claim& ours, const Expectation& expected,
                             Side side, int64_t now_unix_s);

// The other side judged us and said no: what that means for our claim, and what to do.
Error refused_by_peer(Refusal why, const Claim& ours, int64_t now_unix_s);

}  // namespace tutti::wire
