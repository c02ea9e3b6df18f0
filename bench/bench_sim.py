"""The simulator: events per second with a million hosts and a million pending events, one core.

Numbers are per second of processor time. The peer is the same event load on a binary heap
(std::priority_queue) in the same program: what most simulators keep their events in. It has no
coroutines, clocks or cores to run, so it is favoured.
"""

from collections.abc import Iterator

from common import Case, bench_program, compare, printed_number

HOSTS = 1_000_000
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}  # both sides: they span gigabytes


def run(quick: bool) -> Iterator[Case]:
    program = bench_program("sim")
    events = str(3_000_000 if quick else 20_000_000)
    rounds = 3 if quick else 7

    def per_second(what: str, hosts: int) -> float:
        return printed_number(program, what, str(hosts), events, env=HUGE_PAGES) / 1e6

    for hosts in (10_000, HOSTS):
        yield compare(
            case=f"timer events, {hosts:,} hosts",
            unit="million/s",
            higher_is_better=True,
            rounds=rounds,
            ours=lambda hosts=hosts: per_second("timers", hosts),
            peer="std::priority_queue",
            theirs=lambda hosts=hosts: per_second("heap", hosts),
            note="theirs runs no coroutines",
        )
    yield compare(
        case=f"delivered messages of 64 bytes, {HOSTS:,} hosts",
        unit="million/s",
        higher_is_better=True,
        rounds=rounds,
        ours=lambda: per_second("messages", HOSTS),
        peer="bar of 1 million/s",
        theirs=1.0,
    )
    yield compare(
        case=f"an idle host of {HOSTS:,}, asleep",
        unit="bytes",
        higher_is_better=False,
        rounds=1,
        ours=lambda: printed_number(program, "memory", str(HOSTS)),
        peer="bar of 1 KB",
        theirs=1024.0,
    )
