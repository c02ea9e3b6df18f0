// Between the keeper's messages and the types the rest of the program uses.
#pragma once

#include "base/result.h"
#include "cluster/keeper.pb.h"
#include "world/processes.h"

namespace tutti {

// The versions of the protocol this program speaks.
constexpr uint32_t kLowestKeeperVersion = 1;
constexpr uint32_t kHighestKeeperVersion = 1;

keeper::Hello make_hello();
// The version to speak, or why there is none.
Result<uint32_t> agree_on_version(const keeper::Hello& hello);

keeper::Failure to_failure(const Error& error);
Error to_error(const keeper::Failure& failure);

void set_exit(const Exit& exit, keeper::Exited::Rank& into);
Exit to_exit(const keeper::Exited::Rank& from);

}  // namespace tutti
