#include "cluster/event_log.h"

#include <algorithm>

#include "base/log.h"
#include "base/queue_mark.h"
#include "cluster/event_log_format.h"
#include "world/fault.h"
#include "world/semaphore.h"

namespace tutti {

using event_log::FileKind;

// Whoever waits while another strand writes: woken when its record is on disk, when the log breaks,
// or when it is its turn to write.
namespace {

// Read only: pages of it that nobody writes to are no memory.
char kZeros[kMaxReservedBytes];

uint64_t bytes_of(const EventLog::Pieces& state) {
  uint64_t bytes = 0;
  for (const std::string& piece : state) bytes += piece.size();
  return bytes;
}

}  // namespace

class EventLog::Wait final : public detail::GrantWaiter {
 public:
  Wait(EventLog& log, uint64_t sequence) : sequence(sequence), log_(log) {}
  bool await_ready() {
    cancelled_ = cancelled_already();
    return cancelled_;
  }
  void await_suspend(std::coroutine_handle<> coroutine) {
    park(coroutine);
    log_.waiting_.push_back(*this);
  }

  const uint64_t sequence;

 private:
  EventLog& log_;
};

Task<Result<std::unique_ptr<EventLog>>> EventLog::open(World& world, EventLogOptions options,
                                                       EventLogReader& reader) {
  TUTTI_ASSERT(options.segment_bytes <= kMaxSegmentBytes, "a segment is read in one piece");
  const std::string folder = options.folder;
  auto replayed = co_await event_log::replay(world, folder, reader);
  if (!replayed)
    co_return fail(replayed.error().context(fmt::format("opening the event log {}", folder)));
  co_return std::unique_ptr<EventLog>(
      new EventLog(world, std::move(options), std::move(*replayed)));
}

EventLog::EventLog(World& world, EventLogOptions options, event_log::Replayed replayed)
    : world_(world),
      options_(std::move(options)),
      file_(std::move(replayed.file)),
      log_id_(replayed.log_id),
      segment_first_(replayed.segment_first),
      segment_end_(replayed.segment_end),
      last_sequence_(replayed.last_sequence),
      durable_sequence_(replayed.last_sequence),
      snapshot_sequence_(replayed.snapshot_sequence),
      posted_bytes_(replayed.bytes_since_snapshot),
      folder_made_(replayed.folder_made) {}

EventLog::~EventLog() {
  TUTTI_ASSERT(waiting_.empty(), "an event log outlives those who wait for it");
}

uint64_t EventLog::post(std::string_view record) {
  TUTTI_ASSERT(!closed_, "nothing is posted to a closed event log");
  TUTTI_ASSERT(record.size() <= kMaxEventBytes, "an event is small");
  ++last_sequence_;
  posted_bytes_ += record.size();
  if (broken_) return last_sequence_;
  event_log::add_record(pending_, record);
  TUTTI_QUEUE("event log: bytes that wait for the disk", pending_.size(),
              kMaxPendingEventBytes + 2 * kMaxEventBytes);
  if (pending_.size() > kMaxPendingEventBytes)
    break_with({Code::exhausted, fmt::format("more than {} of events wait for the disk",
                                             format_bytes(kMaxPendingEventBytes))});
  return last_sequence_;
}

Task<Result<uint64_t>> EventLog::append(std::string record) {
  if (record.size() > kMaxEventBytes)
    co_return fail(Code::invalid, "an event has {} bytes, and {} are allowed", record.size(),
                   kMaxEventBytes);
  const uint64_t sequence = post(record);
  std::string().swap(record);
  CO_TRY_DO(co_await durable(sequence));
  co_return sequence;
}

Task<Result<void>> EventLog::durable(uint64_t sequence) {
  TUTTI_ASSERT(sequence <= last_sequence_, "only what was posted becomes durable");
  while (sequence > durable_sequence_) {
    if (broken_) co_return fail(*broken_);
    if (writing_) {
      Wait wait(*this, sequence);
      CO_TRY_DO(co_await wait);
      continue;
    }
    if (Strand::current()->cancelled()) {
      wake_waiting();  // it may have been its turn
      co_return fail(cancelled_error());
    }
    co_await write_batch();
  }
  co_return {};
}

// One batch, then another strand's turn: nobody writes for others forever.
Task<void> EventLog::write_batch() {
  const Shield shield;  // others wait for this batch
  writing_ = true;
  Result<void> written;
  if (needs_segment()) written = co_await begin_segment();
  if (written && broken_) written = fail(*broken_);
  if (written) {
    const uint64_t last = last_sequence_;
    std::string batch = take_batch();
    const uint64_t end = segment_end_ + batch.size();
    const Bytes bytes = as_bytes(batch);
    written = co_await file_->write(segment_end_, bytes);
    std::string().swap(batch);  // a sync takes longer
    if (written && options_.reserve && end > reserved_end_) written = co_await reserve(end);
    if (written) written = co_await file_->sync();
    if (written) segment_end_ = end;
    if (written) durable_sequence_ = last;
  }
  writing_ = false;
  if (!written) break_with(written.error());
  wake_waiting();
}

bool EventLog::needs_segment() {
  const bool empty = segment_end_ <= event_log::kFileHeaderBytes;
  const bool full = segment_end_ >= options_.segment_bytes ||
                    TUTTI_FAULT(world_, "event log: a segment ends early");
  return file_ == nullptr || (full && !empty);
}

std::string EventLog::take_batch() {
  std::string batch = std::exchange(pending_, {});
  const auto records = static_cast<uint32_t>(last_sequence_ - durable_sequence_);
  event_log::seal_batch(batch, {.log_id = log_id(),
                                .offset = segment_end_,
                                .first_sequence = durable_sequence_ + 1,
                                .records = records});
  return batch;
}

// On disk with the batch that needed it.
Task<Result<void>> EventLog::reserve(uint64_t end) {
  const Bytes zeros = std::as_bytes(std::span(kZeros));
  const Bytes some = zeros.first(std::clamp(end, kMinReservedBytes, kMaxReservedBytes));
  CO_TRY_DO(co_await file_->write(end, some));
  reserved_end_ = end + some.size();
  co_return {};
}

// What is left of it needs no room any more. Whoever reads it all the same finds zeros.
Task<void> EventLog::cut_reserve() {
  if (file_ == nullptr || reserved_end_ <= segment_end_) co_return;
  (void)co_await file_->truncate(segment_end_);
  reserved_end_ = 0;
}

// The header and the name are on disk before the first batch is written: so a header that is broken
// and followed by something is damage.
Task<Result<void>> EventLog::begin_segment() {
  co_await cut_reserve();
  CO_TRY_DO(co_await make_folder());
  const uint64_t first = durable_sequence_ + 1;
  const event_log::FileHeader header{{FileKind::segment, first}, log_id()};
  const std::string path = options_.folder + "/" + event_log::file_name(header.name);
  const OpenOptions options{.write = true, .create = true, .exclusive = true};
  CO_TRY(auto file, co_await world_.disk().open(path, options));
  const std::string text = event_log::encode_file_header(header);
  const Bytes bytes = as_bytes(text);
  CO_TRY_DO(co_await file->write(0, bytes));
  CO_TRY_DO(co_await file->sync());
  CO_TRY_DO(co_await world_.disk().sync_directory(options_.folder));
  file_ = std::move(file);
  segment_first_ = first;
  segment_end_ = text.size();
  co_return {};
}

Task<Result<void>> EventLog::make_folder() {
  if (folder_made_) co_return {};
  CO_TRY_DO(co_await make_directories_durably(world_.disk(), options_.folder));
  folder_made_ = true;
  co_return {};
}

uint64_t EventLog::log_id() {
  if (log_id_ == 0) log_id_ = world_.random().next() | 1;
  return log_id_;
}

void EventLog::break_with(const Error& error) {
  if (broken_) return;
  broken_ = error.context(fmt::format("writing the event log {}", options_.folder));
  pending_ = {};
  if (!writing_) wake_waiting();
}

// Those whose wait is over, and one who writes next.
void EventLog::wake_waiting() {
  bool writer = false;
  Wait* next = nullptr;
  for (Wait* wait = waiting_.first(); wait != nullptr; wait = next) {
    next = waiting_.next(*wait);
    const bool over = broken_ || wait->sequence <= durable_sequence_;
    if (!over && writer) continue;
    writer |= !over;
    wait->wake();
  }
}

Task<Result<void>> EventLog::snapshot(uint64_t sequence, std::string state) {
  Pieces pieces;
  pieces.push_back(std::move(state));
  return snapshot(sequence, std::move(pieces));
}

Task<Result<void>> EventLog::snapshot(uint64_t sequence, Pieces state) {
  TUTTI_ASSERT(!snapshotting_ && !closed_, "one snapshot at a time, of an open log");
  TUTTI_ASSERT(sequence >= snapshot_sequence_, "snapshots go forward");
  const uint64_t size = bytes_of(state);
  if (size > kMaxSnapshotBytes)
    co_return fail(Code::exhausted, "a snapshot has {} bytes, and {} are allowed", size,
                   kMaxSnapshotBytes);
  snapshotting_ = true;
  const uint64_t posted_bytes = posted_bytes_;
  auto written = co_await write_snapshot(sequence, std::move(state));
  if (written) {
    snapshot_sequence_ = sequence;
    snapshot_bytes_ = posted_bytes;
    co_await remove_needless(sequence);
  }
  snapshotting_ = false;
  if (!written)
    co_return fail(
        written.error().context(fmt::format("a snapshot of the event log {}", options_.folder)));
  co_return {};
}

Task<Result<void>> EventLog::write_snapshot(uint64_t sequence, Pieces state) {
  CO_TRY_DO(co_await durable(sequence));
  if (broken_) co_return fail(*broken_);
  if (TUTTI_FAULT(world_, "event log: there is no room for a snapshot"))
    co_return fail(Code::exhausted, "no room for a snapshot");
  CO_TRY_DO(co_await make_folder());
  const std::string path =
      options_.folder + "/" + event_log::file_name({FileKind::snapshot, sequence});
  const std::string temporary = path + ".new";
  auto written = co_await write_pieces(temporary, sequence, std::move(state));
  if (!written) {
    const Shield shield;  // leave no half-written file behind, even when cancelled
    (void)co_await world_.disk().remove(temporary);
    co_return fail(written.error().context(fmt::format("writing {}", path)));
  }
  CO_TRY_DO(co_await world_.disk().rename(temporary, path));
  co_return co_await world_.disk().sync_directory(options_.folder);
}

// What is in front has the checksum of the rest, and comes last.
Task<Result<void>> EventLog::write_pieces(std::string path, uint64_t sequence, Pieces state) {
  const OpenOptions options{.write = true, .create = true, .truncate = true};
  CO_TRY(auto file, co_await world_.disk().open(path, options));
  const event_log::FileHeader header{{FileKind::snapshot, sequence}, log_id()};
  // A frame is not aligned as a hasher must be.
  const auto sealer = std::make_unique<event_log::SnapshotSealer>(header, bytes_of(state));
  uint64_t end = event_log::kSnapshotFront;
  for (std::string& piece : state) {
    const Bytes bytes = as_bytes(piece);
    sealer->add(bytes);
    CO_TRY_DO(co_await file->write(end, bytes));
    end += piece.size();
    piece = {};
  }
  const std::string zeros = sealer->zeros();
  const Bytes padding = as_bytes(zeros);
  CO_TRY_DO(co_await file->write(end, padding));
  const std::string front = sealer->front();
  const Bytes first = as_bytes(front);
  CO_TRY_DO(co_await file->write(0, first));
  co_return co_await file->sync();
}

// What cannot be removed now is removed by the next snapshot or opening.
Task<void> EventLog::remove_needless(uint64_t snapshot) {
  bool past_all = durable_sequence_ == snapshot && !writing_;
  if (past_all && segment_first_ > snapshot) past_all = false;  // it is empty, and of use
  if (past_all) file_ = nullptr;
  auto files = co_await event_log::list_files(world_.disk(), options_.folder);
  Result<void> removed;
  if (files) {
    const uint64_t first = past_all ? snapshot + 1 : files->segment_of(snapshot + 1);
    removed = co_await event_log::remove_needless(world_.disk(), options_.folder, std::move(*files),
                                                  snapshot, first);
  } else {
    removed = fail(files.error());
  }
  if (!removed && removed.error().code() != Code::cancelled)
    TUTTI_LOG(warn, "old event log files stay",
              {{"folder", options_.folder}, {"why", removed.error().text()}});
}

Task<Result<void>> EventLog::close() {
  TUTTI_ASSERT(!snapshotting_ && !closed_, "an event log is closed once, after its snapshots");
  closed_ = true;
  CO_TRY_DO(co_await durable(last_sequence_));
  co_await cut_reserve();
  file_ = nullptr;
  co_return {};
}

}  // namespace tutti
