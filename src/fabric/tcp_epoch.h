// The links of one epoch. When it is over so are they, and everything that they were asked.
#pragma once

#include <map>
#include <memory>
#include <set>
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
  void refuse_here(const Refusal& refusal) override;
  const Error* refusal(Tag tag) const;
  const std::set<uint32_t>& left() const { return left_; }
  std::optional<uint32_t> left_in(uint64_t scope) const;
  std::vector<uint32_t> linked() const;
  // Calls under way, by tag; they may end after the epoch.
  using Calls = std::multimap<Tag, Errand*>;
  const std::shared_ptr<Calls>& calls() const { return calls_; }

  // Whether the others know what they have to of what was done.
  bool quiet() const;
  // Every call ends; the strands do when join() returns.
  void end(const Error& why);
  Task<void> join();

 private:
  Task<void> tell_waiting();

  Context& context_;
  std::map<uint64_t, Refusal> refused_;  // by scope
  std::set<uint32_t> left_;
  std::shared_ptr<Calls> calls_ = std::make_shared<Calls>();
  std::vector<std::unique_ptr<Caller>> callers_;      // by rank
  std::vector<std::unique_ptr<Answerer>> answerers_;  // by rank
};

}  // namespace tutti::tcp
