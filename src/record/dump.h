// A recording as text: a table for people, lines of JSON for tools.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "record/reader.h"

namespace tutti {

struct DumpOptions {
  std::vector<std::string> kinds;  // only these; "wire." stands for all that begin so. Empty: all
  int64_t since_ns = INT64_MIN;    // only what happened from then on, on the recording's clock
};

// Those of the records that the options ask for.
std::vector<Record> select_records(const Recording& recording, std::span<const Record> records,
                                   const DumpOptions& options);

// For people: whose recording it is; a line per record; counters, gauges and what was lost.
std::string dump_heading(const Recording& recording);
std::string dump_records(const Recording& recording, std::span<const Record> records);
std::string dump_totals(const Recording& recording, uint64_t lost);

// For tools: one object per line. "type" is "recording", "event", "begin", "end", or "totals".
std::string dump_heading_json(const Recording& recording);
std::string dump_records_json(const Recording& recording, std::span<const Record> records);
std::string dump_totals_json(const Recording& recording, uint64_t lost);

}  // namespace tutti
