// A rank's side of the exchange with its host's agent, on any World: values, and who of its gang is
// where. docs/exchange.md is the manual; python/tutti/exchange.py is the same for Python.
//
// An agent that is away is asked again until the deadline; what is asked twice counts once.
#pragma once

#include <string>
#include <vector>

#include "world/world.h"

namespace tutti {

struct RankIdentity {
  std::string socket;    // TUTTI_EXCHANGE
  uint64_t job = 0;      // TUTTI_JOB
  uint64_t life = 0;     // TUTTI_EPOCH: in which the process was started
  uint32_t process = 0;  // TUTTI_PROCESS
};

// The ranks of a role, as of an epoch.
struct GangTable {
  uint64_t epoch = 0;
  std::string listen;           // this host, as others reach it
  std::string key;              // of the job's fabric; empty where there is none
  std::vector<uint32_t> nodes;  // by rank: the number of its host

  static Result<GangTable> parse(std::string_view text);
};

class RankExchange {
 public:
  RankExchange(World& world, RankIdentity identity)
      : world_(world), identity_(std::move(identity)) {}

  Task<Result<void>> put(std::string key, std::string value, Instant deadline);
  // As soon as somebody has put it.
  Task<Result<std::string>> get(std::string key, Instant deadline);
  // Of this epoch or a later one.
  Task<Result<GangTable>> gang(uint64_t epoch, Instant deadline);

 private:
  struct Question;
  Task<Result<std::string>> ask(Question question, Instant deadline);
  Task<Result<std::string>> ask_once(const Question& question, Instant deadline);

  World& world_;
  RankIdentity identity_;
  uint64_t puts_ = 0;
};

}  // namespace tutti
