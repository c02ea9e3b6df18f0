// The command line of `tutti run`.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"

namespace tutti::cli {

struct RunOptions {
  uint32_t ranks = 1;
  std::optional<Duration> timeout;
  Duration grace = 5s;
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
  std::vector<std::string> command;
  // "FILE.toml" alone is a job file, to be run on a cluster.
  bool is_job_file() const { return command.size() == 1 && command[0].ends_with(".toml"); }
};

// Every rank costs three descriptors; beyond this a host has other troubles.
constexpr uint32_t kMostRanks = 8192;

// What follows "tutti run". The error says what to write instead.
Result<RunOptions> parse_run_options(std::span<char* const> words);

extern const std::string_view kRunHelp;

}  // namespace tutti::cli
