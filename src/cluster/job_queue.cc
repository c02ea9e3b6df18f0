#include "cluster/job_queue.h"

#include <algorithm>

#include "base/assert.h"

namespace tutti {

void JobQueue::push(uint64_t job, const std::string& account) {
  lines_[account].push_back(job);
  ++size_;
}

std::optional<JobQueue::First> JobQueue::first_but(const std::set<std::string>& accounts) const {
  std::optional<First> first;
  for (const auto& [account, line] : lines_)
    if (!accounts.contains(account) && (!first || line.front() < first->job))
      first = First{line.front(), account};
  return first;
}

void JobQueue::pop(const std::string& account) {
  const auto line = lines_.find(account);
  TUTTI_ASSERT(line != lines_.end(), "only who stands in a line leaves it");
  line->second.pop_front();
  if (line->second.empty()) lines_.erase(line);
  --size_;
}

void JobQueue::step_aside(const std::string& account) {
  aside_.emplace(lines_.at(account).front(), account);
  pop(account);
  ++size_;
}

void JobQueue::call_back() {
  for (const auto& [job, account] : aside_) {
    std::deque<uint64_t>& line = lines_[account];
    line.insert(std::ranges::lower_bound(line, job), job);
  }
  aside_.clear();
}

size_t JobQueue::size_of(const std::string& account) const {
  const auto line = lines_.find(account);
  return line == lines_.end() ? 0 : line->second.size();
}

std::vector<uint64_t> JobQueue::all() const {
  std::vector<uint64_t> jobs;
  jobs.reserve(size_);
  for (const auto& [account, line] : lines_) jobs.insert(jobs.end(), line.begin(), line.end());
  for (const auto& [job, account] : aside_) jobs.push_back(job);
  std::ranges::sort(jobs);
  return jobs;
}

}  // namespace tutti
