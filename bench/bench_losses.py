"""The losses of the small model of bench_train, beside PyTorch's from the same weights and tokens.

AdamW with decay and clipping at 1. What is shown is the largest difference of the losses of the
first 20 steps, of which 1e-4 is allowed, and of 200, of which 1e-2 is. The text is random letters
with a pattern, or that of the file TUTTI_BENCH_TEXT.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench_train import MODELS, TORCH
from common import ROOT, Case, Missing, build, progress, python_peer

ALLOWED = {20: 1e-4, 200: 1e-2}
SHAPE = MODELS["6 layers of 384"]

OURS = """
import json, sys
from pathlib import Path
import tutti
from gpt import GPT, ModelConfig
tokens, weights, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
layers, width, heads, context, vocabulary, batch = map(int, sys.argv[4:10])
config = ModelConfig(layers=layers, heads=heads, width=width, context=context,
                     vocabulary=vocabulary, bias=False, activation="gelu")
data = tutti.data.numbers(json.loads(Path(tokens).read_text()), vocabulary=vocabulary)
optim = tutti.optim.AdamW(tutti.optim.constant(1e-3), betas=(0.9, 0.95), decay=0.1, max_norm=1.0)
trainer = tutti.Trainer(GPT(config), data=data, optim=optim, steps=steps, batch=batch,
                        context=context, consecutive=True)
trainer.save_weights(weights)
print(json.dumps([trainer.step().loss for _ in range(steps)]))
"""


def numbers(count: int) -> list[int]:
    given = os.environ.get("TUTTI_BENCH_TEXT")
    if given:
        text = Path(given).read_text()[:count]
        letters = sorted(set(text))[: SHAPE[4]]
        return [letters.index(letter) if letter in letters else 0 for letter in text]
    draw = random.Random(1)
    made = [0]
    while len(made) < count:
        made.append((made[-1] * 7 + draw.choice((1, 2, 3))) % SHAPE[4])
    return made


def losses(*command: str | Path) -> list[float]:
    paths = {"PYTHONPATH": f"{ROOT / 'python'}:{ROOT / 'examples'}"}
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | paths
    )
    return json.loads(done.stdout)


def run(quick: bool) -> Iterator[Case]:
    build("_core")
    steps = 5 if quick else max(ALLOWED)
    python = python_peer("torch", TORCH)
    peer = TORCH.replace("==", " ")
    shape = [str(word) for word in SHAPE]
    with tempfile.TemporaryDirectory() as folder:
        tokens, weights = Path(folder) / "tokens.json", Path(folder) / "weights.safetensors"
        needed = steps * SHAPE[5] * SHAPE[3] + 1
        tokens.write_text(json.dumps(numbers(needed)))
        progress(f"{steps} steps of ours")
        ours = losses(sys.executable, "-c", OURS, tokens, weights, str(steps), *shape)
        if isinstance(python, Missing):
            yield Case("losses", "nats", ours[-1], peer, None, None, 0, python.why)
            return
        progress(f"{steps} steps of PyTorch's")
        script = Path(__file__).with_name("peers") / "torch_losses.py"
        theirs = losses(python, "-W", "ignore", script, weights, tokens, str(steps), *shape)
    apart = [abs(mine - other) for mine, other in zip(ours, theirs, strict=True)]
    for count, allowed in ALLOWED.items():
        if count > steps and count != min(ALLOWED):
            continue
        worst = max(apart[:count])
        yield Case(
            f"difference of losses over {min(count, steps)} steps",
            "nats",
            worst,
            "limit",
            allowed,
            allowed / max(worst, 1e-12),
            0,
            f"loss {ours[0]:.4f} to {ours[min(count, steps) - 1]:.4f}; {peer}",
        )
