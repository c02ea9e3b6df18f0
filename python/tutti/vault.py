"""State that outlives its process: a worker is only hands, and the next one goes on.

    fabric = tutti.fabric.join()
    model = tutti.vault.Replica(fabric, {"w": (784, 10), "b": (10,)}, learning_rate=1e-3)
    if not model.born:
        model.weights["w"][...] = ...     # alike on all ranks: from a seed
        model.set_born()
    for step in model.steps(1000):        # comes back to a step that a death interrupted
        model.gradients["w"][...] = ...   # of this rank's part of the batch
        model.take_step()                 # mean over ranks, then AdamW: done by all ranks, or none

Everything that must not be lost is in the vault, memory that the keeper holds; what a killed worker
had only begun, its successor finishes or begins anew. docs/fabric.md says why no bit differs.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tutti import _core, control
from tutti._arrays import COMPLEX, as_shape, bytes_for, kind_of, numpy_dtype
from tutti._error import Error
from tutti.fabric import Fabric, PeerLost

__all__ = ["Replica", "tensor"]


def tensor(fabric: Fabric, name: str, shape: Sequence[int] | int, dtype: Any = "f32"):
    """(array, found): a named array of this rank's vault, and whether it was there already.

    A new one is all zeros. What is written to it stays when this process is killed.
    """
    dims, numpys = as_shape(shape), numpy_dtype(dtype)
    bytes_for(dims, numpys.itemsize)
    kept = kind_of(numpys).name if dtype != "bf16" else "bf16"
    if not kept or kept in COMPLEX:
        raise Error(f"a vault keeps numbers and truth values, not {numpys}", "invalid")
    flat, found = _core.vault_tensor(fabric._core, name, kept, list(dims))
    return flat.view(numpys).reshape(dims), found


class Replica:
    """A model's weights under data-parallel AdamW, with all that belongs to them, in the vault."""

    def __init__(
        self,
        fabric: Fabric,
        shapes: Mapping[str, Sequence[int]],
        *,
        learning_rate: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        weight_decay: float = 0.01,
        max_norm: float = 0.0,
        name: str = "replica",
    ) -> None:
        self.fabric = fabric
        known = {key: as_shape(shape) for key, shape in shapes.items()}
        elements = sum(math.prod(shape) for shape in known.values())
        bytes_for((elements,), 4)
        form = " ".join(f"{key} {list(shape)};" for key, shape in known.items())
        self._core = _core.Replica(
            fabric._core, name, elements, form, learning_rate, *betas, epsilon, weight_decay,
            max_norm,
        )  # fmt: skip
        self.weights = _views(self._core.weights, known)
        self.gradients = _views(self._core.gradient, known)
        self._recovered_epoch = 0

    @property
    def born(self) -> bool:
        """Whether the weights of step 0 were written, by us or a predecessor."""
        return self._core.born

    def set_born(self) -> None:
        self._core.set_born()

    @property
    def step(self) -> int:
        """How many steps were taken."""
        return self._core.step

    @property
    def norm(self) -> float:
        """Of the last step's gradient, before it was scaled down to max_norm."""
        return self._core.norm

    def set_learning_rate(self, rate: float) -> None:
        self._core.set_learning_rate(rate)

    def take_step(self) -> bool:
        """Reduce the gradients of all ranks and apply them: everywhere, or nowhere.

        False when ranks died meanwhile. By then we have rejoined the gang, and steps() will say
        whether the step was taken after all, or has to be computed again.
        """
        try:
            with self.fabric._telling():
                self._core.step_with(self.fabric.world._group)
        except PeerLost:
            self.fabric.rejoin()
            return False
        return True

    def recover(self) -> int:
        """With the others, go on to the step that was decided before a rank died; gives the step.

        Also to be called by a worker that has just begun: steps() does both.
        """
        with self.fabric._telling():
            step = self._core.recover(self.fabric.world._group)
        self._recovered_epoch = self.fabric.epoch
        return step

    def steps(self, until: int) -> Iterator[int]:
        """The steps that are left, as numbers from 0: each is given until it was taken.

        The body of the loop computes the gradients and calls take_step().
        """
        page = control.page()
        while True:
            if self._recovered_epoch != self.fabric.epoch and not self._recovered():
                continue
            if self.step >= until:
                if self._all_done():
                    return
                continue
            if page is not None:
                page.step = self.step
                page.progress()
            yield self.step

    def _all_done(self) -> bool:
        """Nobody leaves before all have taken the last step: whoever dies until then is helped."""
        try:
            self.fabric.world.barrier()
        except PeerLost:
            self.fabric.rejoin()
            return False
        return True

    def _recovered(self) -> bool:
        try:
            self.recover()
        except PeerLost:
            self.fabric.rejoin()
            return False
        return True

    def digest(self) -> str:
        """Of weights and moments: equal bits, equal digests."""
        return f"{self._core.digest():016x}"


def _views(flat, shapes: Mapping[str, Sequence[int]]):
    views = {}
    begin = 0
    for name, shape in shapes.items():
        size = math.prod(shape)
        views[name] = flat[begin : begin + size].reshape(shape)
        begin += size
    return views
