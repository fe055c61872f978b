"""Files that are read by ranges over a network, each byte once."""

from __future__ import annotations

import hashlib
import threading

from normscope.checkpoints.base import Buffer, File
from normscope.checkpoints.byte_cache import ByteCache, new_owner
from normscope.checkpoints.ranges.retry import DEFAULT_RETRY, Fetch, Retry, fetch_all

CHUNK = 64 * 1024
"""Reads are widened to whole chunks; the first and the last are cached for the neighbouring tensors."""
_PAGE = 4096

edge_chunks = ByteCache(1024 * CHUNK)


class HeaderGuess:
    """How many bytes to fetch when a file is opened: what the header of the last one took.

    The checkpoints of a series have headers of one length, and there may be thousands of them, all of
    whose beginnings are kept until their tensors are read.
    """

    def __init__(self) -> None:
        self.nbytes = CHUNK

    def learn(self, nbytes: int) -> None:
        """Remember how much of a file was read to open it."""
        self.nbytes = min(CHUNK, max(1, -(-nbytes // _PAGE)) * _PAGE)


header_guess = HeaderGuess()


class RangeFile(File):
    """A file behind a function that fetches ranges of it.

    Tensors are read from ranges that were fetched for them before (`hold`). Any other read becomes one
    request per run of chunks that are not cached. So a header and the small tensors next to it are fetched
    together, and a chunk shared by two tensors is fetched once.
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
        self._held: dict[tuple[int, int], Buffer] = {}
        self._opening = 0

    @property
    def remote(self) -> bool:
        """Always true."""
        return True

    @property
    def cached_chunks(self) -> int:
        """Number of the file's chunks that are cached."""
        return edge_chunks.count(self._owner)

    def read(self, start: int, stop: int) -> Buffer:
        """The bytes from a range that is held, or else fetch each run of missing chunks with one request."""
        self.check_range(start, stop)
        if start == stop:
            return b""
        for (first_byte, end), held in tuple(self._held.items()):
            if first_byte <= start and stop <= end:
                return memoryview(held)[start - first_byte : stop - first_byte]
        first, last = start // CHUNK, -(-stop // CHUNK)
        with self._lock:  # two tensors that share a chunk must not both fetch it
            if stop <= CHUNK:
                self._begin(stop)
                parts: list[Buffer] = [edge_chunks.get(self._owner, 0) or b""]
            else:
                parts = self._gather(first, last)
        whole = parts[0] if len(parts) == 1 else b"".join(parts)
        return memoryview(whole)[start - first * CHUNK : stop - first * CHUNK]

    def header_read(self) -> None:
        """Let other files be opened with one request as long as this one needed."""
        header_guess.learn(self._opening)

    def hold(self, start: int, stop: int) -> None:
        """Fetch what is not cached of a range, and not a byte beyond it; cached chunks become part of it."""
        self.check_range(start, stop)
        cached = edge_chunks.blocks(self._owner, start // CHUNK, -(-stop // CHUNK))
        parts: list[Buffer] = []
        at = start
        for index, block in cached:
            begin, end = index * CHUNK, min(stop, index * CHUNK + len(block))
            if end <= at:
                continue
            parts += [self._fetched(at, begin)] if begin > at else []
            at = max(at, begin)
            parts.append(memoryview(block)[at - begin : end - begin])
            at = end
        parts += [self._fetched(at, stop)] if at < stop else []
        self._held[start, stop] = parts[0] if len(parts) == 1 else b"".join(parts)
        for index, block in cached:
            if index * CHUNK + len(block) <= stop:
                edge_chunks.discard(self._owner, index)

    def release(self, start: int, stop: int) -> None:
        """Forget a range that was held; buffers that were read from it stay valid."""
        self._held.pop((start, stop), None)

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
        """Cache the first bytes, if they have arrived with the file's size."""
        if 0 < len(beginning) <= CHUNK:
            edge_chunks.put(self._owner, 0, beginning)

    def close(self) -> None:
        """Discard the cached chunks."""
        self._held.clear()
        edge_chunks.discard_all(self._owner)

    def _begin(self, needed: int) -> None:
        """Have the first bytes cached, as many as are needed, and a header's length in advance."""
        self._opening = max(self._opening, needed)
        known = edge_chunks.get(self._owner, 0) or b""
        if len(known) < needed:
            wanted = needed if known else max(needed, header_guess.nbytes)
            more = self._fetched(len(known), min(CHUNK, self.size, wanted))
            edge_chunks.put(self._owner, 0, bytes(known) + more)

    def _cached(self, chunk: int) -> Buffer | None:
        return edge_chunks.get(self._owner, chunk)

    def _gather(self, first: int, last: int) -> list[Buffer]:
        parts: list[Buffer] = []
        position = first
        while position < last:
            cached = self._cached(position)
            if cached is not None and len(cached) == min(CHUNK, self.size - position * CHUNK):
                parts.append(cached)
                position += 1
                continue
            end = next((n for n in range(position + 1, last) if self._cached(n) is not None), last)
            parts.append(self._fetch_chunks(position, end, cached or b""))
            position = end
        return parts

    def _fetched(self, start: int, stop: int) -> bytearray:
        return fetch_all(self._fetch, self.name, start, stop, self._retry)

    def _fetch_chunks(self, first: int, last: int, known: Buffer = b"") -> Buffer:
        """Fetch whole chunks, of which the first bytes may be known."""
        data = self._fetched(first * CHUNK + len(known), min(last * CHUNK, self.size))
        data[:0] = known
        for chunk in {first, last - 1}:
            begin = (chunk - first) * CHUNK
            edge_chunks.put(self._owner, chunk, bytes(data[begin : begin + CHUNK]))
        return data
