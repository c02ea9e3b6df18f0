#include "sims/spare_program.h"

#include <charconv>

#include "cluster/exchange_wire.h"
#include "cluster/rank_starter.h"

namespace tutti::sims {
namespace {

constexpr Duration kSlowestImport = 2s;

uint64_t number_of(std::string_view text) {
  uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

Task<void> tell_ready(SimProcess& process) {
  ExchangeRequest request{.op = ExchangeRequest::Op::ready,
                          .job = number_of(process.variable("TUTTI_JOB"))};
  request.process = static_cast<uint32_t>(number_of(process.variable("TUTTI_SPARE")));
  Address address = Address::unix_socket(std::string(process.variable(kExchangeVariable)));
  auto stream = co_await process.network().connect(std::move(address));
  if (!stream) co_return;  // the next agent takes it for ready
  const std::string encoded = encode(request);
  const Bytes bytes = as_bytes(encoded);
  auto written = co_await (*stream)->write(bytes);
  if (!written) co_return;
  (void)co_await read_answer(**stream);
}

}  // namespace

Task<std::string> wait_for_rank(SimProcess& process) {
  auto stream = process.take_stream(static_cast<int>(number_of(process.variable(kSpareVariable))));
  if (!stream) co_return "";
  const auto import = Duration(static_cast<int64_t>(process.random().below(to_ns(kSlowestImport))));
  auto slept = co_await process.clock().sleep(import);
  if (!slept) co_return "";
  co_await tell_ready(process);
  std::string all;
  std::string piece(512, ' ');
  while (!all.ends_with(std::string_view("\0\0", 2))) {
    const MutableBytes into = as_mutable_bytes(piece);
    auto count = co_await (*stream)->read(into);
    if (!count || *count == 0) co_return "";
    all.append(piece, 0, *count);
  }
  const std::string_view taken = "!";
  const Bytes byte = as_bytes(taken);
  auto told = co_await (*stream)->write(byte);
  co_return told ? all : "";
}

std::string setting_of(const std::string& assignment, std::string_view key) {
  const std::string start = fmt::format("{}=", key);
  const size_t found = assignment.find(start);
  if (found == std::string::npos) return "";
  const size_t begin = found + start.size();
  return assignment.substr(begin, assignment.find('\0', begin) - begin);
}

}  // namespace tutti::sims
