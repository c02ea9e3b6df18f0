"""A small network in NumPy, trained data-parallel over the fabric, its state in the vault.

    tutti run examples/jobs/mlp.toml

Kill any worker at any time, with SIGKILL if you like: a spare takes over, no step is lost, and the
digest at the end is the one of a run that nobody disturbed. Any framework can use Tutti in this
way: what it needs is gradients in arrays.
"""

import argparse
import time

import numpy as np
import tutti

INPUTS, HIDDEN, OUTPUTS = 64, 256, 10


def batch(seed: int, step: int, rank: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """A function of seed, step and rank: whoever computes a step again gets the same samples."""
    random = np.random.Generator(np.random.Philox(key=[seed, step << 20 | rank]))
    x = random.standard_normal((size, INPUTS), dtype=np.float32)
    teacher = np.random.Generator(np.random.Philox(key=[seed, 1 << 62]))
    hidden = np.tanh(x @ teacher.standard_normal((INPUTS, 32), dtype=np.float32) / 4)
    labels = (hidden @ teacher.standard_normal((32, OUTPUTS), dtype=np.float32)).argmax(axis=1)
    return x, labels


def loss_and_gradients(weights, gradients, x, labels) -> float:
    """Forward and backward; writes into `gradients`, and gives the mean cross entropy."""
    hidden = np.maximum(x @ weights["w1"] + weights["b1"], 0)
    logits = hidden @ weights["w2"] + weights["b2"]
    logits -= logits.max(axis=1, keepdims=True)
    probabilities = np.exp(logits)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -np.log(probabilities[rows, labels] + 1e-12).mean()
    probabilities[rows, labels] -= 1
    d_logits = probabilities / len(labels)
    d_hidden = (d_logits @ weights["w2"].T) * (hidden > 0)
    np.matmul(hidden.T, d_logits, out=gradients["w2"])
    np.matmul(x.T, d_hidden, out=gradients["w1"])
    gradients["b2"][...] = d_logits.sum(axis=0)
    gradients["b1"][...] = d_hidden.sum(axis=0)
    return float(loss)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=64, help="samples of each worker")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    try:
        fabric = tutti.fabric.join()
    except tutti.fabric.Finished:
        return  # our predecessor was killed when all was done
    shapes = {
        "w1": (INPUTS, HIDDEN),
        "b1": (HIDDEN,),
        "w2": (HIDDEN, OUTPUTS),
        "b2": (OUTPUTS,),
    }
    model = tutti.vault.Replica(fabric, shapes, learning_rate=2e-3, max_norm=1.0)
    if model.born:
        print(f"rank {fabric.rank} goes on from step {model.step}", flush=True)
    else:
        random = np.random.default_rng(options.seed)
        for weight in model.weights.values():
            weight[...] = random.standard_normal(weight.shape) * (2 / weight.shape[0]) ** 0.5
        model.set_born()

    began, first = time.monotonic(), model.step
    for step in model.steps(options.steps):
        x, labels = batch(options.seed, step, fabric.rank, options.batch)
        loss = loss_and_gradients(model.weights, model.gradients, x, labels)
        if not model.take_step():
            print(f"rank {fabric.rank}: a rank died in step {step}; in epoch {fabric.epoch}")
        elif fabric.rank == 0 and model.step % (options.steps // 10 or 1) == 0:
            rate = (model.step - first) * options.batch * fabric.size / (time.monotonic() - began)
            print(f"step {model.step:5}  loss {loss:.4f}  {rate:8,.0f} samples/s", flush=True)
    print(f"rank {fabric.rank} done: {model.step} steps, digest {model.digest()}", flush=True)


if __name__ == "__main__":
    main()
