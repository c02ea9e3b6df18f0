// Between the keeper's messages and the types the rest of the program uses.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "cluster/keeper.pb.h"
#include "world/processes.h"

namespace tutti {

// The versions of the protocol this program speaks.
constexpr uint32_t kLowestKeeperVersion = 1;
constexpr uint32_t kHighestKeeperVersion = 3;
// The first with control pages, spares, single ranks to end, and Reset.
constexpr uint32_t kKeeperVersionOfSpares = 2;
// The first that says whose job it keeps.
constexpr uint32_t kKeeperVersionOfJobs = 3;

// Tests of mixed versions speak none past `highest`; agents none below that of spares.
keeper::Hello make_hello(uint32_t highest = kHighestKeeperVersion,
                         uint32_t lowest = kLowestKeeperVersion);
// The version to speak, or why there is none.
Result<uint32_t> agree_on_version(const keeper::Hello& hello,
                                  uint32_t highest = kHighestKeeperVersion);

// What a message uses of version 2, in words for a Failure; empty when it is all of version 1.
std::string_view newer_part(const keeper::Spawn& spawn);
std::string_view newer_part(const keeper::Signal& signal);
std::string_view newer_part(const keeper::End& end);

// What a spare reads: environment and arguments, each string ended by a zero byte, each list by an
// empty string. Code::invalid for what cannot be said so, or is more than kMaxAssignment.
constexpr size_t kMaxAssignment = 64 << 10;  // a socket takes it without waiting for the spare
Result<std::string> encode_assignment(const keeper::Assign& assign);

keeper::Failure to_failure(const Error& error);
Error to_error(const keeper::Failure& failure);

void set_exit(const Exit& exit, keeper::Exited::Rank& into);
Exit to_exit(const keeper::Exited::Rank& from);

}  // namespace tutti
