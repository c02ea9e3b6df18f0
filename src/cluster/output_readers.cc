#include "cluster/output_readers.h"

namespace tutti {
namespace {

// What a pipe holds by default: one read empties it.
constexpr size_t kReadBytes = 64 << 10;
// After the ranks are gone, how long a pipe may be silent, and a listener busy with one piece.
constexpr Duration kSilence = 500ms;
constexpr int kSilencesForBusyListener = 4;

}  // namespace

Result<void> OutputReaders::add(uint32_t rank, RankStream kind, Handle handle) {
  TRY(std::unique_ptr<Stream> stream, world_.network().adopt(std::move(handle)));
  ++unfinished_;
  readers_.spawn(read(rank, kind, std::move(stream)));
  return {};
}

Task<void> OutputReaders::read(uint32_t rank, RankStream kind, std::unique_ptr<Stream> stream) {
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(kReadBytes);
  while (true) {
    const MutableBytes into(buffer.get(), kReadBytes);
    auto count = co_await stream->read(into);
    if (!count && count.error().code() == Code::cancelled) co_return;
    // An error of a pipe is the end of what can be read from it.
    const Bytes bytes(buffer.get(), count.value_or(0));
    ++progress_;
    ++handing_over_;
    auto taken = co_await listener_.on_output(rank, kind, bytes);
    --handing_over_;
    ++progress_;
    if (!taken && taken.error().code() == Code::cancelled) co_return;
    if (!taken && !error_) {
      error_ = std::move(taken).error();
      over_.set();
    }
    if (bytes.empty()) break;
  }
  if (--unfinished_ == 0) over_.set();
}

Task<std::optional<Error>> OutputReaders::failure() {
  (void)co_await over_.wait();
  co_return error_;
}

Task<OutputEnd> OutputReaders::finish(bool patient) {
  patient_ = patient_ && patient;
  if (unfinished_ > 0) {
    Scope watching;
    watching.spawn(give_up_when_stuck());
    (void)co_await readers_.join();
    watching.cancel();
    (void)co_await watching.join();
  } else {
    (void)co_await readers_.join();
  }
  co_return unfinished_ == 0 ? OutputEnd::complete : end_;
}

Task<void> OutputReaders::give_up_when_stuck() {
  int silences = 0;
  while (true) {
    const uint64_t before = progress_;
    auto slept = co_await world_.clock().sleep(kSilence);
    if (!slept) co_return;
    silences = progress_ == before ? silences + 1 : 0;
    const bool listener_busy = handing_over_ > 0;
    if (silences == 0 || (listener_busy && patient_)) continue;
    if (listener_busy && silences < kSilencesForBusyListener) continue;
    end_ = listener_busy ? OutputEnd::not_taken : OutputEnd::held;
    readers_.cancel();
    co_return;
  }
}

}  // namespace tutti
