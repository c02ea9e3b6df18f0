// Threads that compute together: each does its part of the same work, and they meet in between, or
// wait only until the others have come far enough.
#pragma once

#include <cstdint>
#include <functional>

namespace tutti {

class Team {
 public:
  virtual ~Team() = default;
  virtual int threads() const = 0;
  // Calls work(i) for each thread i at once, 0 being the caller, and returns when all have. Not to
  // be called by two threads at a time, nor from within.
  virtual void run(const std::function<void(int thread)>& work) = 0;
  // From within the work of every thread: returns when all have come here.
  virtual void meet() = 0;

  // Marks say how far a thread has come in its work, from 0 on and never back; past all of them
  // when its work is done. From within: this thread has come to `mark`.
  virtual void reach(int thread, uint32_t mark) = 0;
  // From within: returns when all threads have come to `mark`, and what they did before is seen.
  virtual void wait_for(uint32_t mark) = 0;
};

// The caller alone.
class TeamOfOne final : public Team {
 public:
  int threads() const override { return 1; }
  void run(const std::function<void(int thread)>& work) override { work(0); }
  void meet() override {}
  void reach(int /*thread*/, uint32_t /*mark*/) override {}
  void wait_for(uint32_t /*mark*/) override {}
};

}  // namespace tutti
