"""Objects in S3: each range by version id if the bucket keeps versions, otherwise by ETag."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping
from typing import Any

from normscope.checkpoints.ranges.file_version import FileVersion, replaced
from normscope.checkpoints.ranges.range_answers import check_answer, counted
from normscope.checkpoints.ranges.retry import Retry, Transient, error_summary
from normscope.errors import CheckpointError
from normscope.plugins import require

_PIECE = 1 << 20
_FIELDS = {
    "ETag": "etag",
    "ContentRange": "content-range",
    "ContentEncoding": "content-encoding",
    "ContentLength": "content-length",
}


def is_s3(filesystem: Any) -> bool:
    """Whether a file system is s3fs."""
    protocol = getattr(filesystem, "protocol", ())
    return "s3" in ((protocol,) if isinstance(protocol, str) else protocol) and hasattr(
        filesystem, "_call_s3"
    )


class S3Object:
    """Fetches ranges of one version of an object; `info` is its entry in a listing.

    With a version id, the version that was listed is read to the end even if the object is replaced.
    """

    def __init__(self, filesystem: Any, path: str, name: str, info: Mapping[str, Any], retry: Retry) -> None:
        self._filesystem, self._name, self._retry = filesystem, name, retry
        self._bucket, self._key, version = filesystem.split_path(path)
        self._id = version or info.get("VersionId")
        self._version = FileVersion(int(info["size"]), str(info.get("ETag") or ""))

    def fetch(self, start: int, stop: int) -> Iterable[bytes]:
        """Make one range request."""
        asyn = require("fsspec.asyn", "remote", "Reading from S3")
        seconds = self._retry.seconds(stop - start)
        try:
            expected, pieces = asyn.sync(self._filesystem.loop, self._get, start, stop, timeout=seconds)
        except (Transient, CheckpointError):
            raise
        except TimeoutError:
            raise Transient("the answer took too long", slow=True) from None
        except Exception as error:
            raise self._failure(error, start, stop) from None
        yield from counted(pieces, expected, math.inf)

    async def _get(self, start: int, stop: int) -> tuple[int, list[bytes]]:
        """How many bytes the answer should have, and these bytes; no more of it is read."""
        wanted = {"Range": f"bytes={start}-{stop - 1}", **self._pin()}
        answer = await self._filesystem._call_s3("get_object", Bucket=self._bucket, Key=self._key, **wanted)
        headers = {
            ours: str(answer[theirs]) for theirs, ours in _FIELDS.items() if answer.get(theirs) is not None
        }
        pieces: list[bytes] = []
        try:
            left = expected = self._check(206 if "content-range" in headers else 200, headers, start, stop)
            while left > 0:
                piece = await asyncio.wait_for(answer["Body"].read(min(_PIECE, left)), self._retry.idle)
                if not piece:
                    break
                pieces.append(piece)
                left -= len(piece)
        finally:
            answer["Body"].close()
        self._id = self._id or answer.get("VersionId")
        return expected, pieces

    def _pin(self) -> dict[str, str]:
        """Which version is wanted; a bucket that keeps versions says their ids with the first answer."""
        if self._id and self._id != "null":
            return {"VersionId": self._id}
        return {"IfMatch": self._version.etag} if self._version.conditions else {}

    def _check(self, status: int, headers: Mapping[str, str], start: int, stop: int) -> int:
        return check_answer(self._name, status, headers, (start, stop), self._version)

    def _failure(self, error: Exception, start: int, stop: int) -> Exception:
        """What an exception of s3fs or botocore means; the status is in one of its causes."""
        cause: BaseException | None = error
        while cause is not None:
            answer = getattr(cause, "response", None)
            status = (
                answer.get("ResponseMetadata", {}).get("HTTPStatusCode") if isinstance(answer, dict) else None
            )
            if isinstance(status, int) and status >= 400:
                try:
                    self._check(status, {}, start, stop)
                except (Transient, CheckpointError) as found:
                    return found
            cause = cause.__cause__ or cause.__context__
        if isinstance(error, FileNotFoundError):
            return replaced(self._name, "it was moved or deleted")
        if isinstance(error, PermissionError | IsADirectoryError):
            return CheckpointError(f"{self._name} cannot be read: {error_summary(error)}.")
        return Transient(error_summary(error))
