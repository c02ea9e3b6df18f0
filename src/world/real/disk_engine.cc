#include "world/real/disk_engine.h"

#include <cerrno>

namespace tutti {

namespace {
// Disks are quickest with a few requests at once; more threads would only queue in the kernel.
constexpr unsigned kThreads = 4;
constexpr unsigned kMostOnRing = 64;
}  // namespace

DiskEngine::DiskEngine(Loop& loop, DiskBackEnd back_end)
    : loop_(loop), pool_(loop, kThreads), ring_wanted_(back_end == DiskBackEnd::best) {}

bool DiskEngine::on_ring() {
  if (std::exchange(ring_wanted_, false))
    ring_ = Uring::start(
        loop_, kMostOnRing,
        {IORING_OP_OPENAT, IORING_OP_READ, IORING_OP_WRITE, IORING_OP_FSYNC, IORING_OP_RENAMEAT,
         IORING_OP_UNLINKAT, IORING_OP_STATX, IORING_OP_ASYNC_CANCEL});
  return ring_ != nullptr;
}

bool DiskEngine::Operation::await_ready() {
  if (cancelled_already()) {
    result_ = -ECANCELED;
    return true;
  }
  ringed_ = ring_can(request_) && engine_.on_ring();
  if (ringed_) {
    engine_.ring_->submit(on_ring_);
  } else {
    engine_.pool_.submit(on_thread_);
  }
  return result_.has_value();
}

void DiskEngine::Operation::on_cancel() {
  if (ringed_) {
    engine_.ring_->cancel(on_ring_);
  } else if (engine_.pool_.withdraw(on_thread_)) {
    finish(-ECANCELED);
  }
}

}  // namespace tutti
