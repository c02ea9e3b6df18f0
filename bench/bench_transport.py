"""The tcp and ucx transports between two network namespaces, beside iperf3, UCX itself and Gloo.

Each end is a process in a namespace of its own, joined by a veth pair: packets go through the whole
of both network stacks. iperf3 only sends and receives, from and into one buffer that stays in the
cache, so it is the limit for bandwidth; for UCX ucx_perftest is, with bare active messages. Gloo,
through torch, is what moves tensors without us: send and recv of the same sizes, and processor time
of both ends for each byte. Namespaces need root.
"""

import contextlib
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from common import Case, Missing, bench_program, compare, debian_peer, python_peer, spread_of

MIB = 1 << 20
TORCH = "torch==2.15.0"
SUBNET = "10.213.78"
# UCX's TCP is the only way of it between namespaces.
UCX = {"UCX_TLS": "tcp", "UCX_NET_DEVICES": "eth0", "UCX_LOG_LEVEL": "error"}

Numbers = dict[str, float]


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")


class Wire:
    """Two namespaces, and a wire between them."""

    def __init__(self) -> None:
        self.names = [f"tb{os.getpid() % 100000}{end}" for end in "ab"]
        self.addresses = [f"{SUBNET}.1", f"{SUBNET}.2"]
        self.next_port = 20000
        for name in self.names:
            ip("netns", "add", name)
        one, other = self.names
        ip("-n", one, "link", "add", "eth0", "type", "veth", "peer", "eth0", "netns", other)
        for name, address in zip(self.names, self.addresses, strict=True):
            ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", "eth0", "up")

    def end(self) -> None:
        for name in self.names:
            with contextlib.suppress(OSError):
                ip("netns", "delete", name)

    def port(self) -> int:
        self.next_port += 1
        return self.next_port

    def start(self, end: int, words: list[str], env: dict[str, str]) -> subprocess.Popen[str]:
        command = ["ip", "netns", "exec", self.names[end], *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | env)

    def both(self, words: Callable[[int], list[str]], **env: str) -> list[Numbers]:
        """Runs a program at both ends; each prints one line of JSON last."""
        ends = [self.start(end, words(end), env) for end in (1, 0)]
        outputs = [process.communicate(timeout=300)[0] for process in ends]
        if any(process.returncode for process in ends):
            raise OSError("one end failed")
        return [json.loads(output.splitlines()[-1]) for output in outputs]


def our_run(wire: Wire, what: str, size: int, count: int, *settings: str) -> Numbers:
    program = str(bench_program("transport"))
    port = wire.port()
    places = [f"{address}:{port}" for address in wire.addresses]
    load = [what, str(size), str(count), *settings]
    ucx = UCX if "transport=ucx" in settings else {}
    ends = wire.both(lambda rank: [program, str(rank), *places, *load], **ucx)
    return summed(ends, size * count)


def gloo_run(wire: Wire, python: Path, what: str, size: int, count: int) -> Numbers:
    script = str(Path(__file__).with_name("peers") / "gloo_transport.py")
    with tempfile.TemporaryDirectory() as folder:
        load = [what, str(size), str(count)]

        def words(rank: int) -> list[str]:
            return [str(python), "-W", "ignore", script, str(rank), folder, *load]

        ends = wire.both(words, GLOO_SOCKET_IFNAME="eth0", OMP_NUM_THREADS="1")
    return summed(ends, size * count)


def summed(ends: list[Numbers], total: int) -> Numbers:
    seconds = max(end["seconds"] for end in ends)
    cpu_ns = sum(end["cpu_ns"] for end in ends)
    return {
        "gb_per_s": total / seconds / 1e9,
        "cpu_ns_per_byte": cpu_ns / total,
        "us": min(end["seconds"] for end in ends) * 1e6,
    }


def iperf(wire: Wire, seconds: float) -> float:
    port = str(wire.port())
    server = wire.start(1, ["iperf3", "--server", "--one-off", "--port", port], {})
    time.sleep(0.3)
    words = ["iperf3", "--client", wire.addresses[1], "--port", port, "--json"]
    client = wire.start(0, [*words, "--time", str(seconds)], {})
    output = client.communicate(timeout=60)[0]
    server.communicate(timeout=60)
    return float(json.loads(output)["end"]["sum_received"]["bits_per_second"]) / 8e9


def paired(rounds: int, ours: Callable[[], Numbers], theirs: Callable[[], Numbers]):
    pairs = []
    for turn in range(rounds):
        first = ours() if turn % 2 == 0 else None
        other = theirs()
        pairs.append((first or ours(), other))
    return pairs


def against_gloo(name: str, pairs: list[tuple[Numbers, Numbers]]) -> Iterator[Case]:
    for key, unit, higher, note in (
        ("gb_per_s", "GB/s", True, None),
        ("cpu_ns_per_byte", "ns/byte", False, "of both ends; the bar is above 1x"),
    ):
        what = "processor time" if key == "cpu_ns_per_byte" else "bandwidth"
        ratios = [a[key] / b[key] if higher else b[key] / a[key] for a, b in pairs]
        yield Case(
            f"{what}, {name}",
            unit,
            statistics.median(a[key] for a, _ in pairs),
            "Gloo",
            statistics.median(b[key] for _, b in pairs),
            statistics.median(ratios),
            spread_of(ratios),
            note,
        )


def run(quick: bool) -> Iterator[Case]:
    python = python_peer("torch", TORCH)
    missing = debian_peer("iperf3")
    try:
        wire = Wire()
    except OSError as error:
        raise SystemExit(f"namespaces cannot be made here: {error}; run it as root") from error
    try:
        yield from beside_iperf(wire, missing, quick)
        yield from beside_ucx(wire, quick)
        yield from beside_gloo(wire, python, quick)
    finally:
        wire.end()


def beside_iperf(wire: Wire, missing: Missing | None, quick: bool) -> Iterator[Case]:
    total = (1 if quick else 4) << 30
    bar = f"the bar is 0.85x; {os.cpu_count()} processors"
    limit = missing or (lambda: iperf(wire, 1 if quick else 2))
    for size, settings, note in (
        (MIB, (), bar),
        (16 * MIB, (), None),
        (16 * MIB, ("checksums=0",), None),
        (16 * MIB, ("encrypt=1",), None),
        (16 * MIB, ("streams=2",), None),
    ):
        ours = partial(our_run, wire, "send", size, total // size, *settings)
        yield compare(
            case=", ".join([f"{size // MIB} MiB sends", *settings]),
            unit="GB/s",
            higher_is_better=True,
            rounds=3 if quick else 9,
            note=note,
            ours=lambda ours=ours: ours()["gb_per_s"],
            peer="iperf3",
            theirs=limit,
        )


def ucx_perftest(wire: Wire, size: int, count: int) -> float:
    """GB/s of active messages, two on their way at a time as ours."""
    port = str(wire.port())
    words = ["ucx_perftest", "-t", "ucp_am_bw", "-s", str(size), "-n", str(count), "-w", "4"]
    words += ["-O", "2", "-f", "-v", "-p", port]  # one line of numbers
    server = wire.start(1, words, UCX)
    time.sleep(0.3)
    client = wire.start(0, [*words, wire.addresses[1]], UCX)
    output = client.communicate(timeout=60)[0]
    server.communicate(timeout=60)
    return float(output.splitlines()[-1].split(",")[5]) * MIB / 1e9


def beside_ucx(wire: Wire, quick: bool) -> Iterator[Case]:
    missing = debian_peer("libucx0", "ucx-utils")
    total = (1 if quick else 4) << 30
    for size, settings in ((MIB, ()), (16 * MIB, ()), (16 * MIB, ("checksums=0",))):
        ours = partial(our_run, wire, "send", size, total // size, "transport=ucx", *settings)
        limit = missing or partial(ucx_perftest, wire, size, total // size)
        yield compare(
            case=", ".join([f"{size // MIB} MiB sends over UCX", *settings]),
            unit="GB/s",
            higher_is_better=True,
            rounds=3 if quick else 5,
            ours=lambda ours=ours: ours()["gb_per_s"],
            peer="ucx_perftest",
            theirs=limit,
        )


def beside_gloo(wire: Wire, python: Path | Missing, quick: bool) -> Iterator[Case]:
    rounds = 3 if quick else 5
    total = (1 if quick else 4) << 30
    if isinstance(python, Missing):
        ours = our_run(wire, "send", MIB, total // MIB)["cpu_ns_per_byte"]
        yield Case("processor time", "ns/byte", ours, "Gloo", None, None, 0.0, python.why)
        return
    for size in (MIB, 16 * MIB):
        load = ("send", size, total // size)
        pairs = paired(
            rounds, partial(our_run, wire, *load), partial(gloo_run, wire, python, *load)
        )
        yield from against_gloo(f"{size // MIB} MiB sends", pairs)
    for size in (8, 4096):
        load = ("ping", size, 2_000 if quick else 20_000)
        pairs = paired(
            rounds, partial(our_run, wire, *load), partial(gloo_run, wire, python, *load)
        )
        ratios = [b["us"] / a["us"] for a, b in pairs]
        yield Case(
            f"one way, {size} bytes",
            "µs",
            statistics.median(a["us"] for a, _ in pairs),
            "Gloo",
            statistics.median(b["us"] for _, b in pairs),
            statistics.median(ratios),
            spread_of(ratios),
        )
