#include "world/real/random.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <string>

namespace tutti {
namespace {

TEST_CASE("random numbers do not repeat, across refills and sources") {
  RealRandom a;
  RealRandom b;
  std::set<uint64_t> seen;
  for (int i = 0; i < 2000; ++i) {
    CHECK(seen.insert(a.next()).second);
    CHECK(seen.insert(b.next()).second);
  }
}

TEST_CASE("every byte asked for is filled, whatever the size") {
  RealRandom random;
  for (size_t size : {1, 7, 8, 4000, 4088, 4089, 100'000}) {
    // A byte that stays zero in sixteen tries was not written.
    std::string touched(size, '\0');
    for (int i = 0; i < 16; ++i) {
      std::string text(size, '\0');
      random.fill(as_mutable_bytes(text));
      for (size_t j = 0; j < size; ++j) touched[j] = static_cast<char>(touched[j] | text[j]);
    }
    CHECK(touched.find('\0') == std::string::npos);
  }
}

TEST_CASE("every bit is set about half of the time") {
  RealRandom random;
  int counts[64] = {};
  for (int i = 0; i < 10'000; ++i) {
    const uint64_t value = random.next();
    for (int bit = 0; bit < 64; ++bit) counts[bit] += static_cast<int>((value >> bit) & 1);
  }
  for (int count : counts) {
    CHECK(count > 4'500);
    CHECK(count < 5'500);
  }
}

TEST_CASE("a forked child does not draw its parent's numbers") {
  RealRandom random;
  random.next();
  int fds[2];
  REQUIRE(pipe(fds) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const uint64_t value = random.next();
    _exit(write(fds[1], &value, sizeof value) == sizeof value ? 0 : 1);
  }
  uint64_t theirs = 0;
  CHECK(read(fds[0], &theirs, sizeof theirs) == sizeof theirs);
  CHECK(theirs != random.next());
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  close(fds[0]);
  close(fds[1]);
}

}  // namespace
}  // namespace tutti
