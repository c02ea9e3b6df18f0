// Collectives over MPI: mpi_collectives CASE BYTES…, under mpirun. Measures as collectives.cc does.
#include <mpi.h>
#include <string.h>
#include <time.h>

#include "../collectives.h"

static double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void measure(const char* what, uint64_t bytes, int rank, int ranks) {
  const uint64_t elements = bytes / 4;
  const int share = (int)(elements / (uint64_t)ranks);
  float* input = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  float* output = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  memset(output, 0, bytes);
  double* times = calloc(kMostCalls, sizeof(double));
  const int calls = calls_for(bytes);
  const int gathers = strcmp(what, "all_gather") == 0;
  for (int i = -warm_up_calls(bytes); i < calls; ++i) {
    rewrite(input, gathers ? (uint64_t)share : elements, i);
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = now_us();
    if (strcmp(what, "all_reduce") == 0)
      MPI_Allreduce(MPI_IN_PLACE, input, (int)elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else if (strcmp(what, "all_reduce_shared") == 0)
      MPI_Allreduce(input, output, (int)elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else if (strcmp(what, "reduce_scatter") == 0)
      MPI_Reduce_scatter_block(input, output, share, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else if (gathers)
      MPI_Allgather(input, share, MPI_FLOAT, output, share, MPI_FLOAT, MPI_COMM_WORLD);
    else if (strcmp(what, "broadcast") == 0)
      MPI_Bcast(input, (int)elements, MPI_FLOAT, 0, MPI_COMM_WORLD);
    else if (strcmp(what, "all_to_all") == 0)
      MPI_Alltoall(input, share, MPI_FLOAT, output, share, MPI_FLOAT, MPI_COMM_WORLD);
    else if (strcmp(what, "barrier") == 0)
      MPI_Barrier(MPI_COMM_WORLD);
    const double end = now_us();
    if (i >= 0) times[i] = end - start;
    MPI_Barrier(MPI_COMM_WORLD); /* nobody rewrites while another is not done yet */
  }
  double* all = rank == 0 ? calloc((size_t)kMostCalls * (size_t)ranks, sizeof(double)) : NULL;
  double* gathered = rank == 0 ? calloc((size_t)kMostCalls * (size_t)ranks, sizeof(double)) : NULL;
  MPI_Gather(times, kMostCalls, MPI_DOUBLE, gathered, kMostCalls, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    for (int r = 0; r < ranks; ++r)
      for (int i = 0; i < calls; ++i) all[i * ranks + r] = gathered[r * kMostCalls + i];
    print_median_of_slowest(bytes, all, calls, ranks);
  }
  free(all);
  free(gathered);
  free(times);
  free(input);
  free(output);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (int i = 2; i < argc; ++i) measure(argv[1], strtoull(argv[i], NULL, 10), rank, ranks);
  MPI_Finalize();
  return 0;
}
