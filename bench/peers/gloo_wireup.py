"""A rank of the wire-up benchmark under torchrun: what bench/wireup_worker.py does, with Gloo."""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
data = torch.ones(1)
dist.all_reduce(data)
ended_ns = time.monotonic_ns()
assert data.item() == dist.get_world_size()
(Path(sys.argv[1]) / str(dist.get_rank())).write_text(str(ended_ns))
dist.destroy_process_group()
