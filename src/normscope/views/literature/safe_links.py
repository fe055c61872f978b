"""Addresses that may stand in a page: http and https, nothing that runs or pretends to be another host."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_ODD = re.compile(r"[\x00-\x20\x7f-\x9f\\\"'<>`\u2028\u2029\u200b-\u200f\u202a-\u202e\u2066-\u2069]")
_CREATIVE_COMMONS = re.compile(r"creativecommons\.org/(licenses|publicdomain)/([a-z-]+)/([\d.]+)")
LONGEST = 2000


def safe_address(address: str | None) -> str | None:
    """The address, if it is http(s) with a host and without user names or odd characters; else None.

    >>> safe_address("https://arxiv.org/abs/2010.09697"), safe_address("javascript:alert(1)")
    ('https://arxiv.org/abs/2010.09697', None)
    """
    if not address or len(address) > LONGEST or _ODD.search(address):
        return None
    try:
        parts = urlsplit(address)
        bad = parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc
    except ValueError:
        return None
    return None if bad else address


def licence_name(licence: str) -> str:
    """A licence's address as people call it.

    >>> licence_name("http://creativecommons.org/licenses/by/4.0/")
    'CC BY 4.0'
    """
    if found := _CREATIVE_COMMONS.search(licence):
        kind, name, version = found.groups()
        public = {"zero": "CC0"}.get(name, f"public domain ({name})")
        return f"{public} {version}" if kind == "publicdomain" else f"CC {name.upper()} {version}"
    if "arxiv.org/licenses/nonexclusive-distrib" in licence:
        return "arXiv’s non-exclusive licence to distribute"
    return licence
