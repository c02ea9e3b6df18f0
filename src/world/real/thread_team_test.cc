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
