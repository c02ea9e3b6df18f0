#include "cluster/join_desk.h"

#include <array>

#include "base/bytes.h"
#include "wire/certificates.h"

namespace tutti {
namespace {

constexpr std::string_view kTokenStart = "tutti-";
constexpr size_t kSecretBytes = 16;
constexpr size_t kTokenBytes = wire::kPublicKeyBytes + kSecretBytes + sizeof(int64_t);
// A person who sets up a rack wants one per host, and uses them soon.
constexpr size_t kMostSecrets = 1'000;
constexpr Duration kUsualLifetime = 1h;
constexpr Duration kLongestLifetime = 24h * 7;
constexpr std::string_view kDigits = "abcdefghijklmnopqrstuvwxyz234567";
constexpr unsigned kDigitBits = 5;
constexpr unsigned kByteBits = 8;

std::string to_base32(std::string_view bytes) {
  std::string text;
  unsigned held = 0;
  unsigned bits = 0;
  for (const char byte : bytes) {
    held = held << kByteBits | static_cast<unsigned char>(byte);
    for (bits += kByteBits; bits >= kDigitBits; bits -= kDigitBits)
      text += kDigits[held >> (bits - kDigitBits) & 31];
  }
  if (bits > 0) text += kDigits[held << (kDigitBits - bits) & 31];
  return text;
}

std::optional<std::string> from_base32(std::string_view text) {
  std::string bytes;
  unsigned held = 0;
  unsigned bits = 0;
  for (const char letter : text) {
    const size_t digit = kDigits.find(letter);
    if (digit == std::string_view::npos) return {};
    held = held << kDigitBits | static_cast<unsigned>(digit);
    bits += kDigitBits;
    if (bits < kByteBits) continue;
    bits -= kByteBits;
    bytes += static_cast<char>(held >> bits);
  }
  return bytes;
}

}  // namespace

std::string JoinToken::text() const {
  std::string bytes = authority_key + secret;
  bytes.resize(bytes.size() + sizeof(int64_t));
  store_le(as_mutable_bytes(bytes).data() + bytes.size() - sizeof(int64_t),
           static_cast<uint64_t>(expires_unix_s));
  return fmt::format("{}{}", kTokenStart, to_base32(bytes));
}

Result<JoinToken> JoinToken::parse(std::string_view text) {
  const auto bytes =
      text.starts_with(kTokenStart) ? from_base32(text.substr(kTokenStart.size())) : std::nullopt;
  if (!bytes || bytes->size() != kTokenBytes)
    return fail(
        Code::invalid,
        "this is no token, or not all of it; `tutti token` on the head's machine prints one");
  JoinToken token;
  token.authority_key = bytes->substr(0, wire::kPublicKeyBytes);
  token.secret = bytes->substr(wire::kPublicKeyBytes, kSecretBytes);
  const std::byte* end = as_bytes(*bytes).data() + kTokenBytes - sizeof(int64_t);
  token.expires_unix_s = static_cast<int64_t>(load_le<uint64_t>(end));
  return token;
}

JoinDesk::JoinDesk(World& world, wire::Authority authority, int64_t lifetime_s)
    : world_(world), authority_(std::move(authority)), lifetime_s_(lifetime_s) {}

void JoinDesk::set_addresses(std::string tree, std::string api) {
  tree_ = std::move(tree);
  api_ = std::move(api);
}

void JoinDesk::forget_expired() {
  const int64_t now = now_unix_s();
  std::erase_if(secrets_, [&](const auto& secret) { return secret.second.until_unix_s <= now; });
}

Result<cluster::TokenReply> JoinDesk::make_token(Duration lifetime, std::string user) {
  TRY_DO(wire::check_name("name", user));
  forget_expired();
  if (lifetime <= 0s) lifetime = kUsualLifetime;
  if (lifetime > kLongestLifetime)
    return fail(Code::invalid, "a token lives for {} at most", format_duration(kLongestLifetime));
  if (secrets_.size() >= kMostSecrets)
    return fail(Code::exhausted, "there are {} tokens that nobody used; they end by themselves",
                kMostSecrets);
  JoinToken token{.authority_key = wire::public_key(authority_.certificate_pem()),
                  .secret = wire::random_secret(kSecretBytes),
                  .expires_unix_s = now_unix_s() + lifetime / 1s};
  secrets_.emplace(token.secret, Promise{token.expires_unix_s, std::move(user)});
  cluster::TokenReply reply;
  reply.set_token(token.text());
  reply.set_expires_unix_s(token.expires_unix_s);
  return reply;
}

Result<cluster::JoinReply> JoinDesk::admit(const cluster::JoinRequest& request) {
  forget_expired();
  const auto secret = secrets_.find(request.secret());
  if (secret == secrets_.end())
    return fail(Code::denied,
                "the head does not know this token: it was used, its time is up, or the head was "
                "started anew since; `tutti token` there prints another");
  if (request.user() != secret->second.user)
    return fail(Code::denied,
                "this token is for {}, and you are {}; `tutti token --user {}` on the head's "
                "machine prints one for you",
                secret->second.user, request.user(), request.user());
  const wire::IssueOptions agent{
      .role = wire::Role::agent, .name = request.name(), .lifetime_s = lifetime_s_};
  const wire::IssueOptions user{
      .role = wire::Role::user, .name = request.user(), .lifetime_s = lifetime_s_};
  cluster::JoinReply reply;
  TRY(*reply.mutable_agent(), authority_.sign(request.agent_request(), agent, now_unix_s()));
  TRY(*reply.mutable_user(), authority_.sign(request.user_request(), user, now_unix_s()));
  reply.set_cluster(authority_.cluster());
  reply.set_authority(authority_.certificate_pem());
  reply.set_tree(tree_);
  reply.set_api(api_);
  secrets_.erase(secret);
  return reply;
}

Result<cluster::RenewReply> JoinDesk::renew(const cluster::RenewRequest& request,
                                            const wire::Identity& member) {
  const wire::IssueOptions options{
      .role = member.role, .name = member.name, .lifetime_s = lifetime_s_};
  cluster::RenewReply reply;
  TRY(*reply.mutable_certificate(), authority_.sign(request.request(), options, now_unix_s()));
  reply.set_authority(authority_.certificate_pem());
  return reply;
}

}  // namespace tutti
