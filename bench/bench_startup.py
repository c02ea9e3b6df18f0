"""From `tutti train` to the end of its first step, less a step: what a researcher waits for.

The small model of bench_train, with no kernels compiled yet and with all of them in the cache; and
how long 48 layers take to compile where 6 did (tracing, passes and kernels: not the weights, of
which there are eight times as many). Peers are PyTorch compiled and JAX, from the start of Python.
What is wanted: 3 s and 1 s, and 1.5 times as long at most for 48 layers.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bench_train import JAX, MODELS, THREADS, TORCH
from common import ROOT, Case, Missing, build, compare, progress, python_peer

HERE = Path(__file__).parent
COLD_S, WARM_S, DEEPER = 3.0, 1.0, 1.5
STEPS = 4
SHAPE = MODELS["6 layers of 384"]


def settings(shape: tuple[int, ...]) -> list[str]:
    layers, width, heads, context, _, batch = shape
    return [
        f"--model.layers={layers}",
        f"--model.width={width}",
        f"--model.heads={heads}",
        "--model.bias=false",
        "--model.activation=gelu",
        f"--context={context}",
        f"--batch={batch}",
        f"--threads={THREADS}",
        f"--steps={STEPS}",
        "--optim.rate.warm_up=1",
        "--evaluate_batches=1",
        "--json",
    ]


def ours(
    cache: Path, text: Path, shape: tuple[int, ...], *, cold: bool, compiling: bool = False
) -> float:
    """Seconds until the first step ended, less a step; or those that compiling took."""
    if cold:
        shutil.rmtree(cache, ignore_errors=True)
    paths = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "python"),
        "XDG_CACHE_HOME": str(cache),
    }
    command = [ROOT / "build/release/tutti", "train", ROOT / "examples/gpt.py", f"--text={text}"]
    begin = time.perf_counter()
    process = subprocess.Popen(
        [*command, *settings(shape)], stdout=subprocess.PIPE, text=True, env=os.environ | paths
    )
    assert process.stdout is not None
    ends: dict[int, float] = {}
    for line in process.stdout:
        event = json.loads(line)
        if event["event"] == "start":
            compiled = float(event["compile_seconds"])
        if event["event"] == "step":
            ends[event["step"]] = time.perf_counter()
    if process.wait() != 0:
        raise RuntimeError("tutti train failed")
    if compiling:
        return compiled
    return ends[1] - begin - (ends[STEPS] - ends[1]) / (STEPS - 1)


def theirs(python: Path, script: str, mode: str, cache: Path, *, cold: bool) -> float:
    if cold:
        shutil.rmtree(cache, ignore_errors=True)
    kept = {
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "torch"),
        "JAX_COMPILATION_CACHE_DIR": str(cache / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    words = [str(word) for word in (THREADS, *SHAPE)]
    begin = time.perf_counter()
    process = subprocess.Popen(
        [python, "-W", "ignore", HERE / "peers" / script, mode, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | kept,
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdout.readline()
    first = time.perf_counter() - begin
    step = 0.0
    for _ in range(2):
        process.stdin.write("1\n")
        process.stdin.flush()
        step = float(process.stdout.readline())
    process.stdin.close()
    process.wait()
    return first - step


def run(quick: bool) -> Iterator[Case]:
    build("tutti", "_core")
    rounds = 1 if quick else 5
    with tempfile.TemporaryDirectory() as folder:
        cache, text = Path(folder) / "cache", Path(folder) / "text"
        letters = "".join(chr(33 + place) for place in range(SHAPE[4]))
        text.write_text(letters * 500)
        for name, limit, cold in (("empty", COLD_S, True), ("warm", WARM_S, False)):
            progress(f"{name} cache")
            yield compare(
                case=f"first step, {name} cache",
                unit="s",
                ours=partial(ours, cache, text, SHAPE, cold=cold),
                peer="limit",
                theirs=limit,
                higher_is_better=False,
                rounds=rounds,
                note="the limit is what is wanted",
            )
        progress("48 layers")
        deep = (48, *SHAPE[1:-1], 1)
        flat = (6, *SHAPE[1:-1], 1)
        yield compare(
            case="compiling 48 layers, empty cache, batch 1",
            unit="s",
            ours=partial(ours, cache, text, deep, cold=True, compiling=True),
            peer="limit",
            theirs=lambda: DEEPER * ours(cache, text, flat, cold=True, compiling=True),
            higher_is_better=False,
            rounds=rounds,
            note="the limit is 1.5 times what 6 layers take",
        )
        yield from beside_peers(cache, text, quick)


def beside_peers(cache: Path, text: Path, quick: bool) -> Iterator[Case]:
    for label, requirement, script, mode in (
        ("torch", TORCH, "torch_gpt.py", "compile"),
        ("jax", JAX, "jax_gpt.py", "jit"),
    ):
        python: Path | Missing = python_peer(label, requirement)
        if quick:
            python = Missing("compiling takes too long for --quick")
        for name, cold in (("empty", True), ("warm", False)):
            other = cache.with_name(f"{label}-cache")
            measured: partial[float] | Missing = (
                python
                if isinstance(python, Missing)
                else partial(theirs, python, script, mode, other, cold=cold)
            )
            yield compare(
                case=f"first step, {name} cache",
                unit="s",
                ours=partial(ours, cache, text, SHAPE, cold=cold),
                peer=f"{label} {requirement.split('==')[1]} {mode}",
                theirs=measured,
                higher_is_better=False,
                rounds=1 if quick else 3,
            )
