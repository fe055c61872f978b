"""The constraints that a config can name."""

from __future__ import annotations

import math

from normscope.errors import UsageError
from normscope.network.places.programs import UNNAMED, is_program

FIXED_NORMS = ("fixed-norm", "fixed-body-norm", "fixed-tensor-norm")
SPECTRAL_CAP = "spectral-cap"


def check_constraint(name: str | None) -> None:
    """Refuse a name that is neither a constraint's nor a program's."""
    if name is None or name in FIXED_NORMS or name.startswith(UNNAMED) or is_program(name):
        return
    if name.partition(":")[0] == SPECTRAL_CAP:
        spectral_cap(name)
        return
    raise UsageError(
        f"constraint must be one of {', '.join(FIXED_NORMS)}, {SPECTRAL_CAP}:X, or module:function; "
        f"got {name!r}"
    )


def spectral_cap(name: str) -> float:
    """The largest singular value that `spectral-cap:X` allows."""
    text = name.partition(":")[2]
    try:
        cap = float(text)
    except ValueError:
        cap = math.nan
    if not 0 < cap < math.inf:
        raise UsageError(
            f"{SPECTRAL_CAP} needs a positive number after the colon, such as {SPECTRAL_CAP}:2; got {name!r}"
        )
    return cap
