"""Sizes and indices of models: what cannot be is told before anything is compiled or computed."""

import re
from collections.abc import Callable

import numpy as np
import pytest
import tutti
from model_tools import example
from tutti import nn

gpt = example("gpt")


class Table(nn.Module):
    """Rows of a table of four, for indices that are computed of x."""

    def __init__(self, indices: Callable[[nn.Tensor], nn.Tensor]) -> None:
        self.table = nn.Embedding(place=4, embed=3)
        self.indices = indices

    def __call__(self, x: nn.Tensor) -> nn.Tensor:
        return self.table(self.indices(x)).sum()


@pytest.mark.parametrize(
    ("indices", "words"),
    [
        (nn.positions, "the indices i32[time=6] go from 0 to 5"),
        (lambda x: nn.arange(time=6), "the indices i32[time=6] go from 0 to 5"),
        (lambda x: nn.arange(time=4) + 1, "the indices i32[time=4] go from 1 to 4"),
        (lambda x: nn.arange(time=4) - 1, "the indices i32[time=4] go from -1 to 2"),
        (lambda x: 4 - nn.arange(time=4), "the indices i32[time=4] go from 1 to 4"),
        (lambda x: nn.arange(time=3) * 2, "the indices i32[time=3] go from 0 to 4"),
        (lambda x: nn.arange(time=6).slice("time", 3, 5), "i32[time=2] go from 3 to 4"),
        (lambda x: nn.positions(x).rename(time="t").cast("i64"), "i64[t=6] go from 0 to 5"),
        (lambda x: nn.positions(x).expand(batch=2).transpose("time", "batch"), "from 0 to 5"),
    ],
)
def test_positions_past_a_table_are_told_with_sizes_and_the_line(
    indices: Callable[[nn.Tensor], nn.Tensor], words: str
) -> None:
    line = Table.__call__.__code__.co_firstlineno + 1
    with pytest.raises(tutti.Error, match=re.escape(words)) as caught:
        nn.trace(Table(indices), x=nn.i32(batch=2, time=6))
    assert str(caught.value).startswith(f"nn_sizes_test.py:{line}: embedding: ")
    assert "and the table f32[place=4, embed=3] has place=4: use shorter" in str(caught.value)


@pytest.mark.parametrize(
    "indices",
    [
        lambda x: nn.positions(x).slice("time", 2, 6) - 2,
        lambda x: nn.arange(time=100).slice("time", 0, 4),
        lambda x: 3 - nn.arange(time=4),
        lambda x: nn.positions(x) % 4,
        lambda x: nn.minimum(nn.positions(x), 3),
        lambda x: (
            nn.positions(x).split("time", a=3, b=2).slice("a", 0, 2).merge("a", "b", into="c")
        ),
    ],
)
def test_indices_that_a_table_has_are_taken(indices: Callable[[nn.Tensor], nn.Tensor]) -> None:
    model = nn.trace(Table(indices), x=nn.i32(batch=2, time=6))
    table = {"table.weight": np.zeros((4, 3), np.float32)}
    nn.interpret(model, table | {"x": np.zeros((2, 6), np.int32)})


def test_a_context_past_the_positions_of_gpt_is_told_before_the_first_step() -> None:
    data = tutti.data.numbers([0, 1, 2, 3, 4] * 20, vocabulary=5)
    small = gpt.ModelConfig(layers=1, heads=1, width=4, context=4, vocabulary=5)
    words = r"gpt\.py:\d+: embedding: the indices i32\[time=8\] go from 0 to 7, and the table f32\["
    with pytest.raises(tutti.Error, match=words):
        tutti.Trainer(gpt.GPT(small), data=data, steps=1, batch=1, context=8)
    with pytest.raises(tutti.Error, match="go from 0 to 7, and the table"):
        tutti.Generator(gpt.GPT(small), "weights.safetensors", context=8)
    # A piece of a sequence may be shorter than the table, and its places still go to the end of it.
    batch = nn.i32(batch=1, time=1)
    nn.trace(gpt.GPT(small).logits, use="generate", cache=(1, 4), tokens=batch)


class Same(nn.Module):
    def __init__(self, change: Callable[[nn.Tensor], object]) -> None:
        self.change = change

    def __call__(self, x: nn.Tensor) -> object:
        return self.change(x)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: nn.f32(a=1.5), "f32: dimension a is 1.5; a size is a whole number from 1"),
        (lambda: nn.i32(a=0), "i32: dimension a is 0; a size is a whole number from 1"),
        (lambda: nn.i32(a="8"), "i32: dimension a is '8'; a size is a whole number from 1"),
        (lambda: nn.parameter(a=True), "a parameter's dimension a is True; a size is a whole"),
        (lambda: traced(lambda x: x.expand(b=1.5)), "expand: dimension b is 1.5; a size is a who"),
        (lambda: traced(lambda x: x.split("a", b=2.0, c=-1)), "split: dimension b is 2.0; a size"),
        (lambda: traced(lambda x: x.split("a", b="2")), "split: dimension b is '2'; a size is a w"),
        (lambda: traced(lambda x: nn.arange(b=2.0)), "arange: dimension b is 2.0; a size is a wh"),
        (lambda: traced(lambda x: x.slice("a", 0, 1.5)), "slice: (f32[a=2], 'a', 0, 1.5) is not "),
        (lambda: traced(lambda x: x.sum(0)), "sum: (f32[a=2], [0]) is not what it takes: names"),
        (lambda: traced(lambda x: x.pad("a", 2**80)), "pad: (f32[a=2], 'a', 1208925819614629174"),
    ],
)
def test_sizes_that_are_none_are_told(make: Callable[[], object], words: str) -> None:
    with pytest.raises(tutti.Error, match=re.escape(words)) as caught:
        make()
    assert re.match(r"nn_sizes_test\.py:\d+: ", str(caught.value))


def traced(change: Callable[[nn.Tensor], object]) -> nn.Model:
    return nn.trace(Same(change), x=nn.f32(a=2))


def test_sizes_of_numpy_are_whole_numbers_too() -> None:
    model = nn.trace(Same(lambda x: x.sum()), x=nn.f32(a=np.int64(3)))
    assert model.graph.inputs[0][2] == [("a", 3)]


def test_arrays_that_no_machine_holds_are_told() -> None:
    model = nn.trace(Same(lambda x: x.sum()), x=nn.f32(a=2**40))
    words = re.escape("input x is f32[a=1099511627776], 4.0 TiB that this machine has no room for")
    with pytest.raises(tutti.Error, match=words) as caught:
        nn.Program(model, threads=1)
    assert caught.value.code == "exhausted"
    with pytest.raises(tutti.Error, match="input x: Unable to allocate"):
        nn.interpret(model, {"x": np.broadcast_to(np.float32(0), 2**40)})
    with pytest.raises(tutti.Error, match="threads is -1, and there are"):
        nn.Program(model, threads=-1)
