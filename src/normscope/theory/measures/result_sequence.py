"""A result that is a sequence of parts, one per group, and a table of them."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import TypeVar, overload

from normscope.table import Tabular

Part = TypeVar("Part", covariant=True)


class ResultSequence(Tabular, Sequence[Part]):
    """A result whose parts can be counted, indexed and iterated over."""

    @property
    @abc.abstractmethod
    def parts(self) -> tuple[Part, ...]:
        """The parts, in order."""

    def __len__(self) -> int:
        return len(self.parts)

    @overload
    def __getitem__(self, index: int) -> Part: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Part]: ...

    def __getitem__(self, index: int | slice) -> Part | Sequence[Part]:
        return self.parts[index]
