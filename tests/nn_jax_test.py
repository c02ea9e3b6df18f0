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


def assert_close(ours: np.ndarray, theirs: np.ndarray, what: str) -> None:
    theirs = np.asarray(theirs)
    assert ours.shape == theirs.shape, what
    worst = np.max(np.abs(ours - theirs) / (1 + np.abs(theirs)))
    assert worst <= TOLERANCE, f"{what} is off by {worst}"


def check(model: nn.Model, arrays: dict, loss) -> None:
    """Loss and gradients by every weight: ours, compiled, and those of a function of the arrays."""
    weights = {each.name: arrays[each.name].astype(np.float64) for each in model.parameters}
    compiled = jax.jit(jax.value_and_grad(lambda w: loss(arrays | w)))  # else op by op, slowly
    expected, gradients = compiled(weights)
    graph = with_gradients(model)
    results = nn.Program(graph, threads=1)(arrays)
    assert_close(results["loss"], expected, "loss")
    for name, gradient in gradients.items():
        assert np.abs(gradient).max() > 1e-6, f"{name} changes nothing: the test is blind"
        assert_close(results[f"gradient/{name}"], gradient, name)
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

    def linear(x, name, layer):
        y = x @ arrays[f"h.*.{name}.weight"][layer]
        return y + arrays[f"h.*.{name}.bias"][layer] if config.bias else y

    def normed(x, name, layer=None):
        def one(part):
            each = arrays.get(f"{name}.{part}")
            return each if each is None or layer is None else each[layer]

        return norm(x, one("weight"), one("bias"))

    tokens = arrays["tokens"]
    batch, time = tokens.shape
    key_heads = config.key_heads or config.heads
    size = config.width // config.heads
    x = arrays["wte.weight"][tokens] + arrays["wpe.weight"][:time]
    for layer in range(config.layers):
        qkv = linear(normed(x, "h.*.ln_1", layer), "attn.c_attn", layer)
        q, k, v = jnp.split(qkv, [config.width, config.width + key_heads * size], -1)
        q = q.reshape(batch, time, key_heads, config.heads // key_heads, size)
        k, v = (each.reshape(batch, time, key_heads, size) for each in (k, v))
        x = x + linear(attention(q, k, v).reshape(batch, time, -1), "attn.c_proj", layer)
        inner = linear(normed(x, "h.*.ln_2", layer), "mlp.c_fc", layer)
        inner = jax.nn.gelu(inner, approximate=config.activation == "gelu_tanh")
        x = x + linear(inner, "mlp.c_proj", layer)
    head = arrays["wte.weight" if config.tied else "lm_head.weight"]
    return cross_entropy(normed(x, "ln_f") @ head.T, arrays["targets"])


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
    """Something made of one weight and an input, and a loss of it that has a gradient."""

    def __init__(self, compute, **dims: int) -> None:
        self.weight = nn.parameter(**dims)
        self.compute = compute

    def __call__(self, x: nn.Tensor) -> nn.Tensor:
        y = self.compute(x, self.weight)
        return (y * nn.cos(y)).mean()


def scalar_loss(y):
    return (y * jnp.cos(y)).mean()


ROWS = nn.f32(batch=3, embed=19)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda x, w: nn.gelu(x * w), lambda x, w: jax.nn.gelu(x * w, approximate=False)),
        (lambda x, w: nn.gelu(x * w, True), lambda x, w: jax.nn.gelu(x * w, approximate=True)),
        (lambda x, w: nn.layer_norm(x, w, None, "embed"), norm),
        (
            lambda x, w: nn.layer_norm(x * w, None, w, "embed"),
            lambda x, w: norm(x * w, 1.0, w),
        ),
        (
            lambda x, w: nn.rms_norm(x, w, "embed", epsilon=1e-6),
            lambda x, w: x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w,
        ),
        (lambda x, w: nn.softmax(x * w, "embed"), lambda x, w: jax.nn.softmax(x * w)),
        (lambda x, w: nn.silu(x * w), lambda x, w: jax.nn.silu(x * w)),
        (lambda x, w: nn.relu(x) * nn.sigmoid(w), lambda x, w: jax.nn.relu(x) * jax.nn.sigmoid(w)),
        (lambda x, w: nn.where(x < w, x * w, 2.0), lambda x, w: jnp.where(x < w, x * w, 2.0)),
        (
            lambda x, w: nn.concat([x, (x + w).slice("embed", 2, 5)], "embed") / 3 - 1,
            lambda x, w: jnp.concatenate([x, (x + w)[:, 2:5]], -1) / 3 - 1,
        ),
        (
            lambda x, w: x.dot(w.rename(embed="out").expand(embed=19), over="embed"),
            lambda x, w: x @ jnp.tile(w, (19, 1)),
        ),
    ],
    ids=[
        "gelu",
        "gelu-tanh",
        "layer-norm",
        "layer-norm-shift",
        "rms-norm",
        "softmax",
        "silu",
        "relu",
        "where",
        "concat",
        "matmul",
    ],
)
def test_operations_have_the_gradients_of_jax(ours, theirs) -> None:
    model = nn.trace(Weighted(ours, embed=19), x=ROWS)
    check(model, random_arrays(model), lambda a: scalar_loss(theirs(a["x"], a["weight"])))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("group", [1, 3])
def test_attention_has_the_gradients_of_jax(causal: bool, group: int) -> None:
    def ours(x: nn.Tensor, weight: nn.Parameter) -> nn.Tensor:
        q, k, v = (x * weight).unstack("three")
        if group > 1:
            q = q.split("head", group=group, head=-1)
            k, v = (each.slice("head", 0, 5) for each in (k, v))
        return nn.attention(q, k, v, causal=causal)

    def theirs(x, weight):
        q, k, v = x * weight
        q = q.reshape(*q.shape[:-1], group, -1)
        return attention(q, k[..., : q.shape[-1]], v[..., : q.shape[-1]], causal)

    dims = {"three": 3, "batch": 2, "time": 11, "heads": 2, "head": 5 * group}
    model = nn.trace(Weighted(ours, **dims), x=nn.f32(**dims))
    check(model, random_arrays(model), lambda a: scalar_loss(theirs(a["x"], a["weight"])))


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
