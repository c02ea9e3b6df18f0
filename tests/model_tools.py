"""What the tests of models share: the example, and arrays for it."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from tutti import nn

ROOT = Path(__file__).resolve().parent.parent


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / f"examples/{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def without_lines(text: str) -> str:
    """A graph's text without the lines of code that it is made for, and however it is wrapped."""
    return re.sub(r"\n +: ", " : ", re.sub(r' @"[^"]*"', "", text))


def random_arrays(model: nn.Model, seed: int = 1, whole: int = 3) -> dict[str, np.ndarray]:
    """An array for each input and weight; of whole numbers from 0 to below ``whole``."""
    random = np.random.default_rng(seed)
    arrays: dict[str, Any] = {}
    for name, dtype, dims, _ in model.graph.inputs:
        shape = [size for _, size in dims]
        arrays[name] = (
            random.normal(size=shape).astype(np.float32)
            if dtype == "f32"
            else random.integers(0, whole, shape).astype(dtype.replace("i", "int"))
        )
    return arrays


def with_gradients(model: nn.Model) -> nn.Graph:
    """The graph of the loss and of its gradients by every weight, "gradient/NAME"."""
    return model.graph.differentiate("loss", [each.name for each in model.parameters])
