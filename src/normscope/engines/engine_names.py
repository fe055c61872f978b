"""What an engine is called on the command line and in Python; this module alone reads the names."""

from __future__ import annotations

from dataclasses import dataclass

from normscope.errors import UsageError

KNOWN = "processes, processes:4, ray, ray://head:10001, ray:head:6379 or dask:scheduler:8786"
PROCESSES = ("processes", "local")  # local: the name of earlier releases


@dataclass(frozen=True)
class EngineName:
    """An engine by name: its `kind`, a number of `processes`, or the `address` of a cluster.

    `client` says that the address is that of a Ray client server, which may be reached from outside.
    """

    kind: str
    processes: int | None = None
    address: str = ""
    client: bool = False


def parse_engine(name: str | None) -> EngineName:
    """Parse the name of an engine; nothing is started or asked. None is one process per core.

    >>> parse_engine("processes:4").processes, parse_engine("dask:tcp://10.0.0.1:8786").address
    (4, 'tcp://10.0.0.1:8786')
    """
    kind, _, rest = ("processes" if name is None else name).partition(":")
    if kind in PROCESSES:
        return EngineName("processes", _count(kind, rest))
    if kind == "ray":
        client = rest.startswith("//")
        return EngineName(
            "ray", address=_host_and_port(rest.removeprefix("//"), "ray://head:10001"), client=client
        )
    if kind == "dask":
        return EngineName("dask", address=_scheduler(rest))
    raise UsageError(f"an engine is {KNOWN}; got {name!r}")


def _count(kind: str, text: str) -> int | None:
    if text and (not (text.isascii() and text.isdigit()) or int(text) < 1):
        raise UsageError(f"expected a number of processes such as {kind}:4, but got {kind}:{text}")
    return int(text) if text else None


def _host_and_port(address: str, example: str) -> str:
    host, _, port = address.rpartition(":")
    if address and (not host or not (port.isascii() and port.isdigit())):
        raise UsageError(f"the address of a cluster is HOST:PORT, as in {example}; got {address!r}")
    return address


def _scheduler(address: str) -> str:
    """The address of a Dask scheduler with its protocol, tcp:// by default."""
    if not address:
        raise UsageError("dask needs the address of its scheduler, as in dask:scheduler:8786; got none")
    protocol, _, rest = address.rpartition("://")
    return f"{protocol or 'tcp'}://{_host_and_port(rest, 'dask:scheduler:8786')}"
