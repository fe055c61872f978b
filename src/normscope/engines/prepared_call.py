"""A call that finds in any process what it finds here: modules, addresses of servers, and what it needs."""

from __future__ import annotations

import os
import socket
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from normscope.engines.node_needs import NodeNeeds
from normscope.errors import NodeProblem

REACH = (
    "HF_ENDPOINT",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "FSSPEC_S3_ENDPOINT_URL",
    "FSSPEC_S3_ANON",
)
"""Variables that say where servers are. Tokens and keys are not sent: each machine has its own."""

_PROCESS = uuid.uuid4().hex
_passed: set[str] = set()


def _folders() -> tuple[str, ...]:
    return tuple(map(os.path.abspath, [*sys.path, ""]))


def _reach() -> tuple[tuple[str, str], ...]:
    return tuple((name, os.environ[name]) for name in REACH if name in os.environ)


@dataclass(frozen=True)
class PreparedCall:
    """A function to call in any process.

    It is given the folders in which the caller's Python looks for modules, and the addresses of servers,
    where the process has none of its own. In the first call of each process, `needs` are checked.
    """

    function: Callable[..., Any]
    needs: NodeNeeds | None = None
    folders: tuple[str, ...] = field(default_factory=_folders)
    reach: tuple[tuple[str, str], ...] = field(default_factory=_reach)
    process: str = _PROCESS

    def __call__(self, *args: Any) -> Any:
        """Call the function."""
        if self.process != _PROCESS:
            sys.path.extend(folder for folder in self.folders if folder not in sys.path)
            for name, value in self.reach:
                os.environ.setdefault(name, value)
            self._check()
        return self.function(*args)

    def _check(self) -> None:
        if self.needs is None or self.needs.id in _passed:
            return
        if problem := self.needs.problem():
            raise NodeProblem(f"node {socket.gethostname()} {problem}")
        _passed.add(self.needs.id)
