#include "world/real/lifeline.h"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "world/real/parking.h"

namespace tutti {
namespace {

// A word that forked processes share.
class SharedWord {
 public:
  SharedWord()
      : word_(*new (mmap(nullptr, sizeof(std::atomic<uint32_t>), PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0)) std::atomic<uint32_t>(0)) {}
  ~SharedWord() { munmap(&word_, sizeof word_); }
  SharedWord(const SharedWord&) = delete;
  SharedWord& operator=(const SharedWord&) = delete;

  std::atomic<uint32_t>& operator*() { return word_; }
  uint32_t wait_while(uint32_t seen) {
    while (word_ == seen) parking_.park(word_, seen, kNever);
    return word_;
  }

 private:
  RealParking parking_;
  std::atomic<uint32_t>& word_;
};

template <typename Body>
pid_t fork_to(const Body& body) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    body();
    _exit(0);
  }
  return child;
}

TEST_CASE("a line that is let go leaves nothing") {
  SharedWord word;
  {
    auto line = Lifeline::hold(*word);
    REQUIRE(line.has_value());
    const uint32_t held = word.wait_while(0);
    CHECK((held & kLifelineWatched) != 0);
    CHECK((held & kLifelineBroken) == 0);
  }
  CHECK(*word == 0);
}

TEST_CASE("a line breaks when its process is killed, and who waits on it is woken") {
  SharedWord word;
  const pid_t child = fork_to([&] {
    auto line = Lifeline::hold(*word);
    while (true) pause();
  });
  const uint32_t held = word.wait_while(0);
  kill(child, SIGKILL);
  CHECK((word.wait_while(held) & kLifelineBroken) != 0);
  waitpid(child, nullptr, 0);
}

TEST_CASE("a forked process neither holds nor breaks the line of its parent") {
  SharedWord word;
  auto line = Lifeline::hold(*word);
  REQUIRE(line.has_value());
  const uint32_t held = word.wait_while(0);
  const pid_t child = fork_to([&] { line->reset(); });
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(*word == held);
}

}  // namespace
}  // namespace tutti
