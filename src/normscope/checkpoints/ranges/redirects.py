"""Redirects: how many are followed, and where to."""

from __future__ import annotations

from contextlib import suppress
from urllib.parse import urljoin, urlsplit

from normscope.checkpoints.ranges.web_connections import origin
from normscope.errors import CheckpointError

MOST_REDIRECTS = 10
MOVED = frozenset((301, 302, 303, 307, 308))
"""The statuses of redirects."""


def redirect_target(name: str, current: str, location: str) -> str:
    """The address to which a Location header leads; CheckpointError if it must not be followed."""
    target, scheme, host = location, "", ""
    with suppress(ValueError):  # "http://[": no address at all
        target = urljoin(current, location.strip())
        scheme, host, _ = origin(target)
    if not location or scheme not in ("http", "https") or not host:
        raise CheckpointError(
            f"{name} cannot be read: it redirects to {target[:200] if location else 'nowhere'}; "
            "only https:// and http:// are followed."
        )
    if scheme == "http" and urlsplit(current).scheme.lower() == "https":
        raise CheckpointError(
            f"{name} cannot be read: it redirects from https:// to http://, which anybody on the "
            f"way could change ({target[:200]}). Give that address if you trust it."
        )
    return target


def too_many_redirects(name: str) -> CheckpointError:
    """The error for a chain of redirects that is too long."""
    return CheckpointError(f"{name} cannot be read: it redirects more than {MOST_REDIRECTS} times.")
