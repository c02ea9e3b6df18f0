/* What the programs of the collectives benchmark share, ours and the peers': they must measure
   alike. C and C++. */
#ifndef TUTTI_BENCH_COLLECTIVES_H
#define TUTTI_BENCH_COLLECTIVES_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { kMostCalls = 2000 };

/* Fewer while settings are only compared. */
static inline int only_compares(void) { return getenv("TUTTI_BENCH_SWEEP") != NULL; }

static inline int calls_for(uint64_t bytes) {
  const uint64_t calls = (UINT64_C(1) << (only_compares() ? 26 : 28)) / (bytes + 1);
  const uint64_t least = only_compares() ? 3 : 5;
  return calls < least ? (int)least : calls > kMostCalls ? (int)kMostCalls : (int)calls;
}

static inline int warm_up_calls(uint64_t bytes) {
  return bytes <= (1 << 20) ? 20 : bytes <= (1 << 24) ? 5 : 1;
}

/* Every cache line is written, by whoever owns the buffer. */
static inline void rewrite(float* data, uint64_t elements, int call) {
  for (uint64_t i = 0; i < elements; ++i) data[i] = (float)((int)(i & 1023) + call);
}

static inline int compare_times(const void* a, const void* b) {
  const double x = *(const double*)a;
  const double y = *(const double*)b;
  return (x > y) - (x < y);
}

/* times[call][rank]; overwrites them. */
static inline void print_median_of_slowest(uint64_t bytes, double* times, int calls, int ranks) {
  for (int i = 0; i < calls; ++i) {
    double slowest = 0;
    for (int r = 0; r < ranks; ++r)
      if (times[i * ranks + r] > slowest) slowest = times[i * ranks + r];
    times[i] = slowest;
  }
  qsort(times, (size_t)calls, sizeof(double), compare_times);
  printf("%llu %.3f\n", (unsigned long long)bytes, times[calls / 2]);
  fflush(stdout);
}

#endif
