#include "cluster/ask_port.h"

#include <algorithm>
#include <array>

#include "world/scope.h"

namespace tutti {
namespace {

// As services see it that listen on all interfaces or on this one.
constexpr std::string_view kOwnHost = "127.0.0.1";

constexpr size_t kReadBytes = 1024;
constexpr size_t kMostShownBytes = 60;  // of a reply that is not understood

// Reads to the end: a server that is cut off in the middle of its answer complains in its log.
Task<Result<void>> request(Stream& stream, std::string text, std::string& reply) {
  const Bytes all = as_bytes(text);
  CO_TRY_DO(co_await stream.write(all));
  std::array<std::byte, kReadBytes> piece;
  while (reply.size() < kMostReplyBytes) {
    auto got = co_await stream.read(piece);
    if (!got) co_return fail(std::move(got).error());
    if (*got == 0) break;
    reply.append(as_text(Bytes(piece).first(*got)));
  }
  co_return {};
}

Error late(const Error& error, const job::Health& health) {
  if (error.code() != Code::deadline) return error;
  return {Code::deadline, fmt::format("port {} did not answer within {}", health.port(),
                                      format_duration(Duration(health.timeout_ns())))};
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

// "HTTP/1.1 200 OK"
Result<void> judge_http_reply(std::string_view reply) {
  constexpr std::string_view kVersion = "HTTP/1.";
  constexpr size_t kStatusAt = kVersion.size() + 2;
  constexpr size_t kStatusDigits = 3;
  const std::string_view line =
      reply.substr(0, std::min(reply.find_first_of("\r\n"), reply.size()));
  const std::string_view status =
      line.size() < kStatusAt ? std::string_view() : line.substr(kStatusAt, kStatusDigits);
  const bool understood =
      line.starts_with(kVersion) && line.size() != reply.size() && status.size() == kStatusDigits &&
      line[kStatusAt - 1] == ' ' && std::ranges::all_of(status, is_digit) &&
      (line.size() == kStatusAt + kStatusDigits || line[kStatusAt + kStatusDigits] == ' ');
  if (!understood) {
    std::string shown(line.substr(0, kMostShownBytes));
    std::ranges::replace_if(shown, [](char c) { return c < ' ' || c > '~'; }, '?');
    return fail(Code::corrupt, "it answered \"{}\", which is not HTTP", shown);
  }
  if (status[0] != '2') return fail(Code::unavailable, "it answered {}", line.substr(kStatusAt));
  return {};
}

Task<Result<void>> ask_port(World& world, job::Health health, Instant deadline) {
  Address address = Address::tcp(std::string(kOwnHost), static_cast<uint16_t>(health.port()));
  Task<Result<std::unique_ptr<Stream>>> connecting = world.network().connect(std::move(address));
  auto stream = co_await with_deadline(world.clock(), deadline, std::move(connecting));
  if (!stream) co_return fail(late(stream.error(), health));
  if (health.path().empty()) co_return {};
  std::string text = fmt::format(
      "GET {} HTTP/1.1\r\nHost: {}:{}\r\nUser-Agent: tutti\r\nAccept: */*\r\nConnection: "
      "close\r\n\r\n",
      health.path(), kOwnHost, health.port());
  std::string reply;
  Task<Result<void>> asking = request(**stream, std::move(text), reply);
  auto asked = co_await with_deadline(world.clock(), deadline, std::move(asking));
  // What it said counts, also when it does not hang up afterwards.
  if (reply.empty() && !asked) co_return fail(late(asked.error(), health));
  if (reply.empty()) co_return fail(Code::unavailable, "it hung up without an answer");
  co_return judge_http_reply(reply);
}

}  // namespace tutti
