"""Whether anybody listens at the address of a cluster."""

from __future__ import annotations

import socket

from normscope.errors import EngineError

CONNECT_SECONDS = 5.0


def check_reachable(address: str) -> None:
    """Fail within seconds if nobody answers at HOST:PORT: the engines themselves keep trying for minutes."""
    host, _, port = address.rpartition("/")[2].rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or "no answer"
        raise EngineError(
            f"no engine at {address}: {reason}; check that the cluster runs and that the port is right"
        ) from None
