// Which jobs people want to see, in their words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/head.pb.h"

namespace tutti::cli {

struct JobFilter {
  bool all = false;                 // those that ended too
  std::vector<std::string> states;  // "failed", "failed,killed"; finds those that ended too
  std::string user;
  std::string name;   // may have * and ?
  std::string since;  // "2h": submitted at most that long ago, ended or not
  std::optional<int64_t> limit;
};

// Code::invalid says what is wrong with a word, and what would be right.
Result<cluster::JobsRequest> request_of(const JobFilter& filter, int64_t now_unix_ns);

}  // namespace tutti::cli
