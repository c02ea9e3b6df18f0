"""The flight recorder: what an event costs, beside LTTng-UST and beside a write to a file.

The bar is 50 ns and 120 instructions an event, time stamp included. LTTng runs as a flight recorder
too: snapshot mode, per-CPU buffers of 4 MiB that are overwritten, started and ended here.
"""

import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common import (
    ROOT,
    Case,
    Missing,
    bench_program,
    compare,
    debian_peer,
    printed_number,
)

LIMIT_NS = 50.0
LIMIT_INSTRUCTIONS = 120.0
START_SECONDS = 10  # for LTTng's daemon; it takes a tenth of one


def run(quick: bool) -> Iterator[Case]:
    ours = bench_program("record")
    count = "500000" if quick else "5000000"
    rounds = 3 if quick else 9

    def nanoseconds(what: str, threads: int) -> float:
        return printed_number(ours, what, str(threads), count)

    clock = nanoseconds("clock", 1)
    for threads in (1, 2):
        yield compare(
            case=f"an event, {threads} thread{'s'[: threads - 1]}",
            unit="ns",
            higher_is_better=False,
            rounds=rounds,
            ours=lambda threads=threads: nanoseconds("events", threads),
            peer="limit",
            theirs=LIMIT_NS,
            note=f"the clock alone takes {clock:.0f} ns",
        )
    yield instructions(ours)
    yield compare(
        case="an event, 1 thread",
        unit="ns",
        higher_is_better=False,
        rounds=rounds,
        ours=lambda: nanoseconds("events", 1),
        peer="pwrite of 64 bytes to tmpfs",
        theirs=lambda: nanoseconds("write", 1),
    )
    with tempfile.TemporaryDirectory() as folder, lttng(Path(folder)) as traced:
        for threads in (1, 2):
            yield compare(
                case=f"an event, {threads} thread{'s'[: threads - 1]}",
                unit="ns",
                higher_is_better=False,
                rounds=rounds,
                ours=lambda threads=threads: nanoseconds("events", threads),
                peer="LTTng-UST 2.13",
                theirs=traced
                if isinstance(traced, Missing)
                else lambda threads=threads: printed_number(traced, str(threads), count),
            )


def instructions(program: Path) -> Case:
    """What callgrind counts for one more event. It sees a plain system call in place of the code
    the kernel lends for reading the clock, so that code is not in the number."""
    missing = debian_peer("valgrind")

    def per_event() -> float:
        few, many = 10_000, 50_000
        return (counted(program, many) - counted(program, few)) / (many - few) / 1.25

    if missing is not None:
        return Case("instructions of an event", "instr", 0, "limit", None, None, 0, missing.why)
    return compare(
        case="instructions of an event",
        unit="instr",
        higher_is_better=False,
        rounds=1,
        ours=per_event,
        peer="limit",
        theirs=LIMIT_INSTRUCTIONS,
        note="callgrind; without the kernel's own code for reading the clock",
    )


def counted(program: Path, count: int) -> int:
    done = subprocess.run(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program, "events", "1",
         str(count)],
        check=True,
        capture_output=True,
        text=True,
    )  # fmt: skip
    found = re.search(r"Collected : (\d+)", done.stderr)
    assert found is not None, done.stderr
    return int(found[1])


@contextmanager
def lttng(folder: Path) -> Iterator[Path | Missing]:
    """A program with LTTng's tracepoints switched on, or why there is none."""
    missing = debian_peer("liblttng-ust-dev", "lttng-tools", "gcc")
    if missing is not None:
        yield missing
        return
    program = folder / "record_lttng"
    source = ROOT / "bench/peers/record_lttng.c"
    subprocess.run(
        ["gcc", "-O2", source, "-I", source.parent, "-o", program, "-llttng-ust", "-ldl",
         "-pthread"],
        check=True,
    )  # fmt: skip
    daemon = subprocess.Popen(
        ["lttng-sessiond", "--no-kernel"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield (
            program
            if started(daemon) and switched_on(folder)
            else Missing("lttng-sessiond does not start here")
        )
    finally:
        tell("destroy", "tutti-bench")
        daemon.terminate()
        daemon.wait()


def started(daemon: "subprocess.Popen[bytes]") -> bool:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and daemon.poll() is None:
        if tell("list"):
            return True
        time.sleep(0.05)
    return False


def switched_on(folder: Path) -> bool:
    session = ("-s", "tutti-bench")
    return (
        tell("create", "tutti-bench", "--snapshot", f"--output={folder}/trace")
        and tell("enable-channel", "-u", *session, "--overwrite", "--subbuf-size=1M",
                 "--num-subbuf=4", "ring")
        and tell("enable-event", "-u", *session, "-c", "ring", "tutti_bench:*")
        and tell("start", "tutti-bench")
    )  # fmt: skip


def tell(*words: str) -> bool:
    command = ["lttng", "--no-sessiond", *words]
    return subprocess.run(command, capture_output=True, timeout=60).returncode == 0
