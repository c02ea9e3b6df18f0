#include "cli/job_filter.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/suggest.h"
#include "base/units.h"
#include "cli/job_words.h"

namespace tutti::cli {
namespace {

// What the head gives at once.
constexpr int64_t kMostJobs = 5'000;

std::vector<std::string_view> all_states() {
  std::vector<std::string_view> names;
  for (int state = 0; state < cluster::JobState_ARRAYSIZE; ++state)
    names.push_back(state_name(static_cast<cluster::JobState>(state)));
  return names;
}

Result<cluster::JobState> parse_state(std::string_view word) {
  const std::vector<std::string_view> names = all_states();
  const auto found = std::ranges::find(names, word);
  if (found != names.end()) return static_cast<cluster::JobState>(found - names.begin());
  const auto near = suggest(word, names);
  return fail(Code::invalid, "no job is ever '{}'{}; the states are {}", word,
              near ? fmt::format(" (did you mean {}?)", *near) : "", fmt::join(names, ", "));
}

Result<void> add_states(std::string_view text, cluster::JobsRequest& request) {
  while (true) {
    const size_t comma = text.find(',');
    TRY(const cluster::JobState state, parse_state(text.substr(0, comma)));
    request.add_states(state);
    if (comma == std::string_view::npos) return {};
    text.remove_prefix(comma + 1);
  }
}

}  // namespace

Result<cluster::JobsRequest> request_of(const JobFilter& filter, int64_t now_unix_ns) {
  cluster::JobsRequest request;
  request.set_all(filter.all || !filter.states.empty() || !filter.since.empty());
  for (const std::string& states : filter.states) TRY_DO(add_states(states, request));
  request.set_user(filter.user);
  request.set_name(filter.name);
  if (!filter.since.empty()) {
    const auto since = parse_duration(filter.since);
    if (!since)
      return fail(Code::invalid, "since '{}': write how long ago, such as 30m, 2h or 7d",
                  filter.since);
    request.set_since_unix_ns(std::max<int64_t>(1, now_unix_ns - to_ns(*since)));
  }
  if (!filter.limit) return request;
  if (*filter.limit < 1 || *filter.limit > kMostJobs)
    return fail(Code::invalid, "limit {}: 1 to {} jobs can be shown at once", *filter.limit,
                kMostJobs);
  request.set_most(static_cast<uint32_t>(*filter.limit));
  return request;
}

}  // namespace tutti::cli
