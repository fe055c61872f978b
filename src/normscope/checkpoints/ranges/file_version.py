"""Which version of a remote file is read, so that no number mixes two of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from normscope.checkpoints.ranges.retry import Transient
from normscope.errors import ReplacedCheckpoint

_STRONG = re.compile(r'"[\x21\x23-\x7e]*"')


@dataclass(frozen=True)
class FileVersion:
    """What a server says of one version of a file; "" where it says nothing.

    Header names are in lower case in all mappings of headers here.
    """

    size: int
    etag: str = ""
    modified: str = ""

    @classmethod
    def of(cls, size: int, headers: Mapping[str, str]) -> FileVersion:
        """The version that an answer is about."""
        return cls(size, headers.get("etag", "").strip(), headers.get("last-modified", "").strip())

    @property
    def pinned(self) -> bool:
        """Whether a replacement of equal length would be noticed."""
        return bool(self.etag or self.modified)

    @property
    def _strong(self) -> bool:
        return _STRONG.fullmatch(self.etag) is not None

    @property
    def conditions(self) -> dict[str, str]:
        """Headers by which a server refuses to send another version, if it knows them.

        If-Match compares strong ETags only (RFC 9110, 13.1.1).
        """
        if self._strong:
            return {"If-Match": self.etag}
        return {"If-Unmodified-Since": self.modified} if self.modified else {}

    @property
    def digest(self) -> str:
        """The ETag without quotes; "" if there is none."""
        return self.etag.removeprefix("W/").strip('"').replace(".", "-")

    def check(self, name: str, headers: Mapping[str, str]) -> None:
        """Refuse an answer about another version, or one that does not say which version it is about."""
        now = FileVersion.of(self.size, headers)
        compared = [("ETag", self.etag, now.etag)]
        if not self._strong:
            compared.append(("Last-Modified", self.modified, now.modified))
        for what, before, after in compared:
            if before and not after:
                raise Transient(f"an answer has no {what} header, and the first one had", distrusted=True)
            if before and after != before:
                raise replaced(name, f"its {what} was {before[:100]} and is now {after[:100]}")

    def check_size(self, name: str, size: int) -> None:
        """Refuse an answer about a file of another length."""
        if size != self.size:
            raise replaced(name, f"it had {self.size:,} bytes and has {size:,} now")


def replaced(name: str, evidence: str) -> ReplacedCheckpoint:
    """The error for a file that is not the one that was opened."""
    return ReplacedCheckpoint(
        f"{name} was replaced while it was read: {evidence}. Run the same command again: this checkpoint is "
        "measured anew, and what was measured of the others is kept."
    )
