// Collectives of this machine's processes over the fabric: bench_collectives RANKS CASE BYTES…
//
// Prints for each size the median over calls of the microseconds from the first rank's start to the
// last one's end. Every rank rewrites its buffer before every call, and all meet before the clock
// starts. peers/mpi_collectives.c takes the slowest rank's own time, which is never longer.
//
// memcpy_… copies what a rank of that collective has to write, and read_write reads and writes as
// much memory as an all_reduce in place must: what the machine can do at best.
#include "collectives.h"

#include <cstdio>
#include <cstdlib>
#include <string>

#include "fabric/fold.h"
#include "forked_ranks.h"
#include "measure.h"
#include "rank/tuning_files.h"

namespace {

using namespace tutti;

// Memory that is this rank's input or output.
std::byte* room(Fabric& fabric, uint64_t bytes) {
  return fabric.heap().at(or_die(fabric.heap().allocate(bytes)));
}

// Each line read and written once: with all ranks 2pN bytes.
void read_and_write(std::byte* data, uint64_t elements) {
  static const FoldTree kTwice = FoldTree::plain(2);
  const std::byte* sources[] = {data, data};
  std::byte* targets[] = {data};
  fold(kTwice, {.sources = sources, .targets = targets, .elements = elements});
}

struct Rank {
  Fabric& fabric;
  Group& world;
  std::string what;
  Span* times;  // of every rank and call, shared

  void measure(uint64_t bytes) {
    const uint64_t ranks = world.size();
    const uint64_t elements = bytes / 4;
    const bool gathers = what == "all_gather" || what == "all_gather_shared";
    const bool scatters = what == "reduce_scatter";
    Call call{.elements = elements, .site = "bench"};
    const uint64_t share = elements / ranks;
    std::byte* input = room(fabric, bytes);
    std::byte* output = input;
    if (what == "all_reduce_shared" || what == "all_gather_shared") {
      output = or_die(world.allocate_shared(bytes));
      call.shared_output = true;
    } else if (what != "all_reduce" && what != "broadcast" && what != "read_write") {
      output = room(fabric, bytes);
    }
    call.input = input;
    call.output = output;
    uint64_t written = elements;  // of our input, anew before every call
    if (what.starts_with("all_reduce")) call.kind = CallKind::all_reduce;
    if (scatters) call.kind = CallKind::reduce_scatter;
    if (gathers) {
      call.kind = CallKind::all_gather;
      call.elements = written = share;
    }
    if (what == "broadcast") call.kind = CallKind::broadcast;
    if (what == "all_to_all") {
      call.kind = CallKind::all_to_all;
      call.elements = share;
    }
    // As many bytes as each rank has to write, from memory of another.
    const bool copies = what.starts_with("memcpy_");
    const bool broadcasts = what == "memcpy_broadcast";
    uint64_t copied = broadcasts ? elements : share * ranks;
    if (broadcasts && world.index() == 0) copied = 0;

    const int calls = calls_for(bytes);
    for (int i = -warm_up_calls(bytes); i < calls; ++i) {
      rewrite(reinterpret_cast<float*>(input), written, i);
      or_die(world.run({.kind = CallKind::barrier}));
      const uint64_t start = now_ns();
      if (what == "read_write") {
        read_and_write(input, elements);
      } else if (copies) {
        copy_bytes(output, input, copied * 4, copied * 8 * ranks >= (24U << 20));
      } else {
        or_die(world.run(call));
      }
      if (i >= 0) times[i * ranks + world.index()] = {start, now_ns()};
      // On a shared core whoever is done first would else rewrite while another is not done yet.
      or_die(world.run({.kind = CallKind::barrier}));
    }
    if (world.index() == 0)
      std::printf("%llu %.3f\n", static_cast<unsigned long long>(bytes),
                  median_span_ns({times, calls * ranks}, ranks) / 1e3);
    std::fflush(stdout);
    or_die(world.run({.kind = CallKind::barrier}));
    if (output != input && !call.shared_output) fabric.heap().free(*fabric.heap().find(output, 0));
    fabric.heap().free(*fabric.heap().find(input, 0));
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const auto ranks = static_cast<uint32_t>(std::atoi(argv[1]));
  auto* times = reinterpret_cast<Span*>(map_shared(kMostCalls * ranks * sizeof(Span)).data());
  TuningFiles tunings;  // as a program that tutti starts has it
  const auto tuned = [&](FabricOptions& options) {
    options.tune = TuneWhen::lazily;
    options.tunings = &tunings;
  };
  return on_forked_ranks(ranks, tuned, [&](Fabric& fabric) {
    Rank self{fabric, *fabric.world(), argv[2], times};
    for (int i = 3; i < argc; ++i) self.measure(std::strtoull(argv[i], nullptr, 10));
  });
}
