"""The three services together, for one call: who failed, and how old the answers are that were kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from normscope.errors import LiteratureError, ServiceError
from normscope.literature.sources.access import Access
from normscope.literature.sources.answer_cache import AnswerCache
from normscope.literature.sources.service import Endpoint, NoConnection, NotKnown, Service
from normscope.words import joined

_T = TypeVar("_T")


class Services:
    """arXiv, OpenAlex and Semantic Scholar; one that fails is not asked again in this call."""

    def __init__(self, access: Access) -> None:
        self._cache = cache = AnswerCache(access.cache)
        self.arxiv = Service(Endpoint("arXiv", access.arxiv), access, cache)
        self.openalex = Service(_openalex(access), access, cache)
        self.scholar = Service(_semantic_scholar(access), access, cache)
        self._failures: dict[str, ServiceError] = {}

    def attempt(self, service: Service, call: Callable[[], _T]) -> _T | None:
        """The result of a call to a service; None if it fails or has failed before."""
        if service.name in self._failures:
            return None
        try:
            return call()
        except ServiceError as failure:
            self._failures[service.name] = failure
            return None

    def notes(self) -> Iterator[str]:
        """What is missing because a service failed, and how old the other answers are."""
        yield from (f"{str(failure).rstrip('.')}." for failure in self._failures.values())
        for service in (self.arxiv, self.openalex, self.scholar):
            if service.oldest is not None:
                yield f"{service.name} answered {_ago(service.oldest)}; --refresh asks again."
        if self._cache.trouble:
            yield self._cache.trouble

    def nothing_found(self, asked_for: str) -> LiteratureError:
        """The error for a work of which no service said anything."""
        failures = list(self._failures.values())
        if failures and all(isinstance(failure, NotKnown) for failure in failures):
            return LiteratureError(f"{joined(self._failures)} do not know {asked_for}; check the identifier")
        if failures and all(isinstance(failure, NoConnection) for failure in failures):
            return ServiceError(
                f"{asked_for} is neither bundled nor kept from before, and cannot be fetched: {failures[0]}. "
                "Connect to the internet and try again; bundled works (2010.09697) and works that were "
                "fetched before open offline"
            )
        return ServiceError(f"{asked_for} could not be fetched: {'; '.join(map(str, failures))}")


def _openalex(access: Access) -> Endpoint:
    if access.openalex_key:
        return Endpoint("OpenAlex", access.openalex, {"Authorization": f"Bearer {access.openalex_key}"})
    return Endpoint("OpenAlex", access.openalex, hint="; a free key in OPENALEX_API_KEY allows more requests")


def _semantic_scholar(access: Access) -> Endpoint:
    name, host = "Semantic Scholar", access.semantic_scholar
    if access.semantic_scholar_key:
        return Endpoint(name, host, {"x-api-key": access.semantic_scholar_key})
    return Endpoint(name, host, hint="; a key in S2_API_KEY allows more requests")


def _ago(moment: float) -> str:
    """How long ago a moment was, in days or the next smaller unit."""
    seconds = max(0.0, time.time() - moment)
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"
