"""The machines of a cluster, as an executor knows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable


@dataclass(frozen=True)
class Node:
    """A machine, or a worker of one: the `id` by which the engine knows it, and what messages call it."""

    id: str
    name: str


@runtime_checkable
class HasNodes(Protocol):
    """An executor that can list its nodes, and call a function on a certain one."""

    def nodes(self) -> Sequence[Node]:
        """The nodes that run calls now."""

    def submit_to(self, node: Node, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """Call `fn` on that node and on no other."""
