// A loop of its own thread, for Python's blocking calls.
//
// Any Python thread may call; it waits without the GIL, and Ctrl-C ends the wait. The loop's thread
// never touches Python, so joining it is safe whoever holds the GIL.
#pragma once

#include <functional>
#include <optional>
#include <semaphore>

#include "world/real/engine_thread.h"

class LoopThread {
 public:
  // Runs the task on the loop until it is done. With the GIL; throws what Ctrl-C made of it.
  template <class T>
  tutti::Result<T> call(std::function<tutti::Task<tutti::Result<T>>(tutti::World&)> make);
  // Strands that go on between calls; from the loop's thread, and cancelled by stop().
  void spawn(tutti::Task<void> task) { engine_.spawn(std::move(task)); }
  // Done on the loop when all else has ended; from the loop's thread.
  void at_end(std::function<tutti::Task<void>()> last) { engine_.at_end(std::move(last)); }
  // Ends all that runs, and the thread. Calls that wait fail; so do later ones.
  void stop() { engine_.stop(); }

 private:
  // Something to be done on the loop, and somebody who waits for it.
  class Call : public tutti::Runnable {
   public:
    explicit Call(LoopThread& owner) : owner_(owner) {}
    virtual tutti::Task<void> work(tutti::World& world) = 0;
    std::binary_semaphore done{0};

   private:
    friend LoopThread;
    friend class Cancel;
    void run() override { owner_.spawn(carry_out(owner_, *this)); }
    LoopThread& owner_;
    tutti::Scope* scope_ = nullptr;  // of the loop's thread
  };
  class Cancel;

  static tutti::Task<void> carry_out(LoopThread& owner, Call& call);
  tutti::Result<void> await(Call& call);

  tutti::EngineThread engine_{{.spin = tutti::Duration(0)}};
};

template <class T>
tutti::Result<T> LoopThread::call(
    std::function<tutti::Task<tutti::Result<T>>(tutti::World&)> make) {
  struct Asking final : Call {
    Asking(LoopThread& owner, std::function<tutti::Task<tutti::Result<T>>(tutti::World&)> how)
        : Call(owner), make(std::move(how)) {}
    tutti::Task<void> work(tutti::World& world) override {
      return tutti::detail::keep_result(make(world), outcome);
    }
    std::function<tutti::Task<tutti::Result<T>>(tutti::World&)> make;
    std::optional<tutti::Result<T>> outcome;
  };
  Asking asking(*this, std::move(make));
  TRY_DO(await(asking));
  return std::move(*asking.outcome);
}
