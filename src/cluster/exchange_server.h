// The agent's socket for the ranks of its host: takes their calls to the exchange, and hears of
// spares that are ready. One call on each connection.
#pragma once

#include <functional>
#include <string>

#include "cluster/exchange_wire.h"
#include "world/scope.h"

namespace tutti {

class HostJob;

class ExchangeServer {
 public:
  // Null of a job that is not here.
  using Find = std::function<HostJob*(uint64_t job)>;
  ExchangeServer(World& world, Find find) : world_(world), find_(std::move(find)) {}

  // Until cancelled.
  Task<Result<void>> serve(std::string path);
  // From then on ranks of other users may come too; each is heard for its own user's jobs alone.
  void serve_others() { serves_others_ = true; }
  bool serves_others() const { return serves_others_; }

 private:
  Task<Result<std::unique_ptr<Listener>>> listen(std::string path);
  Task<void> pause();
  Task<void> serve_one(std::unique_ptr<Stream> stream);
  Task<ExchangeAnswer> answer(Stream& stream);
  Result<void> check_user(Stream& stream, const HostJob& job) const;

  World& world_;
  Find find_;
  bool serves_others_ = false;
};

}  // namespace tutti
