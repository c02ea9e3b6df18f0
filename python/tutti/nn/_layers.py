"""Modules that most models are made of. Their parameters are called as PyTorch's are."""

from tutti.nn._functional import check_names, dropout, embedding, layer_norm, rms_norm
from tutti.nn._module import Init, Module, normal, ones, parameter, zeros
from tutti.nn._tensor import Tensor, Value
from tutti.nn._trace import refuse


class Linear(Module):
    """x · weight + bias: nn.Linear({"embed": 768}, {"hidden": 3072}).

    Sums over the first names and gives the second ones; others of x are kept.
    """

    def __init__(
        self,
        inputs: dict[str, int],
        outputs: dict[str, int],
        *,
        bias: bool = True,
        init: Init = normal(0.02),  # noqa: B008
    ) -> None:
        check_names(inputs=inputs, outputs=outputs)
        if shared := inputs.keys() & outputs.keys():
            refuse(
                f"Linear: {min(shared)} is among both inputs and outputs; name one otherwise, and"
                " rename what goes in or comes out"
            )
        self.inputs = list(inputs)
        self.weight = parameter(**inputs, **outputs, init=init)
        self.bias = parameter(**outputs, init=zeros, decay=False) if bias else None

    def __call__(self, x: Value) -> Tensor:
        y = x.dot(self.weight, over=self.inputs)
        return y if self.bias is None else y + self.bias


class Embedding(Module):
    """A row of weights for each index: nn.Embedding(vocab=50257, embed=768)."""

    def __init__(self, init: Init = normal(0.02), **dims: int) -> None:  # noqa: B008
        if len(dims) < 2:
            refuse("Embedding: give what is counted and what a row has: vocab=50257, embed=768")
        self.dim = next(iter(dims))
        self.weight = parameter(**dims, init=init)

    def __call__(self, indices: Value) -> Tensor:
        return embedding(self.weight, indices, self.dim)


def _only(what: str, dims: dict[str, int]) -> str:
    if len(dims) != 1:
        refuse(f"{what}: give the one dimension it is along: nn.{what}(embed=768)")
    return next(iter(dims))


class LayerNorm(Module):
    """x less its mean, over its deviation, along one dimension, scaled and shifted."""

    def __init__(self, epsilon: float = 1e-5, bias: bool = True, **dim: int) -> None:
        self.dim = _only("LayerNorm", dim)
        self.epsilon = epsilon
        self.weight = parameter(**dim, init=ones)
        self.bias = parameter(**dim, init=zeros) if bias else None

    def __call__(self, x: Value) -> Tensor:
        return layer_norm(x, self.weight, self.bias, self.dim, self.epsilon)


class RMSNorm(Module):
    """x over the root of its mean square along one dimension, scaled."""

    def __init__(self, epsilon: float = 1e-6, **dim: int) -> None:
        self.dim = _only("RMSNorm", dim)
        self.epsilon = epsilon
        self.weight = parameter(**dim, init=ones)

    def __call__(self, x: Value) -> Tensor:
        return rms_norm(x, self.weight, self.dim, self.epsilon)


class Dropout(Module):
    """Zeros with probability ``rate`` when training."""

    def __init__(self, rate: float) -> None:
        if not 0 <= rate < 1:
            refuse(f"Dropout: {rate} is not a probability from 0 to below 1")
        self.rate = rate

    def __call__(self, x: Value) -> Tensor:
        return dropout(x, self.rate)
