"""Answers to HTTP requests as http.client reads them, where it takes for whole what is not."""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping
from typing import Any

from normscope.checkpoints.ranges.chunked_bodies import chunk_bytes
from normscope.checkpoints.ranges.retry import Transient

PIECE = 64 * 1024


class WebAnswer:
    """The status and headers of an answer, and its body in pieces of at most 64 KB."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers: Mapping[str, str] = _joined(response.headers.items())
        self._chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        self._ended = False

    def pieces(self) -> Iterator[bytes]:
        """The body as it arrives."""
        if self._chunked:
            untyped: Any = self._response
            yield from chunk_bytes(untyped.fp, PIECE)
            self._ended = True
            return
        while piece := self._response.read1(PIECE):
            yield piece
        if self._response.length:
            raise Transient(f"the answer ended {self._response.length:,} bytes early")

    @property
    def read_to_the_end(self) -> bool:
        """Whether the connection can be used for another request."""
        ended = self._ended if self._chunked else self._response.length == 0
        if ended:
            self._response.close()  # it does not notice by itself
        return self._response.isclosed() and not self._response.will_close

    def close(self) -> None:
        """Read no more of it."""
        self._response.close()


class FinalResponse(http.client.HTTPResponse):
    """An answer without those that come before it (103, Early Hints), whose headers have all arrived.

    http.client leaves out only 100, and takes half a header for a whole one if the connection ends there.
    """

    def begin(self) -> None:
        """Read the status and the headers."""
        super().begin()
        untyped: Any = self.fp
        if getattr(getattr(untyped, "raw", None), "ended", False):
            raise Transient("the answer ended in its headers", distrusted=True)

    def _read_status(self) -> tuple[str, int, str]:
        untyped: Any = super()
        while True:
            line: tuple[str, int, str] = untyped._read_status()
            if not 101 < line[1] < 200:  # after 101 it would be another protocol
                return line
            http.client.parse_headers(self.fp)


def _joined(items: Any) -> dict[str, str]:
    joined: dict[str, str] = {}
    for name, value in items:
        key, text = name.lower(), str(value).strip(" \t")  # spaces around a value are not part of it
        joined[key] = f"{joined[key]}, {text}" if key in joined else text
    return joined
