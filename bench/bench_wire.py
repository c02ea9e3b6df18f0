"""Calls per second, latency and processor time of the RPC, beside gRPC C++ in all its styles; and
large messages beside a raw TCP socket.

Client and server are separate processes on loopback TCP, with one connection. gRPC is tried with
its sync, callback and completion-queue interfaces, the last also polling instead of sleeping; for
each case the style with the most calls per second is what we are measured against.
"""

import json
import os
import shutil
import statistics
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common import (
    PEERS,
    ROOT,
    Case,
    Missing,
    bench_program,
    compare,
    debian_peer,
    progress,
    spread_of,
)

PAYLOAD_BYTES = 64
LARGE_BYTES = 1 << 20
# Enough to keep both sides busy while a grant of credit travels.
LARGE_IN_FLIGHT = 4
STYLES = ("sync", "callback", "queue", "spin")

Numbers = dict[str, float]


@contextmanager
def server(*command: str | Path) -> Iterator[str]:
    """Runs a server that prints its port first."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()


def last_line(*command: str | Path) -> str:
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=120)
    return done.stdout.splitlines()[-1]


def our_calls(ours: Path, in_flight: int, seconds: float, tls: list[str]) -> Numbers:
    with server(ours, "serve", *tls) as port:
        load = (str(PAYLOAD_BYTES), str(in_flight), str(seconds))
        return json.loads(last_line(ours, "call", port, *load, *tls))


def grpc_calls(grpc: Path, style: str, in_flight: int, seconds: float, tls: list[str]) -> Numbers:
    with server(grpc, "serve", style, *tls) as port:
        load = (str(PAYLOAD_BYTES), str(in_flight), str(seconds))
        return json.loads(last_line(grpc, "call", style, port, *load, *tls))


def build_grpc() -> Path | Missing:
    """Compiles bench/peers/grpc_echo.cc against Debian's gRPC, once per change."""
    missing = debian_peer("libgrpc++-dev", "protobuf-compiler-grpc", "pkg-config")
    if missing:
        return missing
    folder = PEERS / "grpc"
    folder.mkdir(parents=True, exist_ok=True)
    sources = [ROOT / "bench/peers/grpc_echo.cc", ROOT / "bench/measure.h"]
    sources.append(ROOT / "bench/echo.proto")
    program = folder / "grpc_echo"
    newest = max(source.stat().st_mtime for source in sources)
    if program.exists() and program.stat().st_mtime > newest:
        return program
    progress("compiling the gRPC peer under .bench/grpc")
    plugin = shutil.which("grpc_cpp_plugin")
    generate = ["protoc", f"-I{ROOT / 'bench'}", f"--cpp_out={folder}", f"--grpc_out={folder}"]
    subprocess.run([*generate, f"--plugin=protoc-gen-grpc={plugin}", "echo.proto"], check=True)
    libraries = subprocess.run(
        ["pkg-config", "--libs", "grpc++", "protobuf"], check=True, capture_output=True, text=True
    ).stdout.split()
    generated = [folder / "echo.pb.cc", folder / "echo.grpc.pb.cc"]
    flags = ["-std=c++20", "-O2", f"-I{folder}", f"-I{ROOT / 'bench/peers'}"]
    command = ["g++", *flags, sources[0], *generated, "-o", program, *libraries]
    subprocess.run(command, check=True)
    return program


def make_certificates(ours: Path) -> Path:
    """P-256 keys for both: ours by our own authority, gRPC's by OpenSSL with a DNS name."""
    folder = PEERS / "wire-certificates"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    subprocess.run([ours, "certificates", folder], check=True)

    def openssl(*arguments: str) -> None:
        command = ["openssl", *arguments]
        subprocess.run(command, check=True, cwd=folder, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    authority = ("-subj", "/CN=bench", "-days", "30", "-keyout", "ca.key", "-out", "ca.pem")
    openssl("req", "-x509", *key, *authority)
    for name in ("server", "client"):
        (folder / "san").write_text(f"subjectAltName=DNS:{name}\n")
        request = ("-subj", f"/CN={name}", "-keyout", f"grpc-{name}.key", "-out", "request.pem")
        openssl("req", *key, *request)
        signer = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30")
        openssl("x509", "-req", "-in", "request.pem", *signer, "-extfile", "san",
                "-out", f"grpc-{name}.pem")  # fmt: skip
    return folder


def best_style(grpc: Path, in_flight: int, seconds: float, tls: list[str]) -> str:
    """The style with the most calls per second, by the median of three short runs."""
    rates: dict[str, list[float]] = {style: [] for style in STYLES}
    for _ in range(3):
        for style in STYLES:
            numbers = grpc_calls(grpc, style, in_flight, seconds, tls)
            rates[style].append(numbers["calls_per_s"])
    medians = {style: statistics.median(rate) for style, rate in rates.items()}
    shown = ", ".join(f"{style} {rate:,.0f}" for style, rate in medians.items())
    progress(f"gRPC, {in_flight} in flight{', TLS' if tls else ''}: {shown} calls/s")
    return max(medians, key=lambda style: medians[style])


def call_cases(
    ours: Path, grpc: Path | Missing, certificates: Path, in_flight: int, sealed: bool, quick: bool
) -> Iterator[Case]:
    tls = ["--tls", str(certificates)] if sealed else []
    seconds = 0.5 if quick else 2.0
    rounds = 3 if quick else 7
    case = f"{in_flight} in flight{', TLS' if sealed else ''}"
    style = "-" if isinstance(grpc, Missing) else best_style(grpc, in_flight, seconds / 2, tls)
    peer = f"gRPC C++ ({style})"
    mine: list[Numbers] = []
    other: list[Numbers] = []
    for i in range(rounds):
        sides = [lambda: mine.append(our_calls(ours, in_flight, seconds, tls))]
        if not isinstance(grpc, Missing):
            sides.append(lambda: other.append(grpc_calls(grpc, style, in_flight, seconds, tls)))
        for side in sides if i % 2 == 0 else reversed(sides):
            side()
    for key, name, unit, higher in (
        ("calls_per_s", "calls", "calls/s", True),
        ("cpu_us_per_call", "processor time", "µs/call", False),
        ("p99_us", "p99", "µs", False),
    ):
        a = [numbers[key] for numbers in mine]
        b = [numbers[key] for numbers in other]
        if isinstance(grpc, Missing):
            yield Case(f"{name}, {case}", unit, statistics.median(a), peer, None, None,
                       spread_of(a), grpc.why)  # fmt: skip
            continue
        ratios = [x / y if higher else y / x for x, y in zip(a, b, strict=True)]
        yield Case(f"{name}, {case}", unit, statistics.median(a), peer, statistics.median(b),
                   statistics.median(ratios), spread_of(ratios))  # fmt: skip


def run(quick: bool) -> Iterator[Case]:
    ours = bench_program("wire")
    raw = bench_program("raw_tcp")
    grpc = build_grpc()
    certificates = make_certificates(ours)
    for sealed in (False, True):
        for in_flight in (1, 64):
            yield from call_cases(ours, grpc, certificates, in_flight, sealed, quick)

    seconds = str(0.5 if quick else 2.0)

    def our_throughput() -> float:
        with server(ours, "serve") as port:
            load = (str(LARGE_BYTES), str(LARGE_IN_FLIGHT), seconds)
            return float(last_line(ours, "send", port, *load))

    def raw_throughput() -> float:
        with server(raw, "serve") as port:
            return float(last_line(raw, "send", port, str(LARGE_BYTES), seconds))

    yield compare(
        case="1 MiB messages",
        unit="GB/s",
        higher_is_better=True,
        rounds=3 if quick else 9,
        note=f"the bar is 0.80x; {os.cpu_count()} processors",
        ours=our_throughput,
        peer="raw TCP",
        theirs=raw_throughput,
    )
