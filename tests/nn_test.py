"""Models in Python: what they become, and what is said when they are wrong."""

import re
import subprocess
import sys
import types
from collections.abc import Callable

import numpy as np
import pytest
import tutti
from model_tools import ROOT, example, random_arrays, with_gradients, without_lines
from tutti import nn

gpt = example("gpt")


class MLP(nn.Module):
    def __init__(self, embed: int, hidden: int) -> None:
        self.norm = nn.RMSNorm(embed=embed)
        self.up = nn.Linear({"embed": embed}, {"hidden": hidden})
        self.down = nn.Linear({"hidden": hidden}, {"embed": embed}, bias=False)

    def __call__(self, x: nn.Tensor) -> nn.Tensor:
        return x + self.down(nn.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self) -> None:
        self.scale = nn.parameter(embed=3, init=nn.ones)
        self.blocks = nn.Layers(2, MLP(3, 4))

    def __call__(self, x: nn.Tensor) -> nn.Tensor:
        return (self.blocks(x * self.scale) ** 2).mean()


def test_a_model_becomes_a_graph_with_its_names_and_the_lines_of_its_code() -> None:
    model = nn.trace(Net(), x=nn.f32(batch=2, embed=3))
    first = Net.__call__.__code__.co_firstlineno + 1
    block = MLP.__call__.__code__.co_firstlineno + 1
    text = model.text().replace(f"nn_test.py:{first}", "NET").replace(f"nn_test.py:{block}", "MLP")
    x = "f32[batch=2, embed=3]"
    hidden = "f32[batch=2, hidden=4]"
    assert text == (
        f"graph net(%x: {x}, %scale: f32[embed=3] state,"
        " %blocks.*.norm.weight: f32[layer=2, embed=3] state,"
        " %blocks.*.up.weight: f32[layer=2, embed=3, hidden=4] state,"
        " %blocks.*.up.bias: f32[layer=2, hidden=4] state,"
        " %blocks.*.down.weight: f32[layer=2, hidden=4, embed=3] state) {\n"
        f'  %0 = broadcast(%scale) : {x} @"NET"\n'
        f'  %1 = mul(%x, %0) : {x} @"NET"\n'
        "  %2 = repeat(%1, %blocks.*.norm.weight, %blocks.*.up.weight, %blocks.*.up.bias,"
        ' %blocks.*.down.weight) {carried=1, count=2, reversed=false, sliced=4, stack="layer"}\n'
        f'      : {x} @"NET"\n'
        f"  body(%carried0: {x}, %part0: f32[embed=3], %part1: f32[embed=3, hidden=4],"
        " %part2: f32[hidden=4], %part3: f32[hidden=4, embed=3]) {\n"
        '    %0, %1 = rms_norm(%carried0, %part0) {dim="embed", epsilon=1e-06}\n'
        f'        : {x}, f32[batch=2] @"MLP"\n'
        f'    %2 = matmul(%0, %part1) {{over=["embed"]}} : {hidden} @"MLP"\n'
        f'    %3 = broadcast(%part2) : {hidden} @"MLP"\n'
        f'    %4 = add(%2, %3) : {hidden} @"MLP"\n'
        f'    %5 = gelu(%4) {{tanh=false}} : {hidden} @"MLP"\n'
        f'    %6 = matmul(%5, %part3) {{over=["hidden"]}} : {x} @"MLP"\n'
        f'    %7 = add(%carried0, %6) : {x} @"MLP"\n'
        '    return %7 as "carried0"\n'
        "  }\n"
        '  %3 = constant() {value=2.0} : f32[] @"NET"\n'
        f'  %4 = broadcast(%3) : {x} @"NET"\n'
        f'  %5 = pow(%2, %4) : {x} @"NET"\n'
        '  %6 = sum(%5) {dims=["batch", "embed"]} : f32[] @"NET"\n'
        '  %7 = constant() {value=0.16666666666666666} : f32[] @"NET"\n'
        '  %8 = mul(%6, %7) : f32[] @"NET"\n'
        '  return %8 as "loss"\n'
        "}\n"
    )
    assert nn.Graph.parse(model.text()).text() == model.text()
    assert [(each.name, each.decay, each.init) for each in model.parameters] == [
        ("scale", False, ("ones", 0.0)),
        ("blocks.*.norm.weight", False, ("ones", 0.0)),
        ("blocks.*.up.weight", True, ("normal", 0.02)),
        ("blocks.*.up.bias", False, ("zeros", 0.0)),
        ("blocks.*.down.weight", True, ("normal", 0.02)),
    ]
    assert model.parameter_count() == 3 + 2 * (3 + 12 + 4 + 12)
    assert [name for name, _ in Net().named_parameters()] == [p.name for p in model.parameters]


@pytest.mark.parametrize("dropout", [0.0, 0.25])
def test_python_and_cxx_make_the_same_gpt(dropout: float) -> None:
    program = ROOT / "build/release/examples/gpt"
    sizes = {"layers": 3, "heads": 2, "width": 6, "context": 5, "vocabulary": 11}
    sizes["dropout"] = dropout
    done = subprocess.run(
        [program, "--graph", *map(str, sizes.values())], capture_output=True, text=True, check=True
    )
    batch = nn.i32(batch=2, time=5)
    model = nn.trace(gpt.GPT(gpt.ModelConfig(**sizes)), tokens=batch, targets=batch)
    assert without_lines(model.text()) == without_lines(done.stdout)


def test_weights_of_gpt2_are_called_as_in_its_files() -> None:
    config = gpt.ModelConfig()
    batch = nn.i32(batch=1, time=8)
    model = nn.trace(gpt.GPT(config), tokens=batch, targets=batch)
    assert model.parameter_count() == 124_439_808  # of the published model
    shapes = {each.name: [size for _, size in each.dims] for each in model.parameters}
    assert shapes["wte.weight"] == [50257, 768] and shapes["wpe.weight"] == [1024, 768]
    assert shapes["h.*.attn.c_attn.weight"] == [12, 768, 2304]
    assert shapes["h.*.mlp.c_proj.bias"] == [12, 768]
    assert len(shapes) == 16
    untied = nn.trace(
        gpt.GPT(gpt.ModelConfig(tied=False, layers=1)).logits, tokens=nn.i32(batch=1, time=2)
    )
    assert "lm_head.weight" in [each.name for each in untied.parameters]
    assert untied.graph.outputs == ["logits"]


def test_dropout_is_for_training_and_drawn_by_batch() -> None:
    config = gpt.ModelConfig(
        layers=2, heads=2, width=8, context=5, vocabulary=7, dropout=0.5, bias=False
    )
    batch = nn.i32(batch=2, time=5)
    model = nn.trace(gpt.GPT(config), tokens=batch, targets=batch)
    still = nn.trace(gpt.GPT(config), use="evaluate", tokens=batch, targets=batch)
    assert "draw" in [name for name, *_ in model.graph.inputs]
    assert "draw" not in [name for name, *_ in still.graph.inputs]
    arrays = random_arrays(model, whole=7)
    losses = []
    for draw in (1, 2, 1):
        arrays["draw"] = np.int64(draw)
        compiled = nn.Program(with_gradients(model), threads=1)(arrays)
        plain = nn.interpret(with_gradients(model), arrays)
        for name, each in plain.items():
            np.testing.assert_allclose(compiled[name], each, rtol=1e-4, atol=1e-5, err_msg=name)
        losses.append(float(compiled["loss"]))
    assert losses[0] == losses[2] != losses[1]
    seeded = nn.trace(gpt.GPT(config), seed=5, tokens=batch, targets=batch)
    assert float(nn.interpret(seeded, arrays)["loss"]) != losses[0]


def test_initial_weights_follow_from_seed_and_name() -> None:
    model = nn.trace(Net(), x=nn.f32(batch=2, embed=3))
    weights = nn.initial_weights(model, 3)
    assert weights["blocks.*.up.weight"].shape == (2, 3, 4)
    assert 0 < np.abs(weights["blocks.*.up.weight"]).max() < 0.1
    assert (weights["scale"] == 1).all() and not weights["blocks.*.up.bias"].any()
    again = nn.initial_weights(model, 3)
    assert all((again[name] == each).all() for name, each in weights.items())
    assert (nn.initial_weights(model, 4)["blocks.*.up.weight"] != again["blocks.*.up.weight"]).all()


def test_shapes_are_changed_by_name() -> None:
    class Shapes(nn.Module):
        def __call__(self, x: nn.Tensor) -> dict[str, nn.Tensor]:
            parts = x.split("b", c=2, d=-1)
            assert parts.dims == {"a": 2, "c": 2, "d": 3} and parts.dtype == "f32"
            assert x.size("b") == 6 and repr(x) == "<tutti.nn.Tensor f32[a=2, b=6]>"
            first, second = parts.unstack("c")
            return {
                "turned": x.transpose("b", "a"),
                "merged": parts.merge("d", "a", into="all"),
                "second": second - first.rename(d="e").rename(e="d"),
                "padded": x.pad("a", before=1),
                "most": x.max("b") + x.argmax("b").cast("f32"),
                "running": x.cumulative_sum("b"),
                "ranked": nn.arange("f32", b=6) * 1.0 + nn.full(0.5),
                "logic": nn.where(~(x > 0) & (x <= 1) | x.equal(0.25), 1.0, -x),
                "product": x @ x.rename(a="z"),
                "abs": abs(1 - x) / 2 + 3 / (x * x + 1) + nn.minimum(x, 0.0),
            }

    model = nn.trace(Shapes(), x=nn.f32(a=2, b=6))
    x = random_arrays(model)["x"]
    split = x.reshape(2, 2, 3)
    expected = {
        "turned": x.T,
        "merged": split.transpose(1, 2, 0).reshape(2, 6),
        "second": split[:, 1] - split[:, 0],
        "padded": np.pad(x, ((1, 0), (0, 0))),
        "most": x.max(1) + x.argmax(1),
        "running": x.cumsum(1),
        "ranked": np.arange(6) + 0.5,
        "logic": np.where(~(x > 0) & (x <= 1) | (x == 0.25), 1, -x),
        "product": x @ x.T,
        "abs": abs(1 - x) / 2 + 3 / (x * x + 1) + np.minimum(x, 0),
    }
    for results in (nn.interpret(model, {"x": x}), nn.Program(model, threads=1)({"x": x})):
        for name, each in expected.items():
            np.testing.assert_allclose(results[name], each, rtol=1e-5, atol=1e-6, err_msg=name)


class Wrong(nn.Module):
    """A model that is only the mistake in it."""

    def __init__(self, mistake: Callable[[nn.Tensor], object]) -> None:
        self.mistake = mistake
        self.weight = nn.parameter(embed=4, hidden=5)

    def __call__(self, x: nn.Tensor) -> object:
        return self.mistake(x)


STRAY = nn.parameter(embed=4)


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (
            lambda x: x + nn.full(1.0).expand(embed=3),
            "add: f32[batch=2, embed=4] and f32[embed=3] have different sizes of embed",
        ),
        (
            lambda x: x.dot(nn.arange("f32", embed=5), over="embed"),
            "matmul: f32[batch=2, embed=4] and f32[embed=5] have different sizes of embed",
        ),
        (
            lambda x: x.dot(nn.arange("f32", hidden=5), over="embed"),
            "matmul: f32[batch=2, embed=4] and f32[hidden=5] have no dimension embed in common",
        ),
        (
            lambda x: x @ nn.arange("f32", hidden=5),
            "matmul: f32[batch=2, embed=4] and f32[hidden=5] have no name in common",
        ),
        (
            lambda x: x + nn.arange("i32", embed=4),
            "add: f32[batch=2, embed=4] and i32[embed=4] are of different kinds; cast one",
        ),
        (lambda x: x + np.ones((2, 4)), "f32[batch=2, embed=4] and ndarray of shape (2, 4): the"),
        (lambda x: x * "2", "f32[batch=2, embed=4] and str: the second is neither a tensor nor"),
        (lambda x: x.sum("embde"), "f32[batch=2, embed=4] has no dimension embde"),
        (lambda x: x.size("embde"), "has no dimension embde; did you mean embed?"),
        (lambda x: x.rename(time="t"), "f32[batch=2, embed=4] has no dimension time"),
        (lambda x: x.split("embed", a=3, b=2), "embed=4 of f32[batch=2, embed=4] cannot become"),
        (lambda x: x.slice("embed", 3, 6), "3 to 6 is outside of embed=4"),
        (lambda x: x.merge("embed", into="e"), "give two or more names, not embed"),
        (lambda x: x if x.sum() > 0 else -x, "if, while, and, or needs the values of bool[]"),
        (lambda x: float(x.sum()), "float() needs the values of f32[], which are not known while"),
        (lambda x: [each for each in x], 'use x.unstack("name")'),  # noqa: C416
        (lambda x: np.exp(x), "a NumPy function needs the values"),
        (lambda x: len(x), "use x.size(name)"),
        (lambda x: nn.gelu(3.0), "gelu: float is not a tensor"),
        (
            lambda x: nn.attention(x, x, x),
            "attention: f32[batch=2, embed=4], f32[batch=2, embed=4] and f32[batch=2, embed=4]:"
            " all need dimensions time and head",
        ),
        (lambda x: x[0], "[…] of f32[batch=2, embed=4]: dimensions have names, not places; use"),
        (
            lambda x: nn.cross_entropy(x, x.rename(batch="vocab"), x, over="embed"),
            "cross_entropy: f32[batch=2, embed=4] and targets f32[batch=2, embed=4], which are no",
        ),
        (lambda x: x * STRAY, f"made at {STRAY.made_at}, is no part of the model: assign it"),
        (lambda x: nn.Layers(2, MLP(4, 4))(x), "is no part of the model: assign it"),
        (lambda x: nn.Linear({"embed": 4}, {"embed": 4}), "embed is among both inputs and outputs"),
        (lambda x: nn.parameter(embed=0), "dimension embed is 0; a size is a whole number from 1"),
        (lambda x: nn.dropout(x, 1.5), "1.5 is not a probability"),
        (lambda x: x.cast("f33"), "'f33' is no kind of number"),
        (lambda x: nn.trace(Net(), x=nn.f32(embed=3)), "nn.trace() is called by a model that is"),
    ],
)
def test_mistakes_are_told_with_operands_and_the_line(
    mistake: Callable[[nn.Tensor], object], words: str
) -> None:
    with pytest.raises(tutti.Error, match=re.escape(words)) as caught:
        nn.trace(Wrong(mistake), x=nn.f32(batch=2, embed=4))
    line = int(re.match(r"nn_test\.py:(\d+): ", str(caught.value))[1])
    first = mistake.__code__.co_firstlineno
    assert first <= line <= first + 1
    assert str(caught.value).count("nn_test.py:") == (2 if "made at" in words else 1)
    assert caught.value.code == "invalid"


def test_models_that_are_put_together_wrongly_are_told() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            self.words = nn.Embedding(vocab=5, embed=4)
            self.head = self.words

        def __call__(self, x: nn.Tensor) -> nn.Tensor:
            return x

    with pytest.raises(tutti.Error, match="words and head are the same Embedding: a file would"):
        nn.trace(Tied(), x=nn.f32(batch=2, embed=4))

    class Nested(nn.Module):
        def __init__(self) -> None:
            self.inner = nn.Layers(2, MLP(4, 4))

        def __call__(self, x: nn.Tensor) -> nn.Tensor:
            return self.inner(x)

    class Outer(nn.Module):
        def __init__(self) -> None:
            self.outer = nn.Layers(3, Nested())

        def __call__(self, x: nn.Tensor) -> nn.Tensor:
            return self.outer(x)

    with pytest.raises(tutti.Error, match="layers within layers cannot be repeated"):
        nn.trace(Outer(), x=nn.f32(batch=2, embed=4))

    class Changing(nn.Module):
        def __init__(self) -> None:
            self.h = nn.Layers(2, nn.Linear({"embed": 4}, {"hidden": 4}))

        def __call__(self, x: nn.Tensor) -> nn.Tensor:
            return self.h(x)

    words = "h.*: a layer makes f32[batch=2, hidden=4] of f32[batch=2, embed=4]"
    with pytest.raises(tutti.Error, match=re.escape(words)):
        nn.trace(Changing(), x=nn.f32(batch=2, embed=4))
    with pytest.raises(tutti.Error, match="a parameter is used outside of a trace"):
        STRAY * 2
    with pytest.raises(tutti.Error, match="output loss is float, not a tensor"):
        nn.trace(Wrong(lambda _: 3.0), x=nn.f32(batch=2, embed=4))
    with pytest.raises(
        AttributeError, match=re.escape("Tensor has no attribute relu; use nn.relu(x)")
    ):
        nn.trace(Wrong(lambda x: x.relu()), x=nn.f32(batch=2, embed=4))
    for wrong, hint in (
        (lambda x: x.shape, 'shape; use x.dims for names and sizes, x.size("name") for one'),
        (lambda x: x.view(2, 3), "view; use x.split(…) or x.merge(…)"),
    ):
        with pytest.raises(AttributeError, match=re.escape(f"Tensor has no attribute {hint}")):
            nn.trace(Wrong(wrong), x=nn.f32(batch=2, embed=4))
    with pytest.raises(tutti.Error, match=r"Wrong.__call__, given no inputs, cannot be called: m"):
        nn.trace(Wrong(lambda x: x))
    words = r"nn_test.py:\d+: Wrong.__call__, given y, cannot be called: missing a required"
    with pytest.raises(tutti.Error, match=words):
        nn.trace(Wrong(lambda x: x), y=nn.f32(batch=2, embed=4))
    with pytest.raises(tutti.Error, match="takes a module or a method of one, not function"):
        nn.trace(test_shapes_are_changed_by_name)
    with pytest.raises(tutti.Error, match="train, evaluate or generate, not to 'serve'"):
        nn.trace(Net(), use="serve", x=nn.f32(batch=2, embed=3))


def test_a_tensor_does_not_outlive_its_layer_or_trace() -> None:
    kept: list[nn.Tensor] = []

    class Keeping(nn.Module):
        def __init__(self) -> None:
            self.h = nn.Layers(2, Wrong(self.keep))

        def keep(self, x: nn.Tensor) -> nn.Tensor:
            kept.append(x * 2)
            return x

        def __call__(self, x: nn.Tensor) -> nn.Tensor:
            y = self.h(x)
            return y + kept[-1] if len(kept) == 1 else y + kept[0]

    words = "belongs to another graph, or to a repeated body that has ended"
    with pytest.raises(tutti.Error, match=words):
        nn.trace(Keeping(), x=nn.f32(batch=2, embed=4))
    with pytest.raises(tutti.Error, match="is of another trace"):
        nn.trace(Keeping(), x=nn.f32(batch=2, embed=4))


def test_arrays_that_do_not_fit_are_refused() -> None:
    model = nn.trace(Net(), x=nn.f32(batch=2, embed=3))
    arrays = random_arrays(model)
    program = nn.Program(model, threads=1)
    for run in (program, lambda given: nn.interpret(model, given)):
        with pytest.raises(tutti.Error, match=re.escape("input x (f32[batch=2, embed=3]) is miss")):
            run({name: each for name, each in arrays.items() if name != "x"})
        with pytest.raises(
            tutti.Error, match=re.escape("input x is an array of shape (3, 2); it has")
        ):
            run(arrays | {"x": np.ones((3, 2), np.float32)})
        known = next(name for name in arrays if len(name) > 3)
        with pytest.raises(tutti.Error, match=re.escape(f"s; did you mean {known}?")):
            run(arrays | {f"{known}s": 1})
        with pytest.raises(tutti.Error, match="input x is no array of float32: "):
            run(arrays | {"x": "hello"})
    assert program.scratch_bytes > 0 and "arena" in program.text()
    with pytest.raises(tutti.Error, match="no pass 'fuze'; did you mean 'fuse'"):
        model.graph.optimize("fuze")
    assert "fused" in model.graph.optimize().text()
    with pytest.raises(tutti.Error, match="graph:1:"):
        nn.Graph.parse("graph nonsense")


def test_the_manual_runs(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/models.md").read_text(), re.DOTALL)
    assert len(blocks) == 3
    monkeypatch.setattr("sys.argv", ["train.py", "--preset=wide", "--model.layers=12"])
    # Dataclasses look for the module that they are in.
    module = types.ModuleType("manual")
    monkeypatch.setitem(sys.modules, "manual", module)
    for block in blocks:
        exec(compile(block, "models.md", "exec"), module.__dict__)
    printed = capsys.readouterr().out
    assert '@"models.md:' in printed and "(128, 64)" in printed
    assert "width = 256" in printed and "layers = 12" in printed
