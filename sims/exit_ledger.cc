#include "sims/exit_ledger.h"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::sims {
namespace {

std::string name(const Life& life) {
  return fmt::format("process {} of job {} in epoch {:x}", life.process, life.job, life.epoch);
}

// Whether it was not among them yet.
bool add(std::vector<uint64_t>& to, uint64_t one) {
  if (std::ranges::find(to, one) != to.end()) return false;
  to.push_back(one);
  return true;
}

}  // namespace

void ExitLedger::new_agent(uint32_t host) {
  if (host >= agents_.size()) agents_.resize(host + 1);
  ++agents_[host];
}

void ExitLedger::began(const Life& life, uint32_t host, uint32_t boot) {
  Story& story = stories_[life];
  if (story.began) complain_(name(life) + " ran twice");
  if (!story.agents.empty() || !story.coordinators.empty())
    complain_(name(life) + " began after its end was told");
  story.began = true;
  story.host = host;
  story.boot = boot;
}

void ExitLedger::ended(const Life& life, End end, int64_t now_ns) {
  Story& story = stories_[life];
  story.ended = true;
  story.ended_at_ns = now_ns;
  story.end = end;
}

void ExitLedger::compare(const Life& life, const Story& story, const cluster::Exit& told) {
  if (!story.began) return;  // it was killed before its program ran
  if (!story.ended) {
    complain_(fmt::format("the end of {} is told, and it lives", name(life)));
  } else if (!story.end.with_host &&
             (told.code() != story.end.code || (told.signal() != 0) != story.end.killed)) {
    const auto how = [](int code, bool killed) {
      return killed ? "by a signal" : fmt::format("with code {}", code);
    };
    complain_(fmt::format("{} ended {}, and {} is told", name(life),
                          how(story.end.code, story.end.killed),
                          how(told.code(), told.signal() != 0)));
  }
}

void ExitLedger::noted(uint32_t node, uint64_t job, uint64_t epoch, uint32_t process,
                       const cluster::Exit& exit) {
  const Life life{job, process, epoch};
  Story& story = stories_[life];
  compare(life, story, exit);
  if (!add(story.agents, node < agents_.size() ? agents_[node] : 0))
    complain_(
        fmt::format("the end of {} was told twice to the agent of host {}", name(life), node));
}

void ExitLedger::heard(uint64_t job, const cluster::Row& row, const RangeSet& processes) {
  for (const uint32_t process : processes.members()) {
    const Life life{job, process, row.epoch()};
    Story& story = stories_[life];
    // With a message it is a guess: of who never began, or whose keeper is gone.
    if (row.message().empty() || !story.ended) compare(life, story, row.exit());
    story.heard = true;
  }
}

void ExitLedger::answered(uint64_t coordinator, uint64_t job, const cluster::Row& row,
                          const RangeSet& processes) {
  for (const uint32_t process : processes.members()) {
    const Life life{job, process, row.epoch()};
    Story& story = stories_[life];
    if (!add(story.coordinators, coordinator))
      complain_(
          fmt::format("coordinator {:x} heard of the end of {} twice", coordinator, name(life)));
  }
}

void ExitLedger::check_noted(const BootOf& boot_of, const OverAt& over_at_ns) {
  for (const auto& [life, story] : stories_) {
    if (!story.ended || story.end.with_host || boot_of(story.host) != story.boot) continue;
    if (story.agents.empty() && story.ended_at_ns <= over_at_ns(life.job))
      complain_(
          fmt::format("no agent of host {} was told of the end of {}", story.host, name(life)));
  }
}

uint64_t ExitLedger::returned_before(uint64_t job, uint32_t process, uint64_t epoch) const {
  uint64_t last = 0;
  for (auto at = stories_.lower_bound({job, process, 0}); at != stories_.end(); ++at) {
    const auto& [life, story] = *at;
    if (life.job != job || life.process != process || life.epoch >= epoch) break;
    const bool well = story.ended && !story.end.with_host && !story.end.killed;
    if (story.heard && well && story.end.code == 0) last = life.epoch;
  }
  return last;
}

uint64_t ExitLedger::begun_after(uint64_t job, uint32_t process, uint64_t epoch) const {
  for (auto at = stories_.upper_bound({job, process, epoch}); at != stories_.end(); ++at) {
    const auto& [life, story] = *at;
    if (life.job != job || life.process != process) break;
    if (story.began) return life.epoch;
  }
  return UINT64_MAX;
}

void ExitLedger::check_succeeded(uint64_t job, uint32_t process) {
  // Any of its lives: a coordinator that took over may find that an earlier one had succeeded.
  if (returned_before(job, process, UINT64_MAX) != 0) return;
  complain_(
      fmt::format("job {} succeeded, and nobody heard that process {} returned 0", job, process));
}

// One returned in an earlier life of the gang than another when it began again not after that other
// had: then the other must have returned before, too.
void ExitLedger::check_one_life(uint64_t job, const RangeSet& gang) {
  uint64_t end = UINT64_MAX;  // of the life in question
  for (uint64_t before = 0; before != end;) {
    before = end;
    for (const uint32_t process : gang.members()) {
      const uint64_t returned = returned_before(job, process, end);
      if (returned == 0)
        return complain_(fmt::format("job {} succeeded with the work of two lives", job));
      end = std::min(end, begun_after(job, process, returned));
    }
  }
}

}  // namespace tutti::sims
