"""Files that are read by ranges over a network, each byte once."""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections import OrderedDict

from normscope.checkpoints.base import Buffer, File
from normscope.checkpoints.storage.retry import DEFAULT_RETRY, Fetch, Retry, fetch_all
from normscope.errors import CorruptCheckpoint

CHUNK = 64 * 1024
"""Reads are widened to whole chunks; those at the edges are kept for the neighbouring tensor."""

KEPT_CHUNKS = 1024
"""Edge chunks kept over all files: 64 MB."""


_tokens = itertools.count()  # ids of objects that are gone come back; these do not


class RangeFile(File):
    """A file behind a function that fetches ranges of it.

    A read becomes one request for each run of chunks that is not at hand. Headers and
    small tensors that lie together are so fetched together, and a chunk that two tensors
    share is fetched once.
    """

    def __init__(
        self, name: str, size: int, fetch: Fetch, *, digest: str = "", retry: Retry = DEFAULT_RETRY
    ) -> None:
        self.name, self.size = name, size
        self._fetch, self._digest, self._retry = fetch, digest, retry
        self._lock = threading.Lock()
        self.token = next(_tokens)

    def read(self, start: int, stop: int) -> Buffer:
        """Whole runs of missing chunks at a time, one request each."""
        if not 0 <= start <= stop <= self.size:
            raise CorruptCheckpoint(
                f"{self.name} is truncated: bytes {start} to {stop} were expected, but it has {self.size}."
            )
        if start == stop:
            return b""
        first, last = start // CHUNK, -(-stop // CHUNK)
        with self._lock:  # two tensors that share a chunk must not both fetch it
            parts = self._gather(first, last)
        whole = parts[0] if len(parts) == 1 else b"".join(parts)
        return memoryview(whole)[start - first * CHUNK : stop - first * CHUNK]

    @property
    def digest(self) -> str:
        """What the server says identifies the content, else a hash of size, beginning and end."""
        if not self._digest:
            result = hashlib.blake2b(str(self.size).encode(), digest_size=16)
            result.update(self.read(0, min(self.size, CHUNK)))
            result.update(self.read(max(0, self.size - CHUNK), self.size))
            self._digest = result.hexdigest()
        return self._digest

    def close(self) -> None:
        """Forget what was kept."""
        _kept.forget(self)

    def _gather(self, first: int, last: int) -> list[Buffer]:
        parts: list[Buffer] = []
        position = first
        while position < last:
            kept = _kept.get(self, position)
            if kept is not None:
                parts.append(kept)
                position += 1
                continue
            end = next((n for n in range(position + 1, last) if _kept.get(self, n) is not None), last)
            parts.append(self._fetch_chunks(position, end))
            position = end
        return parts

    def _fetch_chunks(self, first: int, last: int) -> Buffer:
        data = fetch_all(self._fetch, self.name, first * CHUNK, min(last * CHUNK, self.size), self._retry)
        for chunk in {first, last - 1}:
            begin = (chunk - first) * CHUNK
            _kept.put(self, chunk, bytes(data[begin : begin + CHUNK]))
        return data


class _Kept:
    """Chunks of any file, the latest used of them."""

    def __init__(self) -> None:
        self._chunks: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, file: RangeFile, chunk: int) -> bytes | None:
        """The chunk, if it is kept."""
        with self._lock:
            found = self._chunks.get((file.token, chunk))
            if found is not None:
                self._chunks.move_to_end((file.token, chunk))
            return found

    def put(self, file: RangeFile, chunk: int, data: bytes) -> None:
        """Keep a chunk, and let the one go that was not used for longest."""
        with self._lock:
            self._chunks[file.token, chunk] = data
            while len(self._chunks) > KEPT_CHUNKS:
                self._chunks.popitem(last=False)

    def forget(self, file: RangeFile) -> None:
        """Let all of a file's chunks go."""
        with self._lock:
            for key in [key for key in self._chunks if key[0] == file.token]:
                del self._chunks[key]


_kept = _Kept()
