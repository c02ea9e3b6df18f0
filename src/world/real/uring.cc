#include "world/real/uring.h"

#include <sched.h>

#include <cerrno>

namespace tutti {

namespace {

constexpr unsigned kEntries = 4;     // each is submitted at once
constexpr int kEnterTries = 10'000;  // the kernel was out of memory each time

}  // namespace

std::unique_ptr<Uring> Uring::start(Loop& loop, unsigned most_in_flight,
                                    std::initializer_list<int> operations) {
  std::unique_ptr<Uring> uring(new Uring(loop, most_in_flight));
  io_uring_params parameters{};
  parameters.flags = IORING_SETUP_CQSIZE;
  parameters.cq_entries = 2 * most_in_flight;  // a cancel for each fits as well
  if (io_uring_queue_init_params(kEntries, &uring->ring_, &parameters) != 0) {
    uring->ring_.ring_fd = -1;
    return nullptr;
  }
  io_uring_probe* probe = io_uring_get_probe_ring(&uring->ring_);
  bool able = probe != nullptr;
  for (const int operation : operations)
    able = able && io_uring_opcode_supported(probe, operation) != 0;
  io_uring_free_probe(probe);
  if (!able || !loop.add(uring->ring_.ring_fd, EPOLLIN, *uring)) return nullptr;
  uring->watched_ = true;
  return uring;
}

Uring::~Uring() {
  TUTTI_ASSERT(in_flight_ == 0 && waiting_.empty(), "a ring outlives its requests");
  if (watched_) loop_.remove(ring_.ring_fd, *this);
  if (ring_.ring_fd >= 0) io_uring_queue_exit(&ring_);
}

void Uring::submit(Request& request) {
  waiting_.push_back(request);
  start_waiting();
  reap();
}

void Uring::cancel(Request& request) {
  if (request.linked()) {  // the kernel has not seen it
    request.unlink();
    request.done(-ECANCELED);
    return;
  }
  io_uring_sqe* entry = io_uring_get_sqe(&ring_);
  TUTTI_ASSERT(entry != nullptr, "every entry is submitted at once");
  io_uring_prep_cancel(entry, &request, 0);
  io_uring_sqe_set_data(entry, nullptr);
  enter();
}

void Uring::start_waiting() {
  while (!waiting_.empty() && in_flight_ < most_in_flight_) {
    Request& request = waiting_.pop_front();
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    TUTTI_ASSERT(entry != nullptr, "every entry is submitted at once");
    request.prepare(*entry);
    io_uring_sqe_set_data(entry, &request);
    ++in_flight_;
    enter();
  }
}

void Uring::enter() {
  for (int tries = 0; io_uring_submit(&ring_) < 0; ++tries) {
    TUTTI_ASSERT(tries < kEnterTries, "the kernel takes entries of a ring it made");
    sched_yield();
  }
}

void Uring::reap() {
  io_uring_cqe* completion = nullptr;
  while (io_uring_peek_cqe(&ring_, &completion) == 0) {
    auto* request = static_cast<Request*>(io_uring_cqe_get_data(completion));
    const int result = completion->res;
    io_uring_cqe_seen(&ring_, completion);
    if (request == nullptr) continue;  // the answer to a cancel
    --in_flight_;
    request->done(result);
    start_waiting();
  }
}

}  // namespace tutti
