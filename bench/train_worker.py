"""Our side of bench_train: steps on demand, as torch_gpt.py answers for PyTorch.

usage: train_worker.py THREADS LAYERS WIDTH HEADS CONTEXT VOCABULARY BATCH

The first answer is the seconds of the first step, what was compiled included, and the flops of one.
"""

import random
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "examples")]

import tutti  # noqa: E402
from gpt import GPT, ModelConfig  # noqa: E402

threads, layers, width, heads, context, vocabulary, batch = map(int, sys.argv[1:8])
config = ModelConfig(
    layers=layers,
    heads=heads,
    width=width,
    context=context,
    vocabulary=vocabulary,
    bias=False,
    activation="gelu",
)
begin = time.perf_counter()
words = random.Random(1).choices(range(vocabulary), k=40 * context)
trainer = tutti.Trainer(
    GPT(config),
    data=tutti.data.numbers(words, vocabulary=vocabulary),
    optim=tutti.optim.AdamW(tutti.optim.constant(1e-3), max_norm=0),
    steps=1_000_000,
    batch=batch,
    context=context,
    threads=threads,
)
trainer.step()
print(time.perf_counter() - begin, trainer.plan["flops_a_step"], flush=True)
for line in sys.stdin:
    begin = time.perf_counter()
    for _ in range(int(line)):
        trainer.step()
    print(time.perf_counter() - begin, flush=True)
