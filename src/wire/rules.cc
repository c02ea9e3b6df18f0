#include "wire/rules.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "base/suggest.h"

namespace tutti::wire {

namespace {

constexpr std::array<std::string_view, 6> kRoleNames = {"user",   "agent",  "head",
                                                        "keeper", "worker", "guest"};
constexpr std::string_view kScheme = "tutti://";

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("._:@+-").find(c) != std::string_view::npos;
}

// "3 days", "5 hours", "1 minute", "12 seconds"
std::string age_text(int64_t seconds) {
  struct Unit {
    int64_t seconds;
    std::string_view name;
  };
  constexpr std::array<Unit, 4> kUnits = {
      {{86400, "day"}, {3600, "hour"}, {60, "minute"}, {1, "second"}}};
  for (const Unit& unit : kUnits) {
    if (seconds < unit.seconds && unit.seconds != 1) continue;
    const int64_t count = seconds / unit.seconds;
    return fmt::format("{} {}{}", count, unit.name, count == 1 ? "" : "s");
  }
  return "0 seconds";
}

std::string renewal(const Identity& identity) {
  return fmt::format("get a new {}-{}.pem from the host that holds the cluster's authority",
                     role_name(identity.role), identity.name);
}

Refused expired(const Claim& claim, std::string_view whose, int64_t now_unix_s) {
  return {Refusal::expired, fmt::format("{} expired {} ago on {}; {}", whose,
                                        age_text(now_unix_s - claim.not_after_unix_s),
                                        utc_text(claim.not_after_unix_s), renewal(claim.identity))};
}

Refused not_yet_valid(const Claim& claim, std::string_view whose, int64_t now_unix_s) {
  return {Refusal::not_yet_valid,
          fmt::format("{} begins only in {} on {}, and here it is {}; one of the two clocks is "
                      "wrong: compare `date -u` on both hosts",
                      whose, age_text(claim.not_before_unix_s - now_unix_s),
                      utc_text(claim.not_before_unix_s), utc_text(now_unix_s))};
}

Refused not_of_our_authority(const Claim& theirs, const Claim& ours) {
  const std::string who = identity_text(theirs.identity);
  if (theirs.identity.cluster != ours.identity.cluster) {
    return {
        Refusal::other_cluster,
        fmt::format("the other side is {}, we are {} of cluster {}; check the address, or use a "
                    "certificate of that cluster",
                    who, role_name(ours.identity.role), ours.identity.cluster)};
  }
  return {Refusal::unknown_authority,
          fmt::format("the other side says it is {}, but not our authority signed that: its "
                      "certificate is self-made, or one of us still has a certificate of an "
                      "authority that was made anew; {}",
                      who, renewal(theirs.identity))};
}

Refused wrong_role(const Claim& theirs, const Claim& ours, const Expectation& expected, Side side) {
  const std::string_view their_role = role_name(theirs.identity.role);
  if (side == Side::accepting) {
    return {Refusal::role,
            fmt::format("{} {} may not call the {}; it serves {}", their_role, theirs.identity.name,
                        role_name(ours.identity.role), expected.roles.text())};
  }
  return {Refusal::role, fmt::format("the other side is {}, not {}; check the address",
                                     who_text(theirs.identity), expected.roles.text())};
}

}  // namespace

std::string_view role_name(Role role) { return kRoleNames[static_cast<size_t>(role)]; }

Result<Role> parse_role(std::string_view text) {
  const auto* found = std::find(kRoleNames.begin(), kRoleNames.end(), text);
  if (found != kRoleNames.end()) return static_cast<Role>(found - kRoleNames.begin());
  const auto near = suggest(text, kRoleNames);
  return fail(Code::invalid, "'{}' is not a role{}; roles are {}", text,
              near ? fmt::format(" (did you mean {}?)", *near) : "", Roles::all().text());
}

Result<void> check_name(std::string_view what, std::string_view name) {
  if (name.empty()) return fail(Code::invalid, "the {} is empty", what);
  if (name.size() > kMaxNameBytes)
    return fail(Code::invalid, "the {} has {} bytes, more than the {} allowed", what, name.size(),
                kMaxNameBytes);
  if (!std::all_of(name.begin(), name.end(), is_name_character))
    return fail(Code::invalid, "the {} may have letters, digits and . _ : @ + - only", what);
  return {};
}

std::string identity_uri(const Identity& identity) {
  return fmt::format("{}{}/{}/{}", kScheme, identity.cluster, role_name(identity.role),
                     identity.name);
}

Result<Identity> parse_identity_uri(std::string_view uri) {
  std::string_view rest = uri;
  if (!rest.starts_with(kScheme)) return fail(Code::invalid, "an identity begins with {}", kScheme);
  rest.remove_prefix(kScheme.size());
  const size_t first = rest.find('/');
  const size_t second = first == std::string_view::npos ? first : rest.find('/', first + 1);
  if (second == std::string_view::npos)
    return fail(Code::invalid, "an identity is {}cluster/role/name", kScheme);
  const std::string_view cluster = rest.substr(0, first);
  const std::string_view name = rest.substr(second + 1);
  TRY_DO(check_name("cluster", cluster));
  TRY(const Role role, parse_role(rest.substr(first + 1, second - first - 1)));
  TRY_DO(check_name("name", name));
  return Identity{std::string(cluster), role, std::string(name)};
}

std::string who_text(const Identity& identity) {
  const std::string_view role = role_name(identity.role);
  return identity.name == role ? fmt::format("the {}", role)
                               : fmt::format("{} {}", role, identity.name);
}

std::string identity_text(const Identity& identity) {
  const std::string who = who_text(identity);
  return identity.cluster.empty() ? who : fmt::format("{} of cluster {}", who, identity.cluster);
}

std::string utc_text(int64_t unix_s) {
  using namespace std::chrono;
  const sys_seconds at{seconds(unix_s)};
  const sys_days day = floor<days>(at);
  const year_month_day date(day);
  const hh_mm_ss time(at - day);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02} UTC", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     time.hours().count(), time.minutes().count(), time.seconds().count());
}

std::string Roles::text() const {
  std::string text;
  size_t left = static_cast<size_t>(std::popcount(bits_));
  for (size_t i = 0; i < kRoleNames.size(); ++i) {
    if (!has(static_cast<Role>(i))) continue;
    --left;
    text += kRoleNames[i];
    text += left > 1 ? ", " : left == 1 ? " or " : "";
  }
  return text.empty() ? "nobody" : text;
}

std::optional<Refused> judge(const Claim& theirs, const Claim& ours, const Expectation& expected,
                             Side side, int64_t now_unix_s) {
  const Identity& who = theirs.identity;
  if (theirs.authority.empty() || theirs.authority != ours.authority ||
      who.cluster != ours.identity.cluster)
    return not_of_our_authority(theirs, ours);
  const std::string whose = fmt::format("the certificate of {} {}", role_name(who.role), who.name);
  if (now_unix_s >= theirs.not_after_unix_s) return expired(theirs, whose, now_unix_s);
  if (now_unix_s < theirs.not_before_unix_s) return not_yet_valid(theirs, whose, now_unix_s);
  if (!expected.roles.has(who.role)) return wrong_role(theirs, ours, expected, side);
  if (!expected.name.empty() && who.name != expected.name)
    return Refused{Refusal::name,
                   fmt::format("expected {} {} at the other end, but its certificate is of {} {}; "
                               "check the address",
                               role_name(who.role), expected.name, role_name(who.role), who.name)};
  return {};
}

Error refused_by_peer(Refusal why, const Claim& ours, int64_t now_unix_s) {
  const std::string who = identity_text(ours.identity);
  const std::string whose = fmt::format("our certificate ({})", who);
  std::string reason;
  switch (why) {
    case Refusal::unknown_authority:
    case Refusal::other_cluster:
      reason = fmt::format(
          "its authority did not sign {}; check the address, or get a certificate "
          "of that cluster",
          whose);
      break;
    case Refusal::expired:
      reason = now_unix_s >= ours.not_after_unix_s
                   ? expired(ours, whose, now_unix_s).text
                   : fmt::format(
                         "it says that {} expired, but it holds until {} and here it is {}; "
                         "one of the two clocks is wrong: compare `date -u` on both hosts",
                         whose, utc_text(ours.not_after_unix_s), utc_text(now_unix_s));
      break;
    case Refusal::not_yet_valid:
      reason = fmt::format(
          "it says that {} is not valid yet; it begins on {} and here it is {}: "
          "compare `date -u` on both hosts",
          whose, utc_text(ours.not_before_unix_s), utc_text(now_unix_s));
      break;
    case Refusal::role:
      reason = fmt::format("it does not take calls from a {} (we are {})",
                           role_name(ours.identity.role), who);
      break;
    case Refusal::name:
      reason = fmt::format("it expected someone else than {}; check the address", who);
      break;
  }
  return {Code::denied, "the other side refused us: " + reason};
}

}  // namespace tutti::wire
