from collections.abc import Mapping, Sequence
from typing import Any

from normscope.checkpoints.base import Buffer

INSTRUCTION_SET: str

def chain(
    dtype: int,
    initial: Buffer | None,
    previous: Buffer | None,
    buffers: Sequence[Buffer],
    wanted: bytes,
    block: int,
    totals: memoryview,
    /,
) -> None: ...
def sums_many(work: Buffer, out: Buffer, /) -> None: ...
def copy_many(work: Buffer, /) -> None: ...
def locate(tensors: list[Any], dtypes: Mapping[Any, int], places: Buffer, known: bool, /) -> int: ...
