"""Ask a service: pauses between requests, bounded answers, bounded retries, answers kept from before."""

from __future__ import annotations

import email.utils
import http.client
import random
import time
import urllib.error
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.client import HTTPMessage
from typing import IO, TypeVar
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from normscope._version import __version__
from normscope.errors import ServiceError
from normscope.literature.sources.access import Access
from normscope.literature.sources.answer_cache import AnswerCache
from normscope.words import printable

_T = TypeVar("_T")

MISS = b""  # kept in place of an answer: the service does not have this
MISS_HOLDS = 86_400.0  # seconds; a new work may be known tomorrow
LARGEST = 50_000_000  # bytes of an answer
LONGEST_WAIT = 60.0  # seconds that a service can make us wait before we give up
LONGEST_ANSWER = 120.0  # seconds that one answer may take
MAY_PASS = frozenset({408, 425, 429, 500, 502, 503, 504})
TOO_MANY = frozenset({401, 403, 429})
_PIECE = 1 << 16


class NotKnown(ServiceError):
    """The service answered that it does not have this."""


class NoConnection(ServiceError):
    """The service cannot be reached at all."""


class _Passing(Exception):
    """A failure that may pass; `wait` is the pause in seconds that the service asks for."""

    def __init__(self, reason: str, wait: float | None = None, hint: str = "") -> None:
        super().__init__(reason)
        self.wait, self.hint = wait, hint


class Unreadable(Exception):
    """A parser found that an answer is not what the service promises."""


@dataclass(frozen=True)
class Endpoint:
    """Where a service is, the headers with its key, and what to do if it wants fewer requests."""

    name: str
    host: str
    key: Mapping[str, str] = field(default_factory=dict, repr=False)
    hint: str = ""


class Service:
    """One service, when it was last asked, and how old the answers are that were kept."""

    def __init__(self, endpoint: Endpoint, access: Access, cache: AnswerCache) -> None:
        self.name = endpoint.name
        self.oldest: float | None = None  # seconds since 1970, of the oldest answer that was kept from before
        self._host, self._key, self._hint = endpoint.host, endpoint.key, endpoint.hint
        self._access, self._cache = access, cache
        self._asked = float("-inf")
        self._opener = build_opener(_SameHost)

    def ask(self, path: str, query: Mapping[str, object], parse: Callable[[bytes], _T]) -> _T:
        """The parsed answer: kept from before, or fetched now and then kept. Raises ServiceError."""
        address = f"{self._host}{path}" + (f"?{urlencode(query, safe=':|,*')}" if query else "")
        if not self._access.refresh:
            known = self._kept(address, parse)
            if known is not None:
                return known
        if self._access.offline:
            raise NoConnection(f"{self.name} was not asked (--offline), and has not answered this before")
        try:
            body, parsed = self._patiently(address, parse)
        except NotKnown:
            self._cache.store(address, MISS)
            raise
        self._cache.store(address, body)
        return parsed

    def _kept(self, address: str, parse: Callable[[bytes], _T]) -> _T | None:
        body, moment = self._cache.load(address) or (None, 0.0)
        outdated = body == MISS and not self._access.offline and time.time() - moment > MISS_HOLDS
        if body is None or outdated:
            return None
        self.oldest = min(moment, self.oldest or moment)
        if body == MISS:
            raise NotKnown(f"{self.name} does not know this work")
        try:
            return parse(body)
        except Unreadable:  # kept by a version that read it in another way
            return None

    def _patiently(self, address: str, parse: Callable[[bytes], _T]) -> tuple[bytes, _T]:
        """Ask, and ask again after failures that may pass."""
        for attempt in range(1, self._access.attempts + 1):
            try:
                body = self._fetch(address)
                return body, parse(body)
            except Unreadable as wrong:
                failure = _Passing(str(wrong))
            except _Passing as passing:
                failure = passing
            wait = self._wait(attempt, failure.wait)
            if attempt == self._access.attempts or wait > LONGEST_WAIT:
                raise self._given_up(failure) from None
            time.sleep(wait)
        raise AssertionError("attempts must be at least 1")

    def _given_up(self, failure: _Passing) -> ServiceError:
        long = failure.wait is not None and failure.wait > LONGEST_WAIT
        asked = f", asks to wait {failure.wait:,.0f} s" if long else ""
        return ServiceError(f"{self.name} could not be used: {failure}{asked}; try again later{failure.hint}")

    def _wait(self, attempt: int, asked_for: float | None) -> float:
        if asked_for is not None:
            return asked_for
        return self._access.first_wait * 2.0 ** (attempt - 1) * random.uniform(0.75, 1.25)

    def _fetch(self, address: str) -> bytes:
        """One request."""
        time.sleep(max(0.0, self._asked + self._access.pause(self._host) - time.monotonic()))
        self._asked = time.monotonic()
        try:
            with self._opener.open(self._request(address), timeout=self._access.timeout) as answer:
                return _read(answer, self.name)
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(error) from None
        except (TimeoutError, http.client.HTTPException, ConnectionResetError) as error:
            raise _Passing(f"the connection broke off ({type(error).__name__})") from None
        except OSError as error:  # URLError is one
            raise self._unreached(error) from None

    def _request(self, address: str) -> Request:
        contact = f"; mailto:{self._access.mailto}" if self._access.mailto else ""
        agent = f"normscope/{__version__} (https://github.com/normscope/normscope{contact})"
        request = Request(address, headers={"User-Agent": agent, "Accept": "*/*"})
        for name, value in self._key.items():
            request.add_unredirected_header(name, value)  # a key never follows a redirect
        return request

    def _refusal(self, error: urllib.error.HTTPError) -> Exception:
        hint = self._hint if error.code in TOO_MANY else ""
        if error.code in MAY_PASS:
            return _Passing(f"HTTP {error.code}", _seconds(error.headers.get("Retry-After")), hint)
        if error.code in (404, 410):
            return NotKnown(f"{self.name} does not know this work")
        said = self._without_key(printable(error.read(300).decode("utf-8", "replace").strip()))
        return ServiceError(f"{self.name} refused the request with HTTP {error.code} ({said}){hint}")

    def _without_key(self, text: str) -> str:
        """What a service said; some repeat the key that they refuse."""
        for value in self._key.values():
            text = text.replace(value.removeprefix("Bearer "), "…")
        return text

    def _unreached(self, error: OSError) -> Exception:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ConnectionResetError):
            return _Passing("the connection broke off")
        return NoConnection(f"{self.name} cannot be reached ({printable(str(reason))})")


class _SameHost(HTTPRedirectHandler):
    """Follow redirects only to the same host."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        """Refuse another host, by answering with the redirect itself."""
        if urlsplit(newurl).hostname != urlsplit(req.full_url).hostname:
            return None
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _read(answer: http.client.HTTPResponse, name: str) -> bytes:
    """All bytes of an answer, if it is complete, not too large, and not too slow.

    `read1` returns what has come; `read` would wait for a whole piece, hours from a server that drips.
    """
    promised = int(length) if (length := answer.headers.get("Content-Length", "")).isdecimal() else None
    body = bytearray()
    end = time.monotonic() + LONGEST_ANSWER
    while (promised or 0) <= LARGEST and (piece := answer.read1(_PIECE)):
        body += piece
        if len(body) > LARGEST:
            break
        if time.monotonic() > end:
            raise _Passing(f"the answer took longer than {LONGEST_ANSWER:g} s")
    if max(len(body), promised or 0) > LARGEST:
        raise ServiceError(f"{name} sent an answer that is too large: more than {LARGEST / 1e6:.0f} MB")
    if promised is not None and len(body) < promised:
        raise _Passing(f"the answer ended {promised - len(body):,} bytes early")
    return bytes(body)


def _seconds(retry_after: str | None) -> float | None:
    """Retry-After in seconds: a number, or a date."""
    if not retry_after:
        return None
    if retry_after.strip().isdecimal():
        return float(retry_after)
    try:
        then = email.utils.parsedate_to_datetime(retry_after)
    except (TypeError, ValueError):
        return None
    return max(0.0, then.timestamp() - time.time())
