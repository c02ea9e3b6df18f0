// The links of one epoch. When it is over so are they, and everything that they were asked.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "fabric/tcp_answerer.h"
#include "fabric/tcp_caller.h"

namespace tutti::tcp {

class Epoch final : public EpochState, public Doorkeeper {
 public:
  Epoch(Context& context, uint64_t number);
  ~Epoch();

  Caller& caller(uint32_t rank) override;
  Answerer& answerer(uint32_t rank) override;
  Result<void> admit(const Introduction& who) override;

  // Calls of the scope end with the error; so do later ones, see refusal().
  void refuse_here(uint64_t scope, const Error& why) override;
  const Error* refusal(uint64_t scope) const;
  // Calls under way, by scope; they may end after the epoch.
  using Calls = std::multimap<uint64_t, Errand*>;
  const std::shared_ptr<Calls>& calls() const { return calls_; }

  // Whether the others know what they have to of what was done.
  bool quiet() const;
  // Every call ends; the strands do when join() returns.
  void end(const Error& why);
  Task<void> join();

 private:
  Task<void> tell_waiting();

  Context& context_;
  std::map<uint64_t, Error> refused_;  // by scope
  std::shared_ptr<Calls> calls_ = std::make_shared<Calls>();
  std::vector<std::unique_ptr<Caller>> callers_;      // by rank
  std::vector<std::unique_ptr<Answerer>> answerers_;  // by rank
};

}  // namespace tutti::tcp
