// Threads of this process, each on a core of its own where there are as many. They spin for a while
// when they wait, since waking costs some 50 µs, and then sleep. The thread that makes a team is
// one of them, and stays on its core until the team goes.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "world/real/parking.h"
#include "world/team.h"

namespace tutti {

class ThreadTeam final : public Team {
 public:
  // As many threads as the cores this process may use, if 0.
  explicit ThreadTeam(int threads = 0);
  ~ThreadTeam() override;
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int threads() const override { return threads_; }
  void run(const std::function<void(int thread)>& work) override;
  void meet() override;
  void reach(int thread, uint32_t mark) override;
  void wait_for(uint32_t mark) override;

 private:
  struct alignas(64) Mark {
    std::atomic<uint32_t> reached = 0;
  };

  void serve(int thread);
  void do_work(int thread);
  // Returns when the word is such; who changes it then calls wake().
  template <class IsSuch>
  void wait_until(const std::atomic<uint32_t>& word, const IsSuch& is_such);
  void wait_for_change(const std::atomic<uint32_t>& word, uint32_t old);
  void change(std::atomic<uint32_t>& word);
  void wake(std::atomic<uint32_t>& word);

  int threads_;
  RealParking parking_;
  const std::function<void(int)>* work_ = nullptr;
  bool ending_ = false;
  alignas(64) std::atomic<uint32_t> calls_ = 0;    // one more for each run()
  alignas(64) std::atomic<uint32_t> arrived_ = 0;  // at the meeting under way
  alignas(64) std::atomic<uint32_t> meetings_ = 0;
  alignas(64) std::atomic<uint32_t> sleeping_ = 0;
  std::vector<Mark> marks_;  // of each thread
  std::vector<std::thread> helpers_;
  std::thread::id kept_;  // of the caller, if it is kept on a core
};

}  // namespace tutti
