#include "world/real/thread_team.h"

#include <doctest/doctest.h>
#include <sched.h>

#include <chrono>
#include <memory>

using namespace tutti;

TEST_CASE("all threads of a team do their part, and meet in between") {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadTeam team(threads);
    CHECK(team.threads() == threads);
    std::vector<int> parts(static_cast<size_t>(threads));
    std::atomic<int> wrong = 0;
    for (int call = 0; call < 200; ++call) {
      team.run([&](int thread) {
        for (int round = 0; round < 5; ++round) {
          parts[static_cast<size_t>(thread)] = call * 10 + round;
          team.meet();
          for (const int part : parts)
            if (part != call * 10 + round) ++wrong;
          team.meet();
        }
      });
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("a thread goes on when all have come as far as it needs, and no later") {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadTeam team(threads);
    constexpr uint32_t kMarks = 200;
    // What each thread wrote at each mark.
    std::vector<std::vector<uint32_t>> wrote(static_cast<size_t>(threads));
    std::atomic<int> wrong = 0;
    for (uint32_t call = 1; call <= 20; ++call) {
      for (auto& each : wrote) each.assign(kMarks, 0);
      team.run([&](int thread) {
        for (uint32_t mark = 0; mark < kMarks; ++mark) {
          // Each needs what was there three marks ago; now and then one is asleep for it.
          const uint32_t needed = mark < 3 ? 0 : mark - 3;
          team.wait_for(needed);
          for (const auto& each : wrote)
            if (needed > 0 && each[needed - 1] != call) ++wrong;
          if (call == 1 && mark % 64 == static_cast<uint32_t>(thread))
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          wrote[static_cast<size_t>(thread)][mark] = call;
          team.reach(thread, mark + 1);
        }
      });
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("nobody waits for a thread whose work is done") {
  ThreadTeam team(3);
  std::atomic<int> calls = 0;
  for (int i = 0; i < 50; ++i)
    team.run([&](int thread) {
      team.reach(thread, thread == 2 ? 7 : 3);
      if (thread == 2) team.wait_for(7);
      ++calls;
    });
  CHECK(calls == 150);
}

TEST_CASE("a team that has gone to sleep wakes for the next call") {
  ThreadTeam team(2);
  std::atomic<int> calls = 0;
  for (int i = 0; i < 5; ++i) {
    team.run([&](int thread) {
      if (thread == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
      ++calls;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
  }
  CHECK(calls == 10);
}

TEST_CASE("who makes a team may use all cores for the next one, and when it has gone") {
  const auto cores = [] {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    REQUIRE(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    return CPU_COUNT(&allowed);
  };
  const int before = cores();
  {
    const ThreadTeam first;
    CHECK(first.threads() == before);
    CHECK(cores() == 1);
    const auto second = std::make_unique<ThreadTeam>();
    CHECK(second->threads() == before);
  }
  CHECK(cores() == before);
}
