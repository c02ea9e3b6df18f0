// System calls that the kernel carries out while the loop goes on: io_uring.
//
// The ring's own descriptor tells the loop of completions, so no eventfd is needed. What can be
// done without blocking is done inside submit(). Of the loop's thread.
#pragma once

#include <liburing.h>

#include <initializer_list>
#include <memory>

#include "world/real/loop.h"

namespace tutti {

class Uring final : private Watch {
 public:
  class Request : public ListNode {
   public:
    virtual void prepare(io_uring_sqe& entry) = 0;
    // The system call's result, or its error as a negative number. From inside submit(), or from
    // the top of the loop.
    virtual void done(int result) = 0;

   protected:
    ~Request() = default;
  };

  // nullptr when this kernel has no rings, forbids them or lacks one of the operations. Requests
  // past the most in flight wait for one of those to be done.
  static std::unique_ptr<Uring> start(Loop& loop, unsigned most_in_flight,
                                      std::initializer_list<int> operations);
  ~Uring();  // every request must be done
  Uring(const Uring&) = delete;
  Uring& operator=(const Uring&) = delete;

  // The request, and all memory it names, must live until it is done.
  void submit(Request& request);
  // Asks for an early end: the request is done soon, with -ECANCELED or whatever it came to.
  void cancel(Request& request);

 private:
  Uring(Loop& loop, unsigned most_in_flight) : loop_(loop), most_in_flight_(most_in_flight) {}
  void on_ready(uint32_t) override { reap(); }
  void start_waiting();
  void enter();
  void reap();

  Loop& loop_;
  const unsigned most_in_flight_;
  io_uring ring_{};
  bool watched_ = false;
  unsigned in_flight_ = 0;
  List<Request> waiting_;  // for fewer to be in flight
};

}  // namespace tutti
