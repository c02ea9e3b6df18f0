"""The planner of torch.distributed.checkpoint: dcp_plan.py CASE [RANK]

Prints seconds for what bench_reshard plans: the reads of all ranks, or of one, that bring the state
of Llama 3 70B from 512 ranks to 384. What was saved is described beforehand, as a checkpoint does.
"""

import itertools
import sys
import time

from torch import Size
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

MODEL, KEYS, HIDDEN, WORDS = 8192, 1024, 28_672, 128_256


def weights() -> dict[str, tuple[str, tuple[int, ...]]]:
    layer = {
        "q": ("columns", (MODEL, MODEL)),
        "k": ("columns", (KEYS, MODEL)),
        "v": ("columns", (KEYS, MODEL)),
        "o": ("rows", (MODEL, MODEL)),
        "gate": ("columns", (HIDDEN, MODEL)),
        "up": ("columns", (HIDDEN, MODEL)),
        "down": ("rows", (MODEL, HIDDEN)),
        "attention_norm": ("norm", (MODEL,)),
        "mlp_norm": ("norm", (MODEL,)),
    }
    found = {f"{i}.{name}": weight for i in range(80) for name, weight in layer.items()}
    both = ("columns", (WORDS, MODEL))
    return found | {"embed": both, "head": both, "norm": ("norm", (MODEL,))}


def pieces(size: int, count: int) -> list[tuple[int, int]]:
    bounds = [i * size // count for i in range(count + 1)]
    return list(itertools.pairwise(bounds))


def chunks(kind: str, role: str, shape: tuple[int, ...], ranks: int, saved: bool):
    """What each rank holds; of replicas only one is saved."""
    width = {"fsdp": ranks, "fsdp_tp": ranks // 8, "hsdp": 64 if ranks == 512 else 96}[kind]
    if kind == "fsdp_tp" and role == "columns":
        width = ranks
    columns = 8 if kind == "fsdp_tp" and role == "rows" else 1
    boxes = [
        [row, *pieces(shape[1], columns)[column : column + 1]] if len(shape) > 1 else [row]
        for row in pieces(shape[0], width)
        for column in range(columns)
    ]
    if not saved:
        boxes *= ranks // len(boxes)
    return [
        ChunkStorageMetadata(Size(b for b, _ in box), Size(e - b for b, e in box)) for box in boxes
    ]


def main() -> None:
    kind = sys.argv[1]
    rank = int(sys.argv[2]) if len(sys.argv) > 2 else None
    tensors = []
    for name, (role, shape) in weights().items():
        wanted = chunks(kind, role, shape, 384, saved=False)
        wanted = wanted if rank is None else wanted[rank : rank + 1]
        for part in ("master", "first", "second"):
            saved = chunks(kind, role, shape, 512, saved=True)
            held = TensorStorageMetadata(TensorProperties(), Size(shape), saved)
            tensors.append((f"{name}.{part}", held, wanted))
    began = time.perf_counter()
    copies = sum(len(create_read_items_for_chunk_list(*tensor)) for tensor in tensors)
    seconds = time.perf_counter() - began
    print(f"{len(tensors)} tensors, {copies} reads")
    print(f"{seconds:.6f}")


main()
