// One call of connect(): asks the other host, is accepted, refused or not heard, and asks again.
#pragma once

#include <memory>

#include "world/sim/network.h"

namespace tutti {

class Connecting final : public Waiter, public SimEvent {
 public:
  Connecting(SimHost& from, SimHost& to, Address address, Credentials who);

  bool await_ready();
  void await_suspend(std::coroutine_handle<> coroutine);
  Result<std::unique_ptr<Stream>> await_resume() { return std::move(result_); }

 private:
  enum class Step : unsigned char { asking, accepted, refused, waiting };
  void fire() override;
  void drop() override;
  void on_cancel() override;
  void ask();
  void answer();
  void try_later();
  void go(Step step, SimHost& where, int64_t at_ns, double cost_ns);
  void complete(Result<std::unique_ptr<Stream>> result);

  SimHost& from_;
  SimHost& to_;
  Address address_;
  Credentials who_;
  Step step_ = Step::asking;
  int64_t give_up_at_ns_;
  int64_t pause_ns_;
  std::unique_ptr<SimStream> stream_;
  Result<std::unique_ptr<Stream>> result_;
};

}  // namespace tutti
