/* Where the ranks of the wire-up benchmark meet before the clock starts, ours and the peers': a
   mapped file in which each counts itself, and leaves when it began and ended. C and C++. */
#ifndef TUTTI_BENCH_GATE_H
#define TUTTI_BENCH_GATE_H

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { kMostGateRanks = 1024, kGateBytes = 64 + 16 * kMostGateRanks };

typedef struct {
  uint32_t arrived;
  char rest[60];
  struct {
    int64_t began_ns;
    int64_t ended_ns;
  } times[kMostGateRanks];
} Gate;

static inline int64_t gate_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The file is there, and zero. */
static inline Gate* open_gate(const char* path) {
  const int file = open(path, O_RDWR | O_CLOEXEC);
  void* pages = mmap(0, kGateBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file < 0 || pages == MAP_FAILED) abort();
  close(file);
  return (Gate*)pages;
}

/* Until all have been started. Gives this rank's place in the table. */
static inline uint32_t pass_gate(Gate* gate, uint32_t ranks) {
  const uint32_t place = __atomic_fetch_add(&gate->arrived, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&gate->arrived, __ATOMIC_SEQ_CST) < ranks) usleep(1000);
  gate->times[place].began_ns = gate_now_ns();
  return place;
}

#endif
