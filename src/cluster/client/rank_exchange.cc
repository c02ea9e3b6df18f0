#include "cluster/client/rank_exchange.h"

#include <algorithm>
#include <charconv>

#include "cluster/exchange_wire.h"

namespace tutti {

namespace {

// Before an agent that is away is asked again.
constexpr Duration kFirstPause = 5ms;
constexpr Duration kLongestPause = 200ms;
// An agent answers by the deadline, or is away.
constexpr Duration kAgentPatience = 5s;

Result<uint64_t> number(std::string_view word) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size())
    return fail(Code::corrupt, "'{}' is no number of a gang's table", word);
  return value;
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(at), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

Result<std::string> bytes_of_hex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    unsigned value = 0;
    const auto [end, error] = std::from_chars(hex.data() + i, hex.data() + i + 2, value, 16);
    if (error != std::errc() || end != hex.data() + i + 2)
      return fail(Code::corrupt, "the key of a gang's table is not written in hex");
    bytes.push_back(static_cast<char>(value));
  }
  return bytes;
}

// Ranks first to last are on the node.
Result<void> add_ranks(GangTable& table, const std::vector<std::string_view>& words) {
  TRY(const uint64_t node, number(words[0]));
  TRY(const uint64_t first, number(words[1]));
  TRY(const uint64_t last, number(words[2]));
  constexpr uint64_t kMostRanks = 10'000'000;  // of a role
  if (last < first || last >= kMostRanks)
    return fail(Code::corrupt, "ranks {} to {} cannot be on a host", first, last);
  constexpr uint32_t kNowhere = ~0U;
  if (table.nodes.size() <= last) table.nodes.resize(last + 1, kNowhere);
  std::fill(table.nodes.begin() + static_cast<int64_t>(first),
            table.nodes.begin() + static_cast<int64_t>(last) + 1, static_cast<uint32_t>(node));
  return {};
}

}  // namespace

struct RankExchange::Question {
  ExchangeRequest::Op op;
  std::string name;
  std::string value;
  uint64_t number = 0;
};

Result<GangTable> GangTable::parse(std::string_view text) {
  GangTable table;
  for (const std::string_view line : split(text, '\n')) {
    const auto words = split(line, ' ');
    if (words.size() == 2 && words[0] == "epoch") {
      TRY(table.epoch, number(words[1]));
    } else if (words.size() == 2 && words[0] == "listen") {
      table.listen = words[1];
    } else if (!words.empty() && words[0] == "key") {
      TRY(table.key, bytes_of_hex(words.size() == 2 ? words[1] : ""));
    } else if (words.size() == 3) {
      TRY_DO(add_ranks(table, words));
    }  // what later agents may say besides is theirs
  }
  if (std::ranges::find(table.nodes, ~0U) != table.nodes.end() || table.nodes.empty())
    return fail(Code::corrupt, "the table of a gang says of some ranks nothing");
  return table;
}

Task<Result<void>> RankExchange::put(std::string key, std::string value, Instant deadline) {
  Question question{ExchangeRequest::Op::put, std::move(key), std::move(value), ++puts_};
  auto answer = co_await ask(std::move(question), deadline);
  if (!answer) co_return fail(std::move(answer).error());
  co_return Result<void>{};
}

Task<Result<std::string>> RankExchange::get(std::string key, Instant deadline) {
  Question question{ExchangeRequest::Op::get, std::move(key), {}, 0};
  auto answer = co_await ask(std::move(question), deadline);
  co_return answer;
}

Task<Result<GangTable>> RankExchange::gang(uint64_t epoch, Instant deadline) {
  Question question{ExchangeRequest::Op::gang, "gang", {}, epoch};
  auto answer = co_await ask(std::move(question), deadline);
  if (!answer) co_return fail(std::move(answer).error());
  co_return GangTable::parse(*answer);
}

Task<Result<std::string>> RankExchange::ask(Question question, Instant deadline) {
  Duration pause = kFirstPause;
  while (true) {
    auto answer = co_await ask_once(question, deadline);
    if (answer || answer.error().code() != Code::unavailable) co_return answer;
    if (world_.clock().now() + pause >= deadline)
      co_return fail(Code::deadline, "this host's agent does not answer: {}",
                     answer.error().text());
    auto slept = co_await world_.clock().sleep(pause);
    if (!slept) co_return fail(std::move(slept).error());
    pause = std::min(2 * pause, kLongestPause);
  }
}

// Code::unavailable where there is no agent, or it ends meanwhile.
Task<Result<std::string>> RankExchange::ask_once(const Question& question, Instant deadline) {
  Address address = Address::unix_socket(identity_.socket);
  auto stream = co_await world_.network().connect(std::move(address));
  if (!stream && stream.error().code() == Code::cancelled) co_return fail(stream.error());
  if (!stream) co_return fail(Code::unavailable, "{}", stream.error().text());
  // A name instead of a path could be anybody's while the agent is away.
  if (identity_.socket.starts_with('@')) {
    CO_TRY(const Credentials peer, (*stream)->peer_credentials());
    if (peer.uid != 0)
      co_return fail(Code::denied, "what answers does not run as root, so it is not the agent");
  }
  const Duration left = std::max(deadline - world_.clock().now(), Duration(0));
  const ExchangeRequest request{.op = question.op,
                                .job = identity_.job,
                                .life = identity_.life,
                                .round = question.number,
                                .timeout_ns = to_ns(left),
                                .process = identity_.process,
                                .name = question.name,
                                .value = question.value};
  const std::string encoded = encode(request);
  const Bytes bytes = as_bytes(encoded);
  auto written = co_await (*stream)->write(bytes);
  if (!written && written.error().code() != Code::cancelled)
    co_return fail(Code::unavailable, "{}", written.error().text());
  if (!written) co_return fail(std::move(written).error());
  Task<Result<ExchangeAnswer>> reading = read_answer(**stream);
  auto answer =
      co_await with_deadline(world_.clock(), deadline + kAgentPatience, std::move(reading));
  if (!answer && answer.error().code() == Code::cancelled) co_return fail(answer.error());
  if (!answer) co_return fail(Code::unavailable, "{}", answer.error().text());
  if (answer->ok) co_return std::move(answer->value);
  // It is about to end, and the next one has to be asked.
  if (answer->code == Code::cancelled) co_return fail(Code::unavailable, "{}", answer->message);
  co_return fail(Error(answer->code, answer->message));
}

}  // namespace tutti
