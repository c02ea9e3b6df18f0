"""Point to point by Gloo through torch: gloo_transport.py RANK FOLDER WHAT BYTES COUNT

Measures as transport.cc does: two messages on their way at a time, or to and fro.
"""

import json
import resource
import sys
import time

import torch
import torch.distributed as dist


def cpu_ns() -> int:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return int((used.ru_utime + used.ru_stime) * 1e9)


def stream(rank: int, buffers: list[torch.Tensor], count: int) -> None:
    begin = dist.isend if rank == 0 else dist.irecv
    works = []
    for i in range(count):
        if len(works) == len(buffers):
            works.pop(0).wait()
        works.append(begin(buffers[i % len(buffers)], 1 - rank, tag=i % len(buffers)))
    for work in works:
        work.wait()


def ping(rank: int, buffer: torch.Tensor, count: int) -> None:
    for _ in range(count):
        for turn in range(2):
            (dist.send if turn == rank else dist.recv)(buffer, 1 - rank)


def main() -> None:
    rank, (folder, what), (size, count) = int(sys.argv[1]), sys.argv[2:4], map(int, sys.argv[4:6])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    buffers = [torch.ones(size, dtype=torch.uint8) for _ in range(2)]
    for some in (max(2, count // 10), count):
        dist.barrier()
        began, cpu_before = time.perf_counter(), cpu_ns()
        if what == "ping":
            ping(rank, buffers[0], some)
        else:
            stream(rank, buffers, some)
        dist.barrier()
        seconds, cpu = time.perf_counter() - began, cpu_ns() - cpu_before
    ways = 2 * count if what == "ping" else 1
    print(json.dumps({"seconds": seconds / ways, "cpu_ns": cpu}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
