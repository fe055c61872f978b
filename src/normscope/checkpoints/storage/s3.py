"""Objects in S3: each range by version id if the bucket keeps versions, otherwise by ETag."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any

from normscope.checkpoints.storage.file_version import FileVersion
from normscope.checkpoints.storage.range_answers import check_answer, counted
from normscope.checkpoints.storage.retry import Retry, Transient, error_summary
from normscope.errors import CheckpointError
from normscope.plugins import require

_PIECE = 1 << 20
_LISTED = {"ETag": "etag", "ContentRange": "content-range", "ContentEncoding": "content-encoding"}


def is_s3(filesystem: Any) -> bool:
    """Whether a file system is s3fs."""
    protocol = getattr(filesystem, "protocol", ())
    return "s3" in ((protocol,) if isinstance(protocol, str) else protocol) and hasattr(filesystem, "_call_s3")


class S3Object:
    """Fetches ranges of one version of an object; `info` is its entry in a listing.

    With a version id, the version that was listed is read to the end even if the object is replaced.
    """

    def __init__(
        self, filesystem: Any, path: str, name: str, info: Mapping[str, Any], retry: Retry
    ) -> None:
        self._filesystem, self._name, self._retry = filesystem, name, retry
        self._bucket, self._key, version = filesystem.split_path(path)
        self._id = version or info.get("VersionId")
        self._version = FileVersion(int(info["size"]), str(info.get("ETag") or ""))

    def fetch(self, start: int, stop: int) -> Iterable[bytes]:
        """Make one range request."""
        asyn = require("fsspec.asyn", "remote", "Reading from S3")
        seconds = self._retry.seconds(stop - start)
        try:
            pieces: list[bytes] = asyn.sync(self._filesystem.loop, self._get, start, stop, timeout=seconds)
        except (Transient, CheckpointError):
            raise
        except TimeoutError:
            raise Transient("the answer took too long", slow=True) from None
        except FileNotFoundError:
            self._check(404, {}, start, stop)
            return
        except Exception as error:
            raise self._failure(error, start, stop) from None
        yield from pieces

    async def _get(self, start: int, stop: int) -> list[bytes]:
        """The range in pieces, read no further than it goes."""
        wanted = {"Range": f"bytes={start}-{stop - 1}"}
        if self._id and self._id != "null":
            wanted["VersionId"] = self._id
        elif self._version.conditions:
            wanted |= {"IfMatch": self._version.etag}
        answer = await self._filesystem._call_s3("get_object", Bucket=self._bucket, Key=self._key, **wanted)
        headers = {ours: str(answer[theirs]) for theirs, ours in _LISTED.items() if answer.get(theirs)}
        if answer.get("ContentLength") is not None:
            headers["content-length"] = str(answer["ContentLength"])
        body = answer["Body"]
        try:
            expected = self._check(206 if "content-range" in headers else 200, headers, start, stop)
            pieces: list[bytes] = []
            left = expected
            while left > 0 and (
                piece := await asyncio.wait_for(body.read(min(_PIECE, left)), self._retry.idle)
            ):
                pieces.append(piece)
                left -= len(piece)
        finally:
            body.close()
        return list(counted(pieces, expected, time.monotonic() + 1)) if left >= 0 else pieces

    def _check(self, status: int, headers: Mapping[str, str], start: int, stop: int) -> int:
        return check_answer(self._name, status, headers, (start, stop), self._version)

    def _failure(self, error: Exception, start: int, stop: int) -> Exception:
        """What an exception of s3fs or botocore means; the status is in one of its causes."""
        cause: BaseException | None = error
        while cause is not None:
            answer = getattr(cause, "response", None)
            status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode") if isinstance(answer, dict) else None
            if isinstance(status, int) and status >= 400:
                try:
                    self._check(status, {}, start, stop)
                except (Transient, CheckpointError) as found:
                    return found
            cause = cause.__cause__ or cause.__context__
        if isinstance(error, PermissionError | IsADirectoryError):
            return CheckpointError(f"{self._name} cannot be read: {error_summary(error)}.")
        return Transient(error_summary(error))
