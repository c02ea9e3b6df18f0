// Jobs that wait for hosts, oldest first. Those of one account may use the same hosts, so they
// stand in one line; there is a line for each account. Numbers of jobs grow with time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tutti {

class JobQueue {
 public:
  struct First {
    uint64_t job;
    std::string account;
  };

  void push(uint64_t job, const std::string& account);
  // The oldest of all lines but these.
  std::optional<First> first_but(const std::set<std::string>& accounts) const;
  // Takes the first of its line away.
  void pop(const std::string& account);
  // The first of its line steps aside, and lets others pass until all that did are called back.
  void step_aside(const std::string& account);
  void call_back();

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  size_t size_of(const std::string& account) const;
  std::vector<uint64_t> all() const;  // oldest first

 private:
  std::map<std::string, std::deque<uint64_t>> lines_;  // none is empty
  std::map<uint64_t, std::string> aside_;              // by job, of which account
  size_t size_ = 0;                                    // of them all
};

}  // namespace tutti
