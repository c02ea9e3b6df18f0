"""How weights are trained: plain data, which the trainer hands to C++.

    optim.AdamW(rate=optim.cosine(6e-4, warm_up=100, least=6e-5), decay=0.1, max_norm=1.0)

Rates are functions of the step alone.
"""

import math
from dataclasses import dataclass
from typing import Literal

from tutti._error import Error

__all__ = ["AdamW", "Schedule", "constant", "cosine", "linear"]

Decline = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True)
class Schedule:
    """The rate of each step: grows evenly during the warm-up, then falls to its end, or stays.

    Can be a part of a configuration: --optim.rate.warm_up=100.
    """

    rate: float = 1e-3  # at its highest
    least: float = 0.0  # from the end on
    warm_up: int = 0  # steps until it is at its highest
    end: int | None = None  # the step from which it is least; that of the run if none
    decline: Decline = "constant"  # how it falls

    def __post_init__(self) -> None:
        if not (math.isfinite(self.rate) and 0 <= self.least <= self.rate):
            raise ValueError(
                f"a learning rate that goes from {self.rate} to {self.least}; both must be 0 or"
                " more, and the second not above the first"
            )
        if self.warm_up < 0:
            raise ValueError(f"a warm-up of {self.warm_up} steps; use 0 or more")
        if self.end is not None and self.decline != "constant" and self.end < self.warm_up:
            raise ValueError(
                f"the learning rate is to be at its least after {self.end} steps, within the"
                f" warm-up of {self.warm_up}"
            )


def constant(rate: float, *, warm_up: int = 0) -> Schedule:
    """The same rate, after a warm-up."""
    return _checked(rate, warm_up, None, 0.0, "constant")


def linear(
    rate: float, *, warm_up: int = 0, end: int | None = None, least: float = 0.0
) -> Schedule:
    """Falls evenly from the end of the warm-up to the end of the run, or step ``end``."""
    return _checked(rate, warm_up, end, least, "linear")


def cosine(
    rate: float, *, warm_up: int = 0, end: int | None = None, least: float = 0.0
) -> Schedule:
    """Falls as half a cosine wave does, as most language models are trained."""
    return _checked(rate, warm_up, end, least, "cosine")


def _checked(
    rate: float, warm_up: int, end: int | None, least: float, decline: Decline
) -> Schedule:
    try:
        return Schedule(rate, least, warm_up, end, decline)
    except ValueError as error:
        raise Error(str(error), "invalid") from None


@dataclass(frozen=True)
class AdamW:
    """Adam with decay of weights apart from the gradient's (Loshchilov and Hutter, 2019)."""

    rate: float | Schedule = 1e-3
    betas: tuple[float, float] = (0.9, 0.95)  # of the mean of gradients, and of their squares
    epsilon: float = 1e-8
    decay: float = 0.1  # of parameters that say so: without a word those of two dimensions or more
    max_norm: float = 1.0  # gradients longer than this are scaled down to it; 0: never

    def __post_init__(self) -> None:
        for name, value in (("betas[0]", self.betas[0]), ("betas[1]", self.betas[1])):
            if not 0 <= value < 1:
                raise Error(f"AdamW: {name} is {value}; use 0 to below 1", "invalid")
        for name, value in (("decay", self.decay), ("max_norm", self.max_norm)):
            if not (math.isfinite(value) and value >= 0):
                raise Error(f"AdamW: {name} is {value}; use 0 or more", "invalid")
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise Error(f"AdamW: epsilon is {self.epsilon}; use more than 0", "invalid")

    @property
    def schedule(self) -> Schedule:
        return self.rate if isinstance(self.rate, Schedule) else constant(self.rate)
