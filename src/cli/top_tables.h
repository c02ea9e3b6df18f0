// The tables of `tutti top`: jobs, the roles of a job, the hosts of a role, the processes there.
// Made of a look at the cluster alone.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/top_data.h"

namespace tutti::cli {

enum class Tone : unsigned char { plain, good, busy, bad };

struct Cell {
  std::string text;
  std::optional<double> number;  // what rows are sorted by; else by the text
};

struct TopColumn {
  std::string_view title;
  bool right = false;  // numbers
  // Where the terminal is narrow, columns with low numbers go first; what remains is cut at the
  // end.
  int worth = 0;
};

struct TopRow {
  std::string key;  // the same from look to look
  std::vector<Cell> cells;
  Tone tone = Tone::plain;
  // What the row stands for.
  uint64_t job = 0;
  std::string role;
  uint32_t host = 0;
  RangeSet processes;
};

struct TopTable {
  std::vector<TopColumn> columns;
  std::vector<TopRow> rows;
};

TopTable jobs_table(const Look& look);
TopTable roles_table(const Look& look);
// Of one role; with the processes of those hosts that answered.
TopTable hosts_table(const Look& look, const std::string& role);

struct ProcessesShown {
  std::optional<std::string> role;  // nothing: of all
  std::optional<uint32_t> host;
  bool folded = true;  // those that are alike in one row; what they use is the mean
  RangeSet only;       // of these; none: of all
};
TopTable processes_table(const Look& look, const ProcessesShown& shown);

// What a host of the job is called.
std::string host_name(const Look& look, uint32_t node);

}  // namespace tutti::cli
