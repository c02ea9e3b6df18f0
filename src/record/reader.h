// Reads recordings: finished ones, those of killed processes, and those being written right now.
//
// What a recording holds at one moment is a Recording, a plain value. Records that were torn or
// overwritten while we looked are left out and counted; nothing a file can hold misleads the reader
// into giving a record nobody wrote.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "record/layout.h"
#include "world/disk.h"

namespace tutti {

struct Record {
  using Op = record_layout::Op;
  uint64_t sequence = 0;  // unique in its recording; grows within a thread
  int64_t time_ns = 0;    // monotonic, as Recording::created_ns
  uint32_t kind = 0;      // always an index into Recording::kinds
  uint16_t thread = 0;
  Op op = Op::event;
  uint64_t span = 0;     // begin, end: the span; event: the span it belongs to, or 0
  uint64_t parent = 0;   // begin: the enclosing span, or 0
  int64_t began_ns = 0;  // end: when the span began
  int64_t a = 0;
  int64_t b = 0;
};

struct Recording {
  struct Kind {
    std::string name;
    std::string a_label;
    std::string b_label;
  };
  struct Cell {
    std::string name;
    bool gauge = false;  // else a counter
    int64_t value = 0;
  };

  std::string host;
  std::string process;
  uint64_t pid = 0;
  int64_t created_ns = 0;
  int64_t created_unix_ns = 0;
  int64_t closed_ns = 0;  // 0: the process still records, or was killed

  std::vector<Record> records;  // by time
  std::vector<Kind> kinds;
  std::vector<Cell> cells;

  uint64_t overwritten = 0;    // older records that made room for newer ones
  uint64_t torn = 0;           // begun and not finished: the writer died there, or is at it now
  uint64_t refused_names = 0;  // kinds, counters and gauges that found their table full

  uint64_t written() const { return records.size() + overwritten + torn; }
};

// The bytes of a whole file. The error says what is wrong and at which byte.
Result<Recording> parse_recording(Bytes file);

Task<Result<Recording>> read_recording(Disk& disk, std::string path);

// The records of `now` that were not in `before`, an earlier look at the same file.
std::vector<Record> records_since(const Recording& before, const Recording& now);

}  // namespace tutti
