// The command line of `tutti run`.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/range_set.h"
#include "base/result.h"
#include "base/units.h"
#include "cluster/job_limits.h"

namespace tutti::cli {

struct RunOptions {
  uint32_t ranks = 1;
  std::optional<Duration> timeout;
  Duration grace = 5s;
  bool says_ranks = false;  // and not by default; so does the next
  bool says_grace = false;
  std::vector<std::string> environment;  // "KEY=value", over ours
  std::string master_address;            // MASTER_ADDR, when given as a setting; else ""
  uint16_t master_port = 0;
  std::string folder;
  bool prefix = true;
  bool json = false;
  bool use_group = true;
  bool local = false;    // without the cluster, even if there is one
  bool cluster = false;  // with it, or not at all
  bool help = false;
  // Of workers that train: each may be killed so often in an hour, and another goes on in its
  // place, one of so many that wait for that if there are any.
  std::optional<uint32_t> restarts;
  uint32_t spares = 0;
  std::vector<std::string> command;
  RangeSet array;     // of submit: a job for each
  bool wait = false;  // of submit: until all are over
  bool replaces() const { return restarts.value_or(0) > 0; }
  // "FILE.toml" alone is a job file, to be run on a cluster.
  bool is_job_file() const { return command.size() == 1 && command[0].ends_with(".toml"); }
};

// As in job files; a cluster says whether it has room for them.
constexpr auto kMostProcesses = static_cast<uint32_t>(kCountLimits.most);
// Without a cluster. Every rank costs three descriptors; beyond this a host has other troubles.
constexpr uint32_t kMostRanks = 8192;

// Of one submission; what is larger is submitted in parts, while the first ones run.
constexpr uint64_t kMostInArray = 100'000;

// What follows "tutti run" or "tutti submit". The error says what to write instead.
Result<RunOptions> parse_run_options(std::span<char* const> words);
Result<RunOptions> parse_submit_options(std::span<char* const> words);
// Of `tutti train`: the file and its own options are the command.
Result<RunOptions> parse_train_options(std::span<char* const> words);

extern const std::string_view kRunHelp;

}  // namespace tutti::cli
