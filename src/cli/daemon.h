// What the programs that run in the background have in common.
#pragma once

#include <csignal>
#include <string_view>

#include "cli/home.h"
#include "cluster/tree_node.h"
#include "wire/certificates.h"
#include "wire/seals.h"
#include "world/real/real_world.h"
#include "world/semaphore.h"

namespace tutti::cli {

// How long a certificate of this machine's programs holds; they renew it while they run.
constexpr int64_t kProgramLifetime_s = 365 * 86'400;
// The same, or what a test says.
int64_t program_lifetime_s();

// Everything a daemon is given.
struct DaemonContext {
  RealWorld& world;
  Home home;
  Machine machine;
  bool embedded = false;  // of a `tutti run` without a cluster, and gone with it
  // Of a program that says so before it ends for a while: whether it does, that it shall, and that
  // it has.
  bool announces = false;
  Event leaving;
  Event announced;
};

// Ends for a while: others are told that it will be back.
constexpr int kLeaveForAWhile = SIGUSR1;

// Runs it until SIGTERM, SIGINT or kLeaveForAWhile, which cancel it. `program` is "head" or
// "agent": it takes its pid file, and is what people are told it is. Gives the exit code.
int run_daemon(std::string_view program, int argc, char** argv,
               Task<Result<void>> (*body)(DaemonContext& context));

// For tests of mixed versions: what head or agent would speak with others of the tree if they were
// older or newer.
void pretend_other_version(TreeOptions& tree);

// The machine's certificate of this role, and seals with it.
struct Credential {
  wire::Identity identity;
  std::unique_ptr<wire::CertifiedSeals> seals;
};
Task<Result<Credential>> credential_of(DaemonContext& context, wire::Role role, std::string name);
// Until cancelled: a certificate that nears its end is issued anew, and connections from then on
// use the new one. Where the authority cannot be read, the head is asked, also for the certificate
// of the user whose machine this is.
Task<Result<void>> keep_renewed(DaemonContext& context, const Credential& credential);

}  // namespace tutti::cli
