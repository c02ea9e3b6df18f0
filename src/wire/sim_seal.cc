#include "wire/sim_seal.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "wire/plain_copy.h"

namespace tutti::wire {

namespace {

constexpr std::string_view kClaim = "claim 1";
constexpr std::string_view kWelcome = "welcome";
constexpr std::string_view kRefused = "refused ";
constexpr int64_t kYear9999_unix_s = 253'402'300'799;  // X.509 knows nothing later either

std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

template <class Integer>
Result<Integer> parse_number(std::string_view text, Integer highest) {
  Integer value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || value < 0 ||
      value > highest)
    return fail(Code::corrupt, "a claim has a number from 0 to {} here", highest);
  return value;
}

Task<Result<void>> send(Stream& stream, std::string text) {
  std::string message(sizeof(uint32_t), '\0');
  store_le(as_mutable_bytes(message).data(), static_cast<uint32_t>(text.size()));
  message += text;
  const Bytes bytes = as_bytes(message);
  auto written = co_await stream.write(bytes);
  co_return written;
}

Task<Result<void>> read_exactly(Stream& stream, MutableBytes into) {
  while (!into.empty()) {
    auto got = co_await stream.read(into);
    if (!got) co_return fail(got.error());
    if (*got == 0)
      co_return fail(Code::unavailable, "the other side closed the connection in the handshake");
    into = into.subspan(*got);
  }
  co_return {};
}

Task<Result<std::string>> receive(Stream& stream) {
  std::array<std::byte, sizeof(uint32_t)> head{};
  const MutableBytes into_head = head;
  auto got_head = co_await read_exactly(stream, into_head);
  if (!got_head) co_return fail(got_head.error());
  const auto size = load_le<uint32_t>(head.data());
  if (size > kMaxSimMessageBytes)
    co_return fail(Code::corrupt, "a simulated handshake's message of {} bytes; {} are allowed",
                   size, kMaxSimMessageBytes);
  std::string text(size, '\0');
  const MutableBytes into = as_mutable_bytes(text);
  auto got = co_await read_exactly(stream, into);
  if (!got) co_return fail(got.error());
  co_return text;
}

class SimSeal final : public PlainCopy {
 public:
  SimSeal(const Clock& clock, SimSealOptions options)
      : clock_(clock), options_(std::move(options)) {}

  Task<Result<Identity>> handshake(Stream& stream) override {
    if (options_.charge) options_.charge();
    const bool first = options_.side == Side::connecting;
    if (first) {
      auto welcome = co_await introduce(stream);
      if (!welcome) co_return fail(welcome.error());
    }
    auto theirs = co_await judge_claim(stream);
    if (!theirs) co_return fail(theirs.error());
    if (!first) {
      auto welcome = co_await introduce(stream);
      if (!welcome) co_return fail(welcome.error());
    }
    co_return *theirs;
  }

 private:
  // Sends our claim and hears what the other side's rules say to it.
  Task<Result<void>> introduce(Stream& stream) {
    const std::string claim = format_claim(options_.ours);
    auto sent = co_await send(stream, claim);
    if (!sent) co_return fail(sent.error());
    auto verdict = co_await hear_verdict(stream);
    co_return verdict;
  }

  // Reads the other side's claim and tells it what the rules say to that.
  Task<Result<Identity>> judge_claim(Stream& stream) {
    auto text = co_await receive(stream);
    if (!text) co_return fail(text.error());
    auto claim = parse_claim(*text);
    if (!claim) co_return fail(claim.error());
    const auto refused =
        judge(*claim, options_.ours, options_.expected, options_.side, now_unix_s());
    const std::string verdict = refused
                                    ? fmt::format("{}{}", kRefused, static_cast<int>(refused->why))
                                    : std::string(kWelcome);
    auto told = co_await send(stream, verdict);
    if (refused) co_return fail(Code::denied, "{}", refused->text);
    if (!told) co_return fail(told.error());
    co_return claim->identity;
  }

  Task<Result<void>> hear_verdict(Stream& stream) {
    auto text = co_await receive(stream);
    if (!text) co_return fail(text.error());
    std::string_view verdict = *text;
    if (verdict == kWelcome) co_return {};
    if (!verdict.starts_with(kRefused))
      co_return fail(Code::corrupt, "a simulated handshake without a verdict");
    verdict.remove_prefix(kRefused.size());
    const auto why = parse_number<int>(verdict, static_cast<int>(Refusal::name));
    if (!why) co_return fail(why.error());
    co_return fail(refused_by_peer(static_cast<Refusal>(*why), options_.ours, now_unix_s()));
  }

  int64_t now_unix_s() const { return clock_.unix_ns() / 1'000'000'000; }

  const Clock& clock_;
  SimSealOptions options_;
};

}  // namespace

std::string format_claim(const Claim& claim) {
  return fmt::format("{}\n{}\n{}\n{}\n{}\n", kClaim, identity_uri(claim.identity), claim.authority,
                     claim.not_before_unix_s, claim.not_after_unix_s);
}

Result<Claim> parse_claim(std::string_view text) {
  if (take_line(text) != kClaim) return fail(Code::corrupt, "a claim begins with '{}'", kClaim);
  auto identity = parse_identity_uri(take_line(text));
  if (!identity) return fail(Code::corrupt, "a claim: {}", identity.error().message());
  Claim claim{*identity, "", 0, 0};
  claim.authority = take_line(text);
  if (auto named = check_name("authority", claim.authority); !named)
    return fail(Code::corrupt, "a claim: {}", named.error().message());
  TRY(claim.not_before_unix_s, parse_number<int64_t>(take_line(text), kYear9999_unix_s));
  TRY(claim.not_after_unix_s, parse_number<int64_t>(take_line(text), kYear9999_unix_s));
  if (!text.empty()) return fail(Code::corrupt, "a claim is followed by more");
  return claim;
}

std::unique_ptr<Seal> make_sim_seal(const Clock& clock, SimSealOptions options) {
  return std::make_unique<SimSeal>(clock, std::move(options));
}

}  // namespace tutti::wire
