"""Hashing: how fast contents and checksums are read, beside PyPI's xxhash.

Both sides count processor time: a single thread that never waits is the same work either way, and
other programs on the machine disturb it less.
"""

from collections.abc import Iterator

from common import Case, Missing, bench_program, compare, printed_number, python_peer

PEER = "xxhash==4.1.0"
SIZES = {"4 KiB": 4 << 10, "256 KiB": 256 << 10, "64 MiB": 64 << 20}

THEIRS = """
import sys, time, xxhash
size, total = int(sys.argv[1]), int(sys.argv[2])
rounds = max(1, total // size)
buffer = bytearray(b"x") * size
digest = xxhash.xxh3_64_intdigest
digest(buffer)
start = time.process_time()
for i in range(rounds):
    buffer[i % size] = i & 255
    digest(buffer)
print(rounds * size / (time.process_time() - start) / 1e9)
"""


def run(quick: bool) -> Iterator[Case]:
    total = str((1 if quick else 4) << 30)
    ours = bench_program("hash")
    theirs = python_peer("xxhash", PEER)
    for name, size in SIZES.items():
        yield compare(
            case=f"XXH3-64 of {name}",
            unit="GB/s",
            higher_is_better=True,
            rounds=3 if quick else 9,
            note="theirs pays for a Python call per buffer" if size < 64 << 10 else None,
            ours=lambda size=size: printed_number(ours, str(size), total),
            peer=PEER.replace("==", " "),
            theirs=theirs
            if isinstance(theirs, Missing)
            else lambda size=size: printed_number(theirs, "-c", THEIRS, str(size), total),
        )
