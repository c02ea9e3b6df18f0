"""What it costs that a step survives a kill: commit beside the plain AdamW loop.

"limit" is the loop that a kill would tear. A ratio of 0.83 is a cost of 20 %.
"""

from collections.abc import Iterator
from functools import partial

from common import Case, bench_program, compare, printed_number


def run(quick: bool) -> Iterator[Case]:
    program = bench_program("commit")
    for elements in (1_000_000, 10_000_000) if quick else (1_000_000, 10_000_000, 100_000_000):
        yield compare(
            case=f"AdamW of {elements // 1_000_000} million elements, one thread",
            unit="ms",
            higher_is_better=False,
            rounds=5 if quick else 15,
            ours=partial(printed_number, program, "commit", str(elements)),
            peer="limit",
            theirs=partial(printed_number, program, "plain", str(elements)),
        )
