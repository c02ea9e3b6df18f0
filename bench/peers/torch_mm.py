"""torch as bench_gemm multiplies, by torch.mm (MKL) or oneDNN: torch_mm.py THREADS mm|onednn

Each line "M N K A_TRANSPOSED B_TRANSPOSED MILLISECONDS" is answered with GFLOP/s, the median over
the calls that fit into that time, which is processor time if there is one thread.
"""

import statistics
import sys
import time

import torch

BYTES_OF_ALL_SETS, MOST_SETS = 64 << 20, 8


def operand(rows: int, columns: int, transposed: bool) -> torch.Tensor:
    return torch.rand(columns, rows).t() if transposed else torch.rand(rows, columns)


def by_onednn(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """It has no plain product, but a layer, of which b is the weights; and makes its result anew.
    `out` is not written: that is a copy that it need not pay for."""
    return torch.ops.mkldnn._linear_pointwise(a, b.t(), None, "none", [], "")


def main() -> None:
    multiply = {"mm": torch.mm, "onednn": by_onednn}[sys.argv[2]]
    torch.set_num_threads(int(sys.argv[1]))
    clock = time.process_time if sys.argv[1] == "1" else time.perf_counter
    last, sets = None, []
    for line in sys.stdin:
        m, n, k, a_transposed, b_transposed = map(int, line.split()[:5])
        if last != line.split()[:5]:
            count = min(MOST_SETS, max(1, BYTES_OF_ALL_SETS // (4 * (m * k + k * n + m * n))))
            sets = [
                (operand(m, k, a_transposed), operand(k, n, b_transposed), torch.zeros(m, n))
                for _ in range(count)
            ]
            last = line.split()[:5]
        a, b, c = sets[0]
        multiply(a, b, out=c)
        seconds: list[float] = []
        end = time.perf_counter() + float(line.split()[5]) / 1e3
        while not seconds or time.perf_counter() < end:
            a, b, c = sets[len(seconds) % len(sets)]
            start = clock()
            multiply(a, b, out=c)
            seconds.append(clock() - start)
        print(2 * m * n * k / statistics.median(seconds) / 1e9, flush=True)


main()
