"""Collectives of Gloo through torch: gloo_collectives.py RANKS CASE FOLDER BYTES…

Measures as collectives.cc does: buffers are rewritten before every call, the slowest rank counts.
"""

import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def calls_for(size: int) -> int:
    return max(3, min(200, (1 << 27) // (size + 1)))


def rank_main(rank: int, ranks: int, what: str, folder: str, sizes: list[int]) -> None:
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks)
    for size in sizes:
        data = torch.empty(size // 4)
        slowest = []
        for call in range(-2, calls_for(size)):
            data.fill_(call)
            dist.barrier()
            began = time.perf_counter()
            if what.startswith("all_reduce"):
                dist.all_reduce(data)
            took = torch.tensor([(time.perf_counter() - began) * 1e6], dtype=torch.float64)
            dist.all_reduce(took, op=dist.ReduceOp.MAX)
            if call >= 0:
                slowest.append(took.item())
        if rank == 0:
            print(size, statistics.median(slowest), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    count, case, place, *rest = sys.argv[1:]
    arguments = (int(count), case, place, [int(size) for size in rest])
    mp.spawn(rank_main, args=arguments, nprocs=int(count), join=True)
