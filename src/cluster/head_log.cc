// What the head remembers.
#include "base/log.h"
#include "cluster/head.h"

namespace tutti {
namespace {

// Of jobs that are taken for a snapshot without a break: a millisecond.
constexpr size_t kSliceBytes = 512_KiB;

}  // namespace

Result<void> Head::on_snapshot(uint64_t sequence, std::string_view state) {
  TUTTI_PROBE("head: a snapshot is read");
  snapshot_at_ = std::max<uint64_t>(snapshot_at_, state.size());
  return restore_snapshot(sequence, state, state_);
}

Result<void> Head::on_record(uint64_t sequence, std::string_view bytes) {
  cluster::HeadRecord record;
  if (!record.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return fail(Code::corrupt, "record {} of the head's log does not parse", sequence);
  state_.replay(sequence, record, [this](const HeadJob& job) {
    if (feed_) feed_->part(job);
  });
  return {};
}

// The record tells what was done already, of this job or (0) of a host.
uint64_t Head::post(uint64_t job, const cluster::HeadRecord& record) {
  const std::string bytes = record.SerializeAsString();
  const uint64_t sequence = log_->post(bytes);
  if (HeadJob* found = state_.find(job)) found->sequence = sequence;
  if (taker_) taker_->note(job);
  if (feed_) feed_->touch(job);
  snapshot_if_large();
  return sequence;
}

void Head::snapshot_if_large() {
  if (log_->bytes_since_snapshot() < snapshot_at_ || std::exchange(snapshotting_, true)) return;
  strands_->spawn(take_snapshot());
}

// In simulation every job may change while the others are taken.
Task<void> Head::take_jobs() {
  const bool slowly = TUTTI_FAULT(world_, "head: a snapshot takes its time");
  while (!taker_->take_some(slowly ? 1 : kSliceBytes)) {
    co_await yield();
    if (slowly) (void)co_await world_.clock().sleep(2ms);
  }
}

Task<void> Head::take_snapshot() {
  taker_.emplace(state_);
  co_await take_jobs();
  const uint64_t sequence = log_->last_sequence();
  EventLog::Pieces state = taker_->finish();
  taker_.reset();
  uint64_t size = 0;
  for (const std::string& piece : state) size += piece.size();
  // Jobs that were forgotten are not in the snapshot, and soon not in the log: the index must know.
  if (feed_) co_await feed_->caught_up(sequence);
  auto taken = co_await log_->snapshot(sequence, std::move(state));
  // As much log as state: a record is written twice, and read in twice the time it must be.
  snapshot_at_ = std::max(options_.log_bytes, size);
  if (!taken) {
    // Not at once again.
    snapshot_at_ += log_->bytes_since_snapshot();
    if (taken.error().code() != Code::cancelled)
      TUTTI_LOG(warn, "no snapshot of the head's log", {{"why", taken.error().text()}});
  }
  snapshotting_ = false;
}

}  // namespace tutti
