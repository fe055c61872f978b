from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from normscope.checkpoints.base import Buffer

INSTRUCTION_SET: str

class Unreadable(Exception): ...

def chain(
    dtype: int,
    initial: Buffer | tuple[int, int, int] | None,
    previous: Buffer | tuple[int, int, int] | None,
    sources: Sequence[Buffer | tuple[int, int, int]],
    wanted: bytes,
    block: int,
    totals: memoryview,
    scratch: Buffer = ...,
    seconds: array[float] = ...,
    /,
) -> None: ...
def sums_many(work: Buffer, out: Buffer, /) -> None: ...
def copy_many(work: Buffer, /) -> None: ...
def exchange(types: tuple[type, type], /) -> bool: ...
def places(tensors: list[Any], dtypes: Mapping[Any, int], out: Any, /) -> None: ...
def sums_live(
    theta: list[Any],
    previous: list[Any] | Buffer | None,
    initial: list[Any] | Buffer | None,
    dtypes: Mapping[Any, int],
    gradients: bool,
    most: int,
    rows: Buffer,
    out: Buffer,
    /,
) -> int: ...
def copy_live(
    tensors: list[Any], targets: Buffer, dtypes: Mapping[Any, int], most: int, work: Buffer, /
) -> int: ...
def have_gradients(tensors: list[Any], /) -> bool: ...
def same_values(dictionaries: list[dict[str, Any]], known: list[Any], /) -> bool: ...
