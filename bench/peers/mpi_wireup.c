// From a started process to the far side of its gang's first barrier: mpi_wireup GATE RANKS, under
// mpirun. wireup.cc does the same with the fabric.
#include <mpi.h>
#include <stdlib.h>

#include "../gate.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  Gate* gate = open_gate(argv[1]);
  const uint32_t place = pass_gate(gate, (uint32_t)atoi(argv[2]));
  MPI_Init(&argc, &argv);
  MPI_Barrier(MPI_COMM_WORLD);
  gate->times[place].ended_ns = gate_now_ns();
  MPI_Finalize();
  return 0;
}
