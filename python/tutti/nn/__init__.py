"""Models: ordinary classes over tensors with named dimensions, traced once into a graph.

    class Block(nn.Module):
        def __init__(self) -> None:
            self.norm = nn.LayerNorm(embed=768)
            self.up = nn.Linear({"embed": 768}, {"hidden": 3072})
            self.down = nn.Linear({"hidden": 3072}, {"embed": 768})

        def __call__(self, x: nn.Tensor) -> nn.Tensor:
            return x + self.down(nn.gelu(self.up(self.norm(x))))

docs/models.md is the manual.
"""

from tutti._core import Graph, Model
from tutti.nn._functional import (
    arange,
    attention,
    concat,
    cos,
    cross_entropy,
    dropout,
    embedding,
    erf,
    exp,
    floor,
    full,
    gelu,
    is_finite,
    layer_norm,
    log,
    maximum,
    minimum,
    positions,
    relu,
    rms_norm,
    rsqrt,
    scatter_add,
    sigmoid,
    sign,
    silu,
    sin,
    softmax,
    sqrt,
    tanh,
    where,
)
from tutti.nn._layers import Dropout, Embedding, LayerNorm, Linear, RMSNorm
from tutti.nn._module import (
    Init,
    Input,
    Layers,
    Module,
    Parameter,
    f32,
    i32,
    normal,
    ones,
    parameter,
    trace,
    uniform,
    zeros,
)
from tutti.nn._program import Program, initial_weights, interpret
from tutti.nn._tensor import Tensor

__all__ = [
    "Dropout",
    "Embedding",
    "Graph",
    "Init",
    "Input",
    "LayerNorm",
    "Layers",
    "Linear",
    "Model",
    "Module",
    "Parameter",
    "Program",
    "RMSNorm",
    "Tensor",
    "arange",
    "attention",
    "concat",
    "cos",
    "cross_entropy",
    "dropout",
    "embedding",
    "erf",
    "exp",
    "f32",
    "floor",
    "full",
    "gelu",
    "i32",
    "initial_weights",
    "interpret",
    "is_finite",
    "layer_norm",
    "log",
    "maximum",
    "minimum",
    "normal",
    "ones",
    "parameter",
    "positions",
    "relu",
    "rms_norm",
    "rsqrt",
    "scatter_add",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "softmax",
    "sqrt",
    "tanh",
    "trace",
    "uniform",
    "where",
    "zeros",
]
