#include "cli/output_sink.h"

namespace tutti::cli {
namespace {

// Enough to write in large pieces, little enough that a slow terminal is never far behind.
constexpr size_t kMostWaiting = 1 << 20;

}  // namespace

Task<Result<void>> OutputSink::room() {
  while (filling_.size() > kMostWaiting && !broken_) {
    Event& drained = *drained_;
    CO_TRY_DO(co_await drained.wait());
  }
  if (broken_) co_return fail(*broken_);
  co_return {};
}

void OutputSink::added() {
  if (filling_.empty()) return;
  char ring = 1;
  bell_.try_send(ring);
}

void OutputSink::close() {
  closed_ = true;
  char ring = 1;
  bell_.try_send(ring);
}

void OutputSink::note_failure(Error error) {
  lost_bytes_ += writing_.size();
  if (error.code() == Code::unavailable) broken_ = error;
  trouble_ = std::move(error);
}

Task<void> OutputSink::write_all() {
  while (true) {
    if (filling_.empty() && closed_) co_return;
    if (filling_.empty()) {
      auto rung = co_await bell_.recv();
      if (!rung) co_return;
      continue;
    }
    writing_.clear();
    std::swap(writing_, filling_);
    std::exchange(drained_, std::make_unique<Event>())->set();
    if (stream_ == nullptr) continue;
    if (broken_) {
      lost_bytes_ += writing_.size();
      continue;
    }
    const Bytes bytes = as_bytes(writing_);
    auto written = co_await stream_->write(bytes);
    if (written) continue;
    note_failure(std::move(written).error());
    if (Strand::current()->cancelled()) co_return;
  }
}

}  // namespace tutti::cli
