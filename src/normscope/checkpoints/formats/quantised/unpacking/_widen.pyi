"""Numbers of one byte as float32, times the scale of their block, in one pass."""

from typing import Any

def widen(signed: bool, numbers: Any, scales: Any, out: Any, columns: int, block: int, /) -> None: ...
