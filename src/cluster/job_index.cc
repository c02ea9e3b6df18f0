#include "cluster/job_index.h"

#include <algorithm>

#include "cluster/head_state.h"

namespace tutti {

bool fits(const cluster::JobsRequest& request, const JobMarks& job) {
  if (!request.all() && is_over(job.state)) return false;
  const auto& states = request.states();
  if (!states.empty() && std::ranges::find(states, job.state) == states.end()) return false;
  if (!request.user().empty() && request.user() != job.user) return false;
  if (!request.name().empty() && !name_fits(request.name(), job.name)) return false;
  return job.submitted_ns >= request.since_unix_ns();
}

// After a star that did not fit, the last one takes a character more.
bool name_fits(std::string_view pattern, std::string_view name) {
  size_t at = 0;
  size_t in = 0;
  size_t star = std::string_view::npos;
  size_t star_in = 0;
  while (in < name.size()) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      star_in = in;
    } else if (at < pattern.size() && (pattern[at] == '?' || pattern[at] == name[in])) {
      ++at;
      ++in;
    } else if (star != std::string_view::npos) {
      at = star + 1;
      in = ++star_in;
    } else {
      return false;
    }
  }
  return std::ranges::all_of(pattern.substr(at), [](char c) { return c == '*'; });
}

}  // namespace tutti
