#include "cluster/keeper_messages.h"

#include <algorithm>

#include "base/version.h"

namespace tutti {

keeper::Hello make_hello(uint32_t highest, uint32_t lowest) {
  keeper::Hello hello;
  hello.set_lowest_version(lowest);
  hello.set_highest_version(highest);
  hello.set_program(fmt::format("tutti {}", kVersion));
  return hello;
}

Result<uint32_t> agree_on_version(const keeper::Hello& hello, uint32_t highest) {
  const uint32_t both = std::min(hello.highest_version(), highest);
  if (both >= std::max(hello.lowest_version(), kLowestKeeperVersion)) return both;
  const bool keeper_is_older = hello.lowest_version() > highest;
  return fail(Code::unsupported,
              "'{}' speaks versions {} to {} of the keeper's protocol, this keeper (tutti {}) {} "
              "to {}; {}",
              hello.program(), hello.lowest_version(), hello.highest_version(), kVersion,
              kLowestKeeperVersion, highest,
              keeper_is_older
                  ? "the keeper is too old, and ends with its job: let the job end under the tutti "
                    "that began it, then upgrade"
                  : fmt::format("upgrade '{}'", hello.program()));
}

std::string_view newer_part(const keeper::Spawn& spawn) {
  if (!spawn.control_arena().empty() || spawn.epoch() != 0) return "control pages";
  for (const keeper::Spawn::Rank& rank : spawn.ranks()) {
    if (rank.spare()) return "spares";
    if (rank.has_control_offset()) return "control pages";
  }
  return "";
}

std::string_view newer_part(const keeper::Signal& signal) {
  return signal.spares().empty() ? "" : "spares";
}

std::string_view newer_part(const keeper::End& end) {
  if (!end.ranks().empty()) return "ranks to end by name";
  return end.spares().empty() ? "" : "spares";
}

Result<std::string> encode_assignment(const keeper::Assign& assign) {
  std::string bytes;
  for (const auto* strings : {&assign.environment(), &assign.arguments()}) {
    const bool settings = strings == &assign.environment();
    for (const std::string& text : *strings) {
      if (text.empty() || text.find('\0') != std::string::npos)
        return fail(Code::invalid, "a spare takes no empty string, and none with a zero byte");
      if (settings && (text[0] == '=' || text.find('=') == std::string::npos))
        return fail(Code::invalid, "'{}' is no KEY=value", text);
      bytes.append(text).push_back('\0');
    }
    bytes.push_back('\0');
  }
  if (bytes.size() <= kMaxAssignment) return bytes;
  return fail(Code::invalid,
              "an assignment of {} bytes; {} is the most: start the spare with what "
              "is common to all ranks",
              bytes.size(), kMaxAssignment);
}

keeper::Failure to_failure(const Error& error) {
  keeper::Failure failure;
  failure.set_code(static_cast<uint32_t>(error.code()));
  failure.set_message(error.message());
  for (const std::string& doing : error.contexts()) failure.add_contexts(doing);
  return failure;
}

Error to_error(const keeper::Failure& failure) {
  const bool known = failure.code() <= static_cast<uint32_t>(Code::internal);
  Error error(known ? static_cast<Code>(failure.code()) : Code::internal, failure.message());
  for (const std::string& doing : failure.contexts()) error = error.context(doing);
  return error;
}

void set_exit(const Exit& exit, keeper::Exited::Rank& into) {
  into.set_code(exit.code);
  into.set_signal(exit.signal);
  into.set_core_dumped(exit.core_dumped);
  into.set_user_time_ns(to_ns(exit.user_time));
  into.set_system_time_ns(to_ns(exit.system_time));
  into.set_peak_memory_bytes(exit.peak_memory_bytes);
  into.set_out_of_memory(exit.out_of_memory);
}

Exit to_exit(const keeper::Exited::Rank& from) {
  return {.code = from.code(),
          .signal = from.signal(),
          .core_dumped = from.core_dumped(),
          .user_time = Duration(from.user_time_ns()),
          .system_time = Duration(from.system_time_ns()),
          .peak_memory_bytes = from.peak_memory_bytes(),
          .out_of_memory = from.out_of_memory()};
}

}  // namespace tutti
