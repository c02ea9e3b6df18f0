// From a started process to the far side of its gang's first barrier: bench_wireup GATE RANKS,
// under tutti run. peers/mpi_wireup.c does the same with MPI_Init.
#include <cstdio>
#include <cstdlib>

#include "fabric/group.h"
#include "gate.h"
#include "rank/rank_fabric.h"

int main(int argc, char** argv) {
  using namespace tutti;
  if (argc != 3) return 2;
  Gate* gate = open_gate(argv[1]);
  const uint32_t place = pass_gate(gate, static_cast<uint32_t>(std::atoi(argv[2])));
  auto rank = RankFabric::open({.timeout = 1min});
  auto done = !rank ? Result<void>(fail(rank.error())) : (*rank)->fabric().join(1min);
  if (done) done = (*rank)->fabric().world()->run({.kind = CallKind::barrier, .site = "bench"});
  if (!done) {
    std::fprintf(stderr, "bench_wireup: %s\n", done.error().text().c_str());
    return 1;
  }
  gate->times[place].ended_ns = gate_now_ns();
  return 0;
}
