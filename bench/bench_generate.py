"""Tokens a second of GPT-2 (124 M, fp32) with a cache of keys and values, beside PyTorch.

Prompts of 64 tokens, after which 128 more follow, always the likeliest: one sequence, and eight at
once, by two threads. Both sides read the same random weights, stay loaded, and take turns; what is
compared is from the first token made to the last. PyTorch is its best of eager, whose cache has its
place beforehand, and torch.compile over the whole cache, each in all ways that bench/best.py has.
1.5 is the ratio that is wanted.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from best import Environment, ways_of_torch
from common import Case, Missing, build, progress, python_peer, spread_of

TORCH = "torch==2.15.0"
THREADS = 2
PROMPT, TOKENS = 64, 128
BATCHES = (1, 8)
LAYERS, WIDTH, CONTEXT, VOCABULARY = 12, 768, 1024, 50304
DEVIATION = 0.02


def shapes() -> dict[str, tuple[int, ...]]:
    """Of GPT-2's weights, as examples/gpt.py names them."""
    all_shapes: dict[str, tuple[int, ...]] = {
        "wte.weight": (VOCABULARY, WIDTH),
        "wpe.weight": (CONTEXT, WIDTH),
        "ln_f.weight": (WIDTH,),
        "ln_f.bias": (WIDTH,),
    }
    matrices = {
        "attn.c_attn": (WIDTH, 3 * WIDTH),
        "attn.c_proj": (WIDTH, WIDTH),
        "mlp.c_fc": (WIDTH, 4 * WIDTH),
        "mlp.c_proj": (4 * WIDTH, WIDTH),
    }
    for layer in range(LAYERS):
        for norm in ("ln_1", "ln_2"):
            all_shapes[f"h.{layer}.{norm}.weight"] = (WIDTH,)
            all_shapes[f"h.{layer}.{norm}.bias"] = (WIDTH,)
        for name, shape in matrices.items():
            all_shapes[f"h.{layer}.{name}.weight"] = shape
            all_shapes[f"h.{layer}.{name}.bias"] = shape[1:]
    return all_shapes


def write_weights(path: Path) -> None:
    """Random ones, as a safetensors file."""
    random = np.random.default_rng(1)
    header, end = {}, 0
    for name, shape in shapes().items():
        begin, end = end, end + 4 * int(np.prod(shape))
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, shape in shapes().items():
            values = random.standard_normal(shape, np.float32) * np.float32(DEVIATION)
            if name.split(".")[-2].startswith("ln") and name.endswith("weight"):
                values += 1
            file.write(values.tobytes())


class Side:
    """A process that generates whenever it is asked to."""

    def __init__(self, *command: str | Path, env: Environment | None = None) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | (env or {}),
        )
        self.rates: list[float] = []
        self.tokens: list[int] = []

    def ask(self, tokens: int = TOKENS) -> float:
        """Tokens a second."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(f"{PROMPT} {tokens}\n")
            self._process.stdin.flush()
            rate, self.tokens = json.loads(self._process.stdout.readline())
        except (OSError, ValueError):
            raise RuntimeError(f"{self._process.args} failed") from None
        return float(rate)

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def best_torch(python: Path, weights: Path, batch: int, quick: bool) -> tuple[str, Side] | None:
    """PyTorch's fastest way here, by a short trial of each."""
    script = Path(__file__).with_name("peers") / "torch_generate.py"
    found: list[tuple[float, str, Side]] = []
    for how in ("eager",) if quick else ("eager", "compiled"):
        words = (python, "-W", "ignore", script, how, weights, str(THREADS), str(batch))
        for name, env in ways_of_torch(f"{TORCH.replace('==', ' ')} {how}").items():
            side = Side(*words, env=env)
            try:
                side.ask(8)
                found.append((side.ask(32), name, side))
            except RuntimeError:
                progress(f"{name} fails here")
    found.sort(key=lambda each: -each[0])
    for _, _, slower in found[1:]:
        slower.end()
    return found[0][1:] if found else None


def case_of(batch: int, weights: Path, python: Path | Missing, quick: bool) -> Case:
    name = f"GPT-2 124M, {'1 sequence' if batch == 1 else f'{batch} sequences'}"
    progress(name)
    worker = Path(__file__).with_name("generate_worker.py")
    ours = Side(sys.executable, worker, weights, str(THREADS), str(batch))
    ours.ask(8)
    peer = TORCH.replace("==", " ")
    torch = None if isinstance(python, Missing) else best_torch(python, weights, batch, quick)
    rounds = 3 if quick else 7
    mine: list[float] = []
    theirs: list[float] = []
    for turn in range(rounds):
        for side in ("ours", "torch") if turn % 2 == 0 else ("torch", "ours"):
            if side == "ours":
                mine.append(ours.ask())
            elif torch is not None:
                theirs.append(torch[1].ask())
    ours.end()
    if torch is None:
        why = python.why if isinstance(python, Missing) else "torch fails here"
        return Case(
            name, "tokens/s", statistics.median(mine), peer, None, None, spread_of(mine), why
        )
    torch[1].end()
    same = "the same tokens" if ours.tokens == torch[1].tokens else "tokens differ by rounding"
    ratios = [a / b for a, b in zip(mine, theirs, strict=True)]
    return Case(
        name,
        "tokens/s",
        statistics.median(mine),
        torch[0],
        statistics.median(theirs),
        statistics.median(ratios),
        spread_of(ratios),
        f"{same}; 1.5 is wanted",
    )


def run(quick: bool) -> Iterator[Case]:
    build("_core")
    python = python_peer("torch", TORCH)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        weights = Path(folder) / "weights.safetensors"
        write_weights(weights)
        for batch in BATCHES:
            yield case_of(batch, weights, python, quick)


if __name__ == "__main__":
    for case in run(quick=True):
        print(json.dumps(case.as_json("generate"), ensure_ascii=False))
