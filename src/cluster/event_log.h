// An append-only, checksummed log with snapshots on a World's disk: the truth of whoever owns it.
//
//   CO_TRY(auto log, co_await EventLog::open(world, {.folder = "/var/lib/tutti/head"}, reader));
//   CO_TRY_DO(co_await log->append(event));            // on disk, or an error
//   if (log->bytes_since_snapshot() > 64_MiB)
//     CO_TRY_DO(co_await log->snapshot(log->last_sequence(), state));
//
// A record that durable() acknowledged is there after every crash, and nothing is there that was
// not posted. Of records that were not acknowledged, a crash leaves a prefix. What the files hold
// is in docs/event-log.md.
//
// It has no strand of its own: one of those who wait in durable() writes for all who wait by then,
// and hands the work to the next. A failed write or sync breaks the log for good, since nobody
// knows what is on disk; open it again to go on from what is. It belongs to one executor, and to
// one owner: two that write to a folder at once destroy each other's records. While nobody waits it
// holds no buffers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/list.h"
#include "base/result.h"
#include "base/units.h"
#include "cluster/event_log_replay.h"
#include "world/task.h"
#include "world/world.h"

namespace tutti {

// Events are small; what is larger belongs into a file of its own that an event names.
constexpr uint64_t kMaxEventBytes = 16_MiB;
// Of records posted and not yet written: seconds of a disk that stands still, at full speed.
constexpr uint64_t kMaxPendingEventBytes = 256_MiB;
// A state is in memory twice while it is read, or taken to be written.
constexpr uint64_t kMaxSnapshotBytes = 1_GiB;
// A segment is read in one piece when the log is opened.
constexpr uint64_t kMaxSegmentBytes = 512_MiB;
// Of zeros behind the last record: as much again as there is, within these.
constexpr uint64_t kMinReservedBytes = 64_KiB;
constexpr uint64_t kMaxReservedBytes = 1_MiB;

struct EventLogOptions {
  std::string folder;               // of this log alone; made with the first record
  uint64_t segment_bytes = 64_MiB;  // a batch that begins beyond this begins a new file
  // Files are made longer in steps, with zeros, up to kMaxReservedBytes at once: a sync that
  // changes no size takes a quarter of the time. For who waits for single records; it takes room.
  bool reserve = false;
};

class EventLog {
 public:
  // Replays the newest snapshot, if there is one, and every record after it, in order; all that was
  // replayed is on disk when this returns. A folder that does not exist is an empty log. Damage is
  // Code::corrupt, a newer format Code::unsupported; an error of the reader ends the opening.
  static Task<Result<std::unique_ptr<EventLog>>> open(World& world, EventLogOptions options,
                                                      EventLogReader& reader);
  ~EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  // Puts a record of at most kMaxEventBytes in line, and gives its sequence number: from 1, without
  // gaps. It is written by the next who waits; past kMaxPendingEventBytes the log breaks.
  uint64_t post(std::string_view record);
  // Waits until this record and all before it are on disk. Whoever is cancelled while writing
  // finishes the batch first.
  Task<Result<void>> durable(uint64_t sequence);
  // Both; Code::invalid for a record that is too large.
  Task<Result<uint64_t>> append(std::string record);

  // A state that stands for everything up to `sequence`, which is made durable first: the next open
  // begins there. Records and snapshots it makes needless are removed. One at a time. When it
  // fails, the log is as it was.
  Task<Result<void>> snapshot(uint64_t sequence, std::string state);
  // The same of a state in pieces, which are written one by one and never copied.
  using Pieces = std::vector<std::string>;
  Task<Result<void>> snapshot(uint64_t sequence, Pieces state);
  // Of records posted since the last snapshot began, or replayed after it.
  uint64_t bytes_since_snapshot() const { return posted_bytes_ - snapshot_bytes_; }

  uint64_t identity() { return log_id(); }  // in all its files, and in no other log's
  uint64_t last_sequence() const { return last_sequence_; }  // 0: none yet
  uint64_t durable_sequence() const { return durable_sequence_; }

  // Writes what is left. No record may be posted any more.
  Task<Result<void>> close();

 private:
  class Wait;
  EventLog(World& world, EventLogOptions options, event_log::Replayed replayed);
  Task<void> write_batch();
  bool needs_segment();
  std::string take_batch();
  Task<Result<void>> reserve(uint64_t end);
  Task<void> cut_reserve();
  Task<Result<void>> begin_segment();
  Task<Result<void>> make_folder();
  Task<Result<void>> write_snapshot(uint64_t sequence, Pieces state);
  Task<Result<void>> write_pieces(std::string path, uint64_t sequence, Pieces state);
  Task<void> remove_needless(uint64_t snapshot);
  void break_with(const Error& error);
  void wake_waiting();
  uint64_t log_id();

  World& world_;
  EventLogOptions options_;
  std::unique_ptr<File> file_;  // the segment being written; null when the next batch begins one
  std::string pending_;         // the next batch: records after durable_sequence_, but for one that
                                // is being written
  std::optional<Error> broken_;
  List<Wait> waiting_;
  uint64_t log_id_;
  uint64_t segment_first_;
  uint64_t segment_end_;
  uint64_t reserved_end_ = 0;  // of the file, if that is beyond segment_end_
  uint64_t last_sequence_;
  uint64_t durable_sequence_;
  uint64_t snapshot_sequence_;
  uint64_t posted_bytes_;
  uint64_t snapshot_bytes_ = 0;  // of posted_bytes_, what the snapshot stands for
  bool folder_made_;
  bool writing_ = false;
  bool snapshotting_ = false;
  bool closed_ = false;
};
static_assert(sizeof(EventLog) <= 320, "a simulation has a million of them");

}  // namespace tutti
