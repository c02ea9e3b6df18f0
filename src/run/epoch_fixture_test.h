// A control page for tests, and a team whose epoch ends while its threads compute.
#pragma once

#include <atomic>
#include <semaphore>
#include <thread>

#include "run/epoch_watch.h"
#include "world/real/parking.h"
#include "world/real/thread_team.h"

namespace tutti {

// As a keeper and an agent write it.
struct TestPage {
  TestPage() { page.epoch = 1; }
  void abort() {
    __atomic_store_n(&page.aborted, page.epoch, __ATOMIC_SEQ_CST);
    ring();
  }
  void begin(uint64_t epoch) {
    __atomic_store_n(&page.epoch, epoch, __ATOMIC_SEQ_CST);
    ring();
  }
  EpochWatch watch() { return {page, parking}; }

  tutti_control_page page{};
  RealParking parking;

 private:
  void ring() {
    __atomic_fetch_add(&page.word, 1U, __ATOMIC_SEQ_CST);
    parking.wake_all(reinterpret_cast<std::atomic<uint32_t>&>(page.word));
  }
};

// When its first thread comes to a given mark, another thread ends the epoch, and has done so
// before anybody goes on from there.
class AbortedTeam final : public Team {
 public:
  AbortedTeam(int threads, TestPage& page)
      : team_(threads), keeper_([this, &page] {
          for (asked_.acquire(); !ending_; asked_.acquire()) {
            page.abort();
            aborted_.release();
          }
        }) {}
  ~AbortedTeam() override {
    ending_ = true;
    asked_.release();
    keeper_.join();
  }
  AbortedTeam(const AbortedTeam&) = delete;
  AbortedTeam& operator=(const AbortedTeam&) = delete;

  int threads() const override { return team_.threads(); }
  void run(const std::function<void(int)>& work) override { team_.run(work); }
  void meet() override { team_.meet(); }
  void reach(int thread, uint32_t mark) override {
    if (thread == 0 && marks.fetch_add(1) + 1 == abort_at.load()) {
      asked_.release();
      aborted_.acquire();
    }
    team_.reach(thread, mark);
  }
  void wait_for(uint32_t mark) override { team_.wait_for(mark); }

  std::atomic<int> marks = 0;     // that the first thread has come to
  std::atomic<int> abort_at = 0;  // which of them; none if 0

 private:
  ThreadTeam team_;
  std::binary_semaphore asked_{0};
  std::binary_semaphore aborted_{0};
  std::atomic<bool> ending_ = false;
  std::thread keeper_;
};

}  // namespace tutti
