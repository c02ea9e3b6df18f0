"""Our side of bench_generate: generate_worker.py WEIGHTS THREADS BATCH, asked and answering as
bench/peers/torch_generate.py does."""

import json
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "examples"), str(Path(__file__).parent / "peers")]

PLACES = 256


def prompts(batch: int, length: int) -> list[list[int]]:
    return [[(place * 31 + row * 7) % 50000 for place in range(length)] for row in range(batch)]


def main() -> None:
    import gpt
    import tutti

    weights, threads, batch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    model = gpt.GPT(gpt.ModelConfig(vocabulary=50304))
    generator = tutti.Generator(model, weights, context=PLACES, sequences=batch, threads=threads)
    for line in sys.stdin:
        length, count = map(int, line.split())
        tokens, begun, last = [], 0.0, 0.0
        for made in generator.stream(prompts(batch, length), tokens=count, temperature=0):
            last = time.perf_counter()
            if made.sequence == 0:
                tokens.append(made.token)
                begun = begun or last
        print(json.dumps([batch * (count - 1) / (last - begun), tokens]), flush=True)


if __name__ == "__main__":
    main()
