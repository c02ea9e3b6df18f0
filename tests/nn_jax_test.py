"""Models of tutti.nn compute what JAX does, loss and gradients, compiled for one or two threads."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from model_tools import example, random_arrays, with_gradients
from tutti import nn

jax.config.update("jax_enable_x64", True)  # it is the judge
jax.config.update("jax_platforms", "cpu")

gpt = example("gpt")
TOLERANCE = 1e-5
# Compiling takes far longer than what is computed.
UNOPTIMIZED = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def assert_close(ours: np.ndarray, theirs: np.ndarray, what: str) -> None:
    theirs = np.asarray(theirs)
    assert ours.shape == theirs.shape, what
    worst = np.max(np.abs(ours - theirs) / (1 + np.abs(theirs)))
    assert worst <= TOLERANCE, f"{what} is off by {worst}"


def check(model: nn.Model, arrays: dict, loss) -> None:
    """Loss and gradients by every weight: ours, compiled, and those of a function of the arrays."""
    weights = {each.name: arrays[each.name].astype(np.float64) for each in model.parameters}
    both = jax.jit(jax.value_and_grad(lambda w: loss(arrays | w))).lower(weights)
    expected, gradients = both.compile(compiler_options=UNOPTIMIZED)(weights)
    graph = with_gradients(model)
    results = nn.Program(graph, threads=1)(arrays)
    for name, gradient in gradients.items():
        assert np.abs(gradient).max() > 1e-6, f"{name} changes nothing: the test is blind"
        assert_close(results[f"gradient/{name}"], gradient, name)
    assert_close(results["loss"], expected, "loss")
    by_two = nn.Program(graph, threads=2)(arrays)
    assert all(by_two[name].tobytes() == each.tobytes() for name, each in results.items())


def norm(x, weight, bias=None):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    y = (x - mean) / jnp.sqrt(variance + 1e-5) * weight
    return y if bias is None else y + bias


def attention(q, k, v, causal=True):
    """[batch, time, key heads, group, head] and twice [batch, time, key heads, head]."""
    scores = jnp.einsum("bqhgd,bkhd->bhgqk", q, k) / np.sqrt(q.shape[-1])
    if causal:
        seen = np.tril(np.ones(scores.shape[-2:], bool))
        scores = jnp.where(seen, scores, -jnp.inf)
    return jnp.einsum("bhgqk,bkhd->bqhgd", jax.nn.softmax(scores), v)


def cross_entropy(logits, targets):
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1)
    return -chosen.mean()


def gpt_loss(config, arrays):
    """GPT-2 as its paper and published code have it."""

    def linear(x, weights, name):
        y = x @ weights[f"{name}.weight"]
        return y + weights[f"{name}.bias"] if config.bias else y

    def normed(x, weights, name):
        return norm(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"))

    tokens = arrays["tokens"]
    batch, time = tokens.shape
    key_heads = config.key_heads or config.heads
    size = config.width // config.heads

    def block(x, weights):
        qkv = linear(normed(x, weights, "ln_1"), weights, "attn.c_attn")
        q, k, v = jnp.split(qkv, [config.width, config.width + key_heads * size], -1)
        q = q.reshape(batch, time, key_heads, config.heads // key_heads, size)
        k, v = (each.reshape(batch, time, key_heads, size) for each in (k, v))
        mixed = attention(q, k, v).reshape(batch, time, -1)
        x = x + linear(mixed, weights, "attn.c_proj")
        inner = linear(normed(x, weights, "ln_2"), weights, "mlp.c_fc")
        inner = jax.nn.gelu(inner, approximate=config.activation == "gelu_tanh")
        return x + linear(inner, weights, "mlp.c_proj"), None

    layers = {name[4:]: each for name, each in arrays.items() if name.startswith("h.*.")}
    x = arrays["wte.weight"][tokens] + arrays["wpe.weight"][:time]
    x, _ = jax.lax.scan(block, x, layers)
    head = arrays["wte.weight" if config.tied else "lm_head.weight"]
    return cross_entropy(normed(x, arrays, "ln_f") @ head.T, arrays["targets"])


@pytest.mark.parametrize(
    "options",
    [
        {"heads": 3, "width": 21, "context": 7},
        {"heads": 2, "width": 34, "context": 13, "bias": False, "activation": "gelu"},
        {"heads": 6, "key_heads": 2, "width": 30, "context": 17, "tied": False},
    ],
    ids=["small", "no-bias", "grouped-queries"],
)
def test_a_gpt_has_the_loss_and_gradients_of_jax(options: dict) -> None:
    config = gpt.ModelConfig(layers=2, vocabulary=19, **options)
    batch = nn.i32(batch=3, time=config.context)
    model = nn.trace(gpt.GPT(config), tokens=batch, targets=batch)
    arrays = random_arrays(model, whole=config.vocabulary)
    for each in model.parameters:  # as large as trained ones, so that every term counts
        arrays[each.name] *= 0.3
    check(model, arrays, lambda with_weights: gpt_loss(config, with_weights))


class Weighted(nn.Module):
    """Operations, each of the input and a weight of its own, and a loss of them all: the gradient
    by a weight tells of its operation alone, and all are compiled at once."""

    def __init__(self, operations: dict, **dims: int) -> None:
        self.weights = {name: nn.parameter(**dims) for name in operations}
        self.operations = operations

    def __call__(self, x: nn.Tensor) -> nn.Tensor:
        made = [self.operations[name](x, weight) for name, weight in self.weights.items()]
        return sum((y * nn.cos(y)).mean() for y in made)


def check_each(operations: dict, **dims: int) -> None:
    """Ours and JAX's, by name."""
    ours = {name: pair[0] for name, pair in operations.items()}
    model = nn.trace(Weighted(ours, **dims), x=nn.f32(**dims))

    def theirs(arrays):
        made = [
            pair[1](arrays["x"], arrays[f"weights.{name}"]) for name, pair in operations.items()
        ]
        return sum((y * jnp.cos(y)).mean() for y in made)

    check(model, random_arrays(model), theirs)


OPERATIONS = {
    "gelu": (
        lambda x, w: nn.gelu(x * w),
        lambda x, w: jax.nn.gelu(x * w, approximate=False),
    ),
    "gelu-tanh": (
        lambda x, w: nn.gelu(x * w, approximate=True),
        lambda x, w: jax.nn.gelu(x * w, approximate=True),
    ),
    "layer-norm": (
        lambda x, w: nn.layer_norm(x, w.mean("batch"), None, "embed"),
        lambda x, w: norm(x, w.mean(0)),
    ),
    "layer-norm-shift": (
        lambda x, w: nn.layer_norm(x * w, None, w.mean("batch"), "embed"),
        lambda x, w: norm(x * w, 1.0, w.mean(0)),
    ),
    "rms-norm": (
        lambda x, w: nn.rms_norm(x, w.mean("batch"), "embed", epsilon=1e-6),
        lambda x, w: x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w.mean(0),
    ),
    "softmax": (lambda x, w: nn.softmax(x * w, "embed"), lambda x, w: jax.nn.softmax(x * w)),
    "silu": (lambda x, w: nn.silu(x * w), lambda x, w: jax.nn.silu(x * w)),
    "relu": (
        lambda x, w: nn.relu(x) * nn.sigmoid(w),
        lambda x, w: jax.nn.relu(x) * jax.nn.sigmoid(w),
    ),
    "where": (
        lambda x, w: nn.where(x < w, x * w, 2.0),
        lambda x, w: jnp.where(x < w, x * w, 2.0),
    ),
    "concat": (
        lambda x, w: nn.concat([x, (x + w).slice("embed", 2, 5)], "embed") / 3 - 1,
        lambda x, w: jnp.concatenate([x, (x + w)[:, 2:5]], -1) / 3 - 1,
    ),
    "matmul": (
        lambda x, w: x.dot(w.rename(batch="out"), over="embed"),
        lambda x, w: x @ w.T,
    ),
}


def test_operations_have_the_gradients_of_jax() -> None:
    check_each(OPERATIONS, batch=3, embed=19)


def attention_pair(causal: bool, group: int):
    """Ours and theirs; with groups, keys and values are a part of what there is."""

    def ours(x: nn.Tensor, weight: nn.Parameter) -> nn.Tensor:
        q, k, v = (x * weight).unstack("three")
        if group > 1:
            q = q.split("head", group=group, head=-1)
            k, v = (each.slice("head", 0, q.size("head")) for each in (k, v))
        return nn.attention(q, k, v, causal=causal)

    def theirs(x, weight):
        q, k, v = x * weight
        q = q.reshape(*q.shape[:-1], group, -1)
        return attention(q, k[..., : q.shape[-1]], v[..., : q.shape[-1]], causal)

    return ours, theirs


def test_attention_has_the_gradients_of_jax() -> None:
    cases = {
        f"{'causal' if causal else 'whole'}-{group}": attention_pair(causal, group)
        for causal in (True, False)
        for group in (1, 3)
    }
    check_each(cases, three=3, batch=2, time=11, heads=2, head=15)


def test_targets_below_zero_do_not_count() -> None:
    class Head(nn.Module):
        def __init__(self) -> None:
            self.head = nn.Embedding(vocab=7, embed=5)

        def __call__(self, x: nn.Tensor, targets: nn.Tensor) -> nn.Tensor:
            return nn.cross_entropy(x, self.head.weight, targets, over="embed").sum()

    model = nn.trace(Head(), x=nn.f32(batch=4, embed=5), targets=nn.i32(batch=4))
    arrays = random_arrays(model) | {"targets": np.array([3, -1, 6, -1], np.int32)}

    def theirs(given):
        logits = given["x"] @ given["head.weight"].T
        kept = np.array([0, 2])
        return 2 * cross_entropy(logits[kept], arrays["targets"][kept])

    check(model, arrays, theirs)
