"""Files that are read by ranges over a network, each byte once."""

from __future__ import annotations

import hashlib
import threading

from normscope.checkpoints.base import Buffer, File
from normscope.checkpoints.byte_cache import ByteCache, new_owner
from normscope.checkpoints.ranges.retry import DEFAULT_RETRY, Fetch, Retry, fetch_all

CHUNK = 64 * 1024
"""Reads are widened to whole chunks; the first and the last are cached for the neighbouring tensors."""

edge_chunks = ByteCache(1024 * CHUNK)


class RangeFile(File):
    """A file behind a function that fetches ranges of it.

    A read becomes one request per run of chunks that are not cached. So a header and the small
    tensors next to it are fetched together, and a chunk shared by two tensors is fetched once.
    """

    def __init__(
        self,
        name: str,
        size: int,
        fetch: Fetch,
        *,
        digest: str = "",
        stamp: str = "",
        retry: Retry = DEFAULT_RETRY,
    ) -> None:
        self.name, self.size = name, size
        self._fetch, self._digest, self._stamp, self._retry = fetch, digest, stamp, retry
        self._lock = threading.Lock()
        self._owner = new_owner()

    @property
    def cached_chunks(self) -> int:
        """Number of the file's chunks that are cached."""
        return edge_chunks.count(self._owner)

    def read(self, start: int, stop: int) -> Buffer:
        """Fetch each run of missing chunks with one request."""
        self.check_range(start, stop)
        if start == stop:
            return b""
        first, last = start // CHUNK, -(-stop // CHUNK)
        with self._lock:  # two tensors that share a chunk must not both fetch it
            parts = self._gather(first, last)
        whole = parts[0] if len(parts) == 1 else b"".join(parts)
        return memoryview(whole)[start - first * CHUNK : stop - first * CHUNK]

    @property
    def digest(self) -> str:
        """The server's identifier of the content, or else a hash of size, date, beginning and end."""
        if not self._digest:
            result = hashlib.blake2b(f"{self.size}{self._stamp}".encode(), digest_size=16)
            result.update(self.read(0, min(self.size, CHUNK)))
            result.update(self.read(max(0, self.size - CHUNK), self.size))
            self._digest = result.hexdigest()
        return self._digest

    def keep_beginning(self, beginning: bytes) -> None:
        """Cache the first chunk, if it has arrived with the file's size."""
        if beginning and len(beginning) == min(CHUNK, self.size):
            edge_chunks.put(self._owner, 0, beginning)

    def close(self) -> None:
        """Discard the cached chunks."""
        edge_chunks.discard_all(self._owner)

    def _cached(self, chunk: int) -> Buffer | None:
        return edge_chunks.get(self._owner, chunk)

    def _gather(self, first: int, last: int) -> list[Buffer]:
        parts: list[Buffer] = []
        position = first
        while position < last:
            cached = self._cached(position)
            if cached is not None:
                parts.append(cached)
                position += 1
                continue
            end = next((n for n in range(position + 1, last) if self._cached(n) is not None), last)
            parts.append(self._fetch_chunks(position, end))
            position = end
        return parts

    def _fetch_chunks(self, first: int, last: int) -> Buffer:
        data = fetch_all(self._fetch, self.name, first * CHUNK, min(last * CHUNK, self.size), self._retry)
        for chunk in {first, last - 1}:
            begin = (chunk - first) * CHUNK
            edge_chunks.put(self._owner, chunk, bytes(data[begin : begin + CHUNK]))
        return data
