// The agent's socket for the ranks of its host: takes their calls to the exchange, and hears of
// spares that are ready. One call on each connection.
#pragma once

#include <functional>
#include <string>

#include "cluster/exchange_wire.h"
#include "world/scope.h"

namespace tutti {

class HostJob;

class ExchangeServer final : private ConnectionTaker {
 public:
  // Null of a job that is not here.
  using Find = std::function<HostJob*(uint64_t job)>;
  // Calls are answered by strands of the scope.
  ExchangeServer(World& world, Scope& strands, Find find)
      : world_(world), strands_(strands), find_(std::move(find)) {}

  // From when it returns until the scope is cancelled.
  Task<Result<void>> serve(std::string path);
  // From then on ranks of other users may come too; each is heard for its own user's jobs alone.
  void serve_others() { serves_others_ = true; }
  bool serves_others() const { return serves_others_; }

 private:
  void on_connection(std::unique_ptr<Stream> stream) override;
  Task<void> serve_one(std::unique_ptr<Stream> stream);
  Task<ExchangeAnswer> answer(Stream& stream);
  Result<void> check_user(Stream& stream, const HostJob& job) const;

  World& world_;
  Scope& strands_;
  Find find_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  uint32_t calls_ = 0;
  bool serves_others_ = false;
};

}  // namespace tutti
