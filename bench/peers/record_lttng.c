// The same loop as bench/record.cc with LTTng-UST's tracepoints; prints ns of processor time:
//   record_lttng THREADS COUNT
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "record_lttng.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { kMostThreads = 64 };

static long count;

static double processor_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void record(long events) {
  for (long i = 0; i < events; ++i) lttng_ust_tracepoint(tutti_bench, send, i, i * 3);
}

static void* measure(void* taken_ns) {
  record(count / 4);  // touches the pages
  const double start_ns = processor_ns();
  record(count);
  *(double*)taken_ns = processor_ns() - start_ns;
  return NULL;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int threads = atoi(argv[1]);
  count = atol(argv[2]);
  if (threads < 1 || threads > kMostThreads) return 2;
  pthread_t running[kMostThreads];
  double taken_ns[kMostThreads];
  double sum_ns = 0;
  for (int i = 0; i < threads; ++i) pthread_create(&running[i], NULL, measure, &taken_ns[i]);
  for (int i = 0; i < threads; ++i) {
    pthread_join(running[i], NULL);
    sum_ns += taken_ns[i];
  }
  printf("%.3f\n", sum_ns / (double)count / threads);
  return 0;
}
