"""JAX as bench_train measures it: torch_gpt.py's model, jitted as one step, a turn on demand.

usage: jax_gpt.py jit THREADS LAYERS WIDTH HEADS CONTEXT VOCABULARY BATCH
"""

import os
import sys
import time

threads, layers, width, heads, context, vocabulary, batch = map(int, sys.argv[2:9])
os.environ["XLA_FLAGS"] = (
    f"--xla_cpu_multi_thread_eigen=true intra_op_parallelism_threads={threads}"
)
os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:threads]))

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402


def norm(x, scale):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * scale


def attention(q, k, v):
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(width // heads)
    seen = jnp.tril(jnp.ones((context, context), bool))
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(seen, scores, -jnp.inf)), v)


def loss_of(weights, tokens, targets):
    x = weights["words"][tokens] + weights["places"]

    def layer(x, w):
        qkv = (norm(x, w["norm1"]) @ w["qkv"]).reshape(batch, context, 3, heads, width // heads)
        mixed = attention(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2])
        x = x + mixed.reshape(batch, context, width) @ w["out"]
        hidden = jax.nn.gelu(norm(x, w["norm2"]) @ w["up"], approximate=False)
        return x + hidden @ w["down"], None

    x, _ = jax.lax.scan(layer, x, weights["layers"], unroll=layers)
    logits = norm(x, weights["norm"]) @ weights["words"].T
    right = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return (jax.nn.logsumexp(logits, -1) - right).mean()


def adamw(weight, first, second, gradient, step):
    first = 0.9 * first + 0.1 * gradient
    second = 0.999 * second + 0.001 * gradient * gradient
    update = (first / (1 - 0.9**step)) / (jnp.sqrt(second / (1 - 0.999**step)) + 1e-8)
    return weight - 1e-3 * (update + 0.01 * weight), first, second


def train(weights, first, second, step, tokens, targets):
    loss, gradients = jax.value_and_grad(loss_of)(weights, tokens, targets)
    made = jax.tree.map(
        lambda w, m, v, g: adamw(w, m, v, g, step), weights, first, second, gradients
    )
    parts = [jax.tree.map(lambda _, t: t[i], weights, made) for i in range(3)]  # noqa: B023
    return loss, *parts


def initial():
    keys = iter(jax.random.split(jax.random.key(1), 8))
    normal = lambda *shape: 0.02 * jax.random.normal(next(keys), shape)  # noqa: E731
    return {
        "words": normal(vocabulary, width),
        "places": normal(context, width),
        "norm": jnp.ones(width),
        "layers": {
            "norm1": jnp.ones((layers, width)),
            "norm2": jnp.ones((layers, width)),
            "qkv": normal(layers, width, 3 * width),
            "out": normal(layers, width, width),
            "up": normal(layers, width, 4 * width),
            "down": normal(layers, 4 * width, width),
        },
    }


weights = initial()
first, second = (jax.tree.map(jnp.zeros_like, weights) for _ in range(2))
tokens, targets = (
    jax.random.randint(jax.random.key(seed), (batch, context), 0, vocabulary) for seed in (2, 3)
)
jitted = jax.jit(train, donate_argnums=(0, 1, 2))
done = 0


def steps(count: int) -> float:
    global weights, first, second, done
    begin = time.perf_counter()
    for _ in range(count):
        done += 1
        loss, weights, first, second = jitted(
            weights, first, second, jnp.float32(done), tokens, targets
        )
        float(loss)
    jax.block_until_ready(weights)
    return time.perf_counter() - begin


print(steps(1), flush=True)
for line in sys.stdin:
    print(steps(int(line)), flush=True)
