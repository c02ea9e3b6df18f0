// Opening an event log: what its folder holds, replayed, mended where a crash left it torn, and
// ready to go on. The parts of event_log.h that happen once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "world/disk.h"
#include "world/task.h"
#include "world/world.h"

namespace tutti {

// Who gets what a log holds. An error ends the opening and is its result.
class EventLogReader {
 public:
  virtual ~EventLogReader() = default;
  virtual Result<void> on_snapshot(uint64_t sequence, std::string_view state) = 0;
  virtual Result<void> on_record(uint64_t sequence, std::string_view record) = 0;
};

namespace event_log {

struct Replayed {
  std::unique_ptr<File> file;  // the last segment; null when the next record begins one
  uint64_t log_id = 0;         // 0: not drawn yet
  uint64_t segment_first = 0;
  uint64_t segment_end = 0;
  uint64_t last_sequence = 0;
  uint64_t snapshot_sequence = 0;
  uint64_t bytes_since_snapshot = 0;
  bool folder_made = false;
};

Task<Result<Replayed>> replay(World& world, std::string folder, EventLogReader& reader);

// The files of a log, sorted.
struct Files {
  std::vector<uint64_t> segments;
  std::vector<uint64_t> snapshots;
  std::vector<std::string> temporaries;  // snapshots that were never finished

  // The segment that has this record, or would have it: the last that does not begin after it.
  // 0 when there is none.
  uint64_t segment_of(uint64_t sequence) const;
};
Task<Result<Files>> list_files(Disk& disk, std::string folder);

// Removes what a durable snapshot made needless: older ones, and segments before the one given.
Task<Result<void>> remove_needless(Disk& disk, std::string folder, Files files, uint64_t snapshot,
                                   uint64_t first_segment);

}  // namespace event_log

}  // namespace tutti
