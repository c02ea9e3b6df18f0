"""Runs of `tutti sim scale`, and what they measured."""

import json
import os
import subprocess
from dataclasses import dataclass

from common import build


@dataclass(frozen=True)
class Run:
    hosts: int
    costs: str
    figures: dict[str, float]
    wall_s: float
    cpu_s: float
    peak_bytes: int


def run_scale(hosts: int, *scales: str, settings: tuple[str, ...] = ()) -> Run:
    """One run; `scales` are entries of the cost table that are multiplied, as "send_ns=2", and
    `settings` the scenario's own, as "launch_only=1"."""
    tutti = build("tutti") / "tutti"
    words = [tutti, "sim", "scale", "--hosts", str(hosts), "--json"]
    for scale in scales:
        words += ["--scale", scale]
    for setting in settings:
        words += ["--set", setting]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    told = json.loads(line)
    if not told["ok"]:
        raise RuntimeError(f"the simulation failed: {told['error']}\n  {told['replay']}")
    return Run(
        hosts,
        told["costs"],
        told["figures"],
        told["wall_s"],
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss * 1024,
    )
