"""How the services are reached: addresses, manners, keys, and where answers are kept."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from normscope.errors import UsageError

ARXIV_HOST = "https://export.arxiv.org"
OPENALEX_HOST = "https://api.openalex.org"
SEMANTIC_SCHOLAR_HOST = "https://api.semanticscholar.org"

# Seconds between two requests to a public service: what each asks of its users, or a little more.
PAUSES = {ARXIV_HOST: 3.0, OPENALEX_HOST: 0.1, SEMANTIC_SCHOLAR_HOST: 1.1}


@dataclass(frozen=True)
class Access:
    """Addresses, keys and limits for all requests of one call; keys are never shown or stored."""

    arxiv: str = ARXIV_HOST
    openalex: str = OPENALEX_HOST
    semantic_scholar: str = SEMANTIC_SCHOLAR_HOST
    mailto: str | None = None
    openalex_key: str | None = field(default=None, repr=False)
    semantic_scholar_key: str | None = field(default=None, repr=False)
    cache: Path | None = None
    offline: bool = False
    refresh: bool = False
    timeout: float = 30.0
    """Seconds that a service may be silent."""
    attempts: int = 4
    """How often a request is tried, if trying again may help."""
    first_wait: float = 1.0
    """Seconds before the second attempt; doubled for each that follows, unless the service asks for more."""

    def pause(self, host: str) -> float:
        """Seconds between two requests to a host; a host of one's own is not spared."""
        return PAUSES.get(host, 0.0)


def access_from_environment(
    offline: bool = False, refresh: bool = False, environment: Mapping[str, str] = os.environ
) -> Access:
    """The access that environment variables describe; docs/literature.md lists them."""
    return Access(
        arxiv=_host("NORMSCOPE_ARXIV_URL", ARXIV_HOST, environment),
        openalex=_host("NORMSCOPE_OPENALEX_URL", OPENALEX_HOST, environment),
        semantic_scholar=_host("NORMSCOPE_SEMANTICSCHOLAR_URL", SEMANTIC_SCHOLAR_HOST, environment),
        mailto=_line("NORMSCOPE_MAILTO", environment),
        openalex_key=_line("OPENALEX_API_KEY", environment),
        semantic_scholar_key=_line("S2_API_KEY", environment),
        cache=cache_path(environment),
        offline=offline,
        refresh=refresh,
    )


def cache_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Where answers are kept: in $NORMSCOPE_CACHE, or in normscope's folder among the user's caches."""
    if own := environment.get("NORMSCOPE_CACHE"):
        return Path(own) / "literature.db"
    root = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "normscope" / "literature.db"


def _host(variable: str, public: str, environment: Mapping[str, str]) -> str:
    own = environment.get(variable)
    if own and not own.startswith(("https://", "http://")):
        raise UsageError(f"{variable} must be an address that begins with https:// or http://; got {own!r}")
    return own.rstrip("/") if own else public


def _line(variable: str, environment: Mapping[str, str]) -> str | None:
    """The value of a variable that goes into a header; a wrong one is not shown, since it may be secret."""
    value = environment.get(variable, "").strip()
    if not value.isascii() or not (value.isprintable() or not value):
        raise UsageError(f"{variable} must be one line of ASCII characters; it has others")
    return value or None
