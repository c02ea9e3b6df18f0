"""Kinds of numbers in models: nothing is cut, wrapped or made infinite without a word."""

import re
from collections.abc import Callable

import numpy as np
import pytest
import tutti
from model_tools import with_gradients
from tutti import nn


class Of(nn.Module):
    """A model that is a function of x, which may be cast, and of y."""

    def __init__(self, function: Callable[..., object], kind: str = "i32") -> None:
        self.function = function
        self.kind = kind

    def __call__(self, x: nn.Tensor) -> object:
        return self.function(x.cast(self.kind))


def traced(function: Callable[..., object], kind: str = "i32") -> nn.Model:
    return nn.trace(Of(function, kind), x=nn.f32(a=2, b=4))


CAST = '(x.cast("f32"))'


@pytest.mark.parametrize(
    ("kind", "mistake", "words"),
    [
        (
            "i32",
            lambda x: x * 0.5,
            f"mul: i32[a=2, b=4] and 0.5: i32 has no fractions; cast {{}} {CAST}",
        ),
        (
            "i32",
            lambda x: 2.0 + x,
            f"add: i32[a=2, b=4] and 2.0: i32 has no fractions; cast {{}} {CAST}",
        ),
        ("i32", lambda x: x + np.float32(1), "add: i32[a=2, b=4] and 1.0: i32 has no fractions"),
        ("i32", lambda x: x < 0.5, "less: i32[a=2, b=4] and 0.5: i32 has no fractions"),
        ("i32", lambda x: nn.maximum(x, 0.5), "max: i32[a=2, b=4] and 0.5: i32 has no fractions"),
        ("i32", lambda x: nn.where(x > 1, x, 0.5), "where: i32[a=2, b=4] and 0.5: i32 has no"),
        (
            "i32",
            lambda x: x + 5000000000,
            "and 5000000000: i32 has numbers from -2147483648 to 2147",
        ),
        ("i32", lambda x: x - 10**30, "and 100000000000… (31 digits): i32 has numbers from"),
        (
            "u32",
            lambda x: x + -1,
            "add: u32[a=2, b=4] and -1: u32 has numbers from 0 to 4294967295",
        ),
        ("i64", lambda x: x + (2**53 + 1), "and 9007199254740993: whole constants past 2^53 are"),
        (
            "i32",
            lambda x: x / 2,
            "div: i32[a=2, b=4] and i32[]: / has fractions, which i32 has not",
        ),
        (
            "i32",
            lambda x: x / x,
            "div: i32[a=2, b=4] and i32[a=2, b=4]: / has fractions, which i32",
        ),
        (
            "i32",
            lambda x: 2 / x,
            "div: i32[] and i32[a=2, b=4]: / has fractions, which i32 has not",
        ),
        (
            "i32",
            lambda x: x.mean("a"),
            f"mean: i32[a=2, b=4]: i32 has no fractions; cast it {CAST}",
        ),
        ("i32", lambda x: nn.dropout(x, 0.5), "dropout: i32[a=2, b=4] is not of floating point"),
        ("i32", lambda x: nn.full(0.5, "i32"), "full: i32 and 0.5: i32 has no fractions"),
        ("i32", lambda x: nn.full("1"), "full: f32 and str, which is no number"),
        (
            "i32",
            lambda x: x // x,
            "floor_div: i32[a=2, b=4] and i32[a=2, b=4]: whole numbers are d",
        ),
        (
            "i32",
            lambda x: 7 % x,
            "floor_div: i32[] and i32[a=2, b=4]: whole numbers are divided by",
        ),
        ("i32", lambda x: x % 0, "floor_div: i32[a=2, b=4] and 0: nothing can be divided by 0"),
        ("i32", lambda x: x // 0.5, "floor_div: i32[a=2, b=4] and 0.5: i32 has no fractions"),
        (
            "f32",
            lambda x: x * 1e39,
            "mul: f32[a=2, b=4] and 1e+39, which is too large for f32: it w",
        ),
        ("f32", lambda x: x * 10**400, "mul: f32[a=2, b=4] and 100000000000… (401 digits), which"),
        (
            "f16",
            lambda x: x - 1e9,
            "sub: f16[a=2, b=4] and 1000000000.0, which is too large for f16",
        ),
        ("bool", lambda x: x.equal(2), "equal: bool[a=2, b=4] and 2: beside truths there are only"),
        ("bool", lambda x: x % 2, "floor_div: bool[a=2, b=4] and 2: beside truths there are only"),
    ],
)
def test_what_a_kind_of_number_cannot_hold_is_refused_at_its_line(
    kind: str, mistake: Callable[[nn.Tensor], object], words: str
) -> None:
    with pytest.raises(tutti.Error, match=re.escape(words.replace("{}", "the tensor"))) as caught:
        traced(mistake, kind)
    line = int(re.match(r"nn_numbers_test\.py:(\d+): ", str(caught.value))[1])
    assert line == mistake.__code__.co_firstlineno


def results_of(model: nn.Model, x: np.ndarray) -> list[dict[str, np.ndarray]]:
    arrays = {"x": x.astype(np.float32)}
    return [nn.interpret(model, arrays), nn.Program(model, threads=1)(arrays)]


def test_numbers_that_fit_are_what_they_are() -> None:
    model = traced(
        lambda x: {
            "more": x + 2147483647 - 2147483647,
            "numpy": x * np.int64(3),
            "truth": (x > 0).equal(True),
            "mask": nn.where(x > 0, x.cast("f32"), -float("inf")),
            "half": x.cast("f32") * 0.5,
            "relu": nn.relu(x),
        }
    )
    x = np.array([[-3, -1, 0, 1], [2, 3, 7, -7]], np.int32)
    expected = {
        "more": x,
        "numpy": 3 * x,
        "truth": x > 0,
        "mask": np.where(x > 0, x, -np.inf),
        "half": x * 0.5,
        "relu": np.maximum(x, 0),
    }
    for results in results_of(model, x):
        for name, each in expected.items():
            np.testing.assert_array_equal(results[name], each, err_msg=name)


@pytest.mark.parametrize("divisor", [1, -1, 2, -2, 3, -3, 7])
def test_whole_numbers_are_divided_as_python_divides_them(divisor: int) -> None:
    model = traced(lambda x: {"below": x // divisor, "rest": x % divisor})
    x = np.array([[-7, -6, -1, 0], [1, 5, 6, 7]], np.int32)
    for results in results_of(model, x):
        np.testing.assert_array_equal(results["below"], x // divisor)
        np.testing.assert_array_equal(results["rest"], x % divisor)
        assert results["below"].dtype == np.int32


def test_floating_point_is_divided_with_a_remainder_too() -> None:
    model = traced(
        lambda x: {
            "below": x // 0.75,
            "rest": x % -2,
            "of": 5 // (x + 0.25),
            "left": 5 % (x + 0.25),
        },
        "f32",
    )
    x = np.array([[-7.5, -6, -1.25, 0], [1, 5.5, 6, 7]], np.float32)
    expected = {"below": x // 0.75, "rest": x % -2, "of": 5 // (x + 0.25), "left": 5 % (x + 0.25)}
    for results in results_of(model, x):
        for name, each in expected.items():
            np.testing.assert_allclose(results[name], each, rtol=1e-6, err_msg=name)


class Remainder(nn.Module):
    def __init__(self) -> None:
        self.weight = nn.parameter(b=4)

    def __call__(self, x: nn.Tensor) -> nn.Tensor:
        return ((x * self.weight) % 0.75 + nn.floor(x * self.weight)).sum()


def test_a_remainder_has_the_gradient_of_what_it_is_of() -> None:
    graph = with_gradients(nn.trace(Remainder(), x=nn.f32(a=2, b=4)))
    x = np.linspace(-2, 2, 8, dtype=np.float32).reshape(2, 4)
    results = nn.Program(graph, threads=1)({"x": x, "weight": np.full(4, 0.9, np.float32)})
    np.testing.assert_allclose(results["gradient/weight"], x.sum(0), rtol=1e-5)


def test_every_primitive_of_use_has_a_function() -> None:
    model = traced(
        lambda x: {
            "sign": nn.sign(x),
            "floor": nn.floor(x),
            "finite": nn.is_finite(1 / x),
            "counts": nn.scatter_add(nn.floor(abs(x)).cast("i32"), x, rows=8),
        },
        "f32",
    )
    x = np.array([[-1.5, 0, 0.5, 7], [2, -2.5, 3, 0.25]], np.float32)
    counts = np.zeros(8, np.float32)
    np.add.at(counts, np.floor(abs(x)).astype(int), x)
    expected = {"sign": np.sign(x), "floor": np.floor(x), "finite": x != 0, "counts": counts}
    for results in results_of(model, x):
        for name, each in expected.items():
            np.testing.assert_array_equal(results[name], each, err_msg=name)
    with pytest.raises(tutti.Error, match=r"scatter_add: say how many rows the table has"):
        traced(lambda x: nn.scatter_add(x.cast("i32"), x))


class Losses(nn.Module):
    def __init__(self) -> None:
        self.words = nn.parameter(vocab=5, embed=3)

    def __call__(self, x: nn.Tensor, targets: nn.Tensor) -> dict[str, nn.Tensor]:
        each = nn.cross_entropy(x, self.words, targets, over="embed")
        counted = (targets >= 0).cast("f32").sum()
        return {"mean": each.mean(), "mean_of_counted": each.sum() / counted}


def losses(targets: list[int], *, compiled: bool) -> dict[str, np.ndarray]:
    """Of logits that are all 0: each loss is log(5)."""
    rows = len(targets)
    model = nn.trace(Losses(), x=nn.f32(row=rows, embed=3), targets=nn.i32(row=rows))
    arrays = {
        "x": np.zeros((rows, 3), np.float32),
        "targets": np.array(targets, np.int32),
        "words": np.ones((5, 3), np.float32),
    }
    return nn.Program(model, threads=1)(arrays) if compiled else nn.interpret(model, arrays)


@pytest.mark.parametrize("compiled", [False, True])
def test_targets_below_zero_lose_nothing_and_count_in_the_mean(compiled: bool) -> None:
    results = losses([1, -1, 4, -100], compiled=compiled)
    assert np.allclose(results["mean"], np.log(5) / 2)
    assert np.allclose(results["mean_of_counted"], np.log(5))


@pytest.mark.parametrize("compiled", [False, True])
def test_targets_outside_of_the_vocabulary_are_refused(compiled: bool) -> None:
    # In either half, for which logits are computed apart.
    for targets, place in (([1, 5, 2, 3], 1), ([1, 2, 3, 5], 3)):
        words = f"target {place} is 5, which is not below the vocabulary of 5"
        with pytest.raises(tutti.Error, match=words):
            losses(targets, compiled=compiled)
