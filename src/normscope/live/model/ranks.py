"""The processes that train one model together, and how the parts of a record are added up over them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from normscope.errors import NormscopeError

Array = NDArray[np.float64]
Sent = TypeVar("Sent")


class Parts(Protocol):
    """Which rows of a record this rank has, and which of them it counts and reports."""

    @property
    def infos(self) -> Sequence[object]:
        """All parameters of the model."""

    @property
    def indices(self) -> NDArray[np.int64]:
        """The positions of this rank's parameters among them."""

    @property
    def counted(self) -> NDArray[np.bool_]:
        """Whether this rank adds its sums of the parameter to the record."""

    @property
    def reported(self) -> NDArray[np.bool_]:
        """Whether this rank reports the parameter's rates."""


@dataclass(frozen=True)
class Ranks:
    """The processes that train one model together; a single one without torch.distributed."""

    rank: int = 0
    world: int = 1

    @classmethod
    def current(cls) -> Ranks:
        """This process in the default process group, if there is one."""
        if dist.is_available() and dist.is_initialized():
            return cls(dist.get_rank(), dist.get_world_size())
        return cls()

    def union(self, mine: Iterable[str]) -> tuple[str, ...]:
        """The names that any rank has, in the same order on all; every rank must call this."""
        return tuple(sorted({name for names in self.gather(sorted(set(mine))) for name in names}))

    def share(self, problem: NormscopeError | None) -> None:
        """Raise one rank's problem on all; every rank must call this."""
        raise_first(self.gather(problem))

    def gather(self, sent: Sent) -> list[Sent]:
        """What every rank sends; every rank must call this."""
        received = [sent] * self.world
        if self.world > 1:
            dist.all_gather_object(received, sent)
        return received

    def combine(
        self, layout: Parts, mine: Array, extra: Array, reported: slice, largest: int
    ) -> tuple[Array, Array]:
        """The record of the whole model from this rank's rows, and the sum of `extra` over the ranks.

        Columns add up, except that `largest` is a maximum; those in `reported` count once per parameter.
        """
        if self.world == 1:
            values = np.zeros((len(layout.infos), mine.shape[1]))
            values[layout.indices] = mine
            return values, extra
        counted = np.where(layout.counted[:, None], mine, 0.0)
        counted[:, reported] = np.where(layout.reported[:, None], mine[:, reported], 0.0)
        values = np.zeros((len(layout.infos), mine.shape[1]))
        values[layout.indices] = counted
        maxima = self.reduce(values[:, largest].copy(), dist.ReduceOp.MAX)
        added = self.reduce(np.concatenate([values.ravel(), extra]))
        values = added[: values.size].reshape(values.shape)
        values[:, largest] = maxima
        return values, added[values.size :]

    def reduce(self, values: Array, operation: Any = dist.ReduceOp.SUM) -> Array:
        """Combine arrays of all ranks element by element."""
        tensor = torch.from_numpy(values)
        if "gloo" not in dist.get_backend() and "mpi" not in dist.get_backend():
            tensor = tensor.to(torch.accelerator.current_accelerator() or "cpu")
        _all_reduce(tensor, operation)
        return tensor.cpu().numpy()


def raise_first(problems: Sequence[NormscopeError | None]) -> None:
    """Raise the first problem, if there is one."""
    for problem in problems:
        if problem is not None:
            raise problem


def _all_reduce(tensor: Tensor, operation: Any, timeout: float = 1.0) -> None:
    """Combine over the ranks, and wait until gloo's thread has dropped the tensor.

    To drop it, gloo's thread takes the GIL shortly after the sum has arrived. If the
    program ends in that moment, Python before 3.14 kills a thread that asks for the GIL
    during shutdown in a way that aborts the process.
    """
    references = sys.getrefcount(tensor)
    dist.all_reduce(tensor, operation)
    end = time.monotonic() + timeout
    while sys.getrefcount(tensor) > references and time.monotonic() < end:
        time.sleep(1e-5)
