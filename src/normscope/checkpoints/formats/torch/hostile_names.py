"""Functions that a checkpoint names only to run something on the machine of whoever loads it."""

from __future__ import annotations

from normscope.checkpoints.formats.torch.pickle_values import Global, Pickle
from normscope.errors import UnsafeCheckpoint

_HOSTILE_MODULES = frozenset(
    ("os", "posix", "nt", "subprocess", "sys", "shutil", "socket", "pty", "runpy", "importlib", "ctypes",
     "code", "commands", "webbrowser", "pickle", "_pickle", "marshal", "timeit", "pdb", "bdb", "asyncio",
     "http", "urllib")
)  # fmt: skip
_HOSTILE_BUILTINS = frozenset(
    ("exec", "eval", "compile", "__import__", "open", "input", "breakpoint", "execfile")
)


def refuse_hostile(pickle: Pickle, where: str) -> None:
    """UnsafeCheckpoint if a pickle names a function that only an attack would call."""
    if named := next(filter(is_hostile, pickle.globals), None):
        raise UnsafeCheckpoint(
            f"{where} would call {str(named)[:100]} when loaded, which no checkpoint needs to do. "
            "Nothing was run. Do not load it with another program either."
        )


def is_hostile(function: Global) -> bool:
    """Whether a checkpoint could name this function only to run something on the reader's machine."""
    top = function.module.split(".")[0]
    if top in ("builtins", "__builtin__"):
        return function.name.split(".")[0] in _HOSTILE_BUILTINS
    return top in _HOSTILE_MODULES
