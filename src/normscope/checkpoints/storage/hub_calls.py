"""Calls of the hub's own client: retried while the hub is busy, and refused in the hub's own words.

That client follows redirects to anywhere, waits without a limit and keeps all of an answer, so `stream` does
these things itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from normscope.checkpoints.ranges.range_answers import BUSY, server_wait
from normscope.checkpoints.ranges.redirects import (
    MOST_REDIRECTS,
    MOVED,
    redirect_target,
    too_many_redirects,
)
from normscope.checkpoints.ranges.retry import Retry, Transient, error_summary, is_refusal, repeat
from normscope.checkpoints.ranges.web_connections import origin
from normscope.errors import CheckpointError, UsageError
from normscope.plugins import require

_T = TypeVar("_T")
_WEB_ADDRESS = re.compile(r"https?://[^/]")
_HEADING = re.compile(r"\d{3} (Client|Server) Error\b.*")
_REQUEST_ID = re.compile(r"\s*\(Request ID:[^)]*\)")


def hub_client(part: str = "") -> Any:
    """huggingface_hub, or one of its modules: it does not import them all by itself."""
    return require(f"huggingface_hub{part}", "hf", "Reading a Hugging Face repository")


def ask(name: str, call: Callable[[], _T], retry: Retry) -> _T:
    """Call the hub's API, and retry while the hub is busy."""
    errors = hub_client(".errors")

    def once() -> _T:
        try:
            return call()
        except (CheckpointError, Transient):
            raise
        except errors.HfHubHTTPError as error:
            status = getattr(error.response, "status_code", None)
            if status in BUSY:
                wait = server_wait(lower_case(error.response.headers))
                raise Transient(f"the server answered {status}", wait) from None
            raise CheckpointError(f"{name} cannot be read: {sentence(error)}") from None
        except (errors.OfflineModeIsEnabled, ValueError) as error:
            raise CheckpointError(f"{name} cannot be read: {sentence(error)}") from None
        except Exception as error:
            endpoint = hub_client(".constants").ENDPOINT
            if not _WEB_ADDRESS.match(endpoint):
                raise UsageError(
                    f"{name} cannot be read: the environment variable HF_ENDPOINT is {endpoint!r}; expected "
                    "an address such as https://huggingface.co, or no such variable"
                ) from None
            if is_refusal(error):
                raise CheckpointError(
                    f"{name} cannot be read: {error_summary(error)} ({endpoint})."
                ) from None
            raise Transient(error_summary(error)) from None

    return repeat(once, name, retry)


@contextmanager
def stream(name: str, url: str, headers: Mapping[str, str], idle: float) -> Iterator[Any]:
    """The answer to a GET, from where the hub redirects; its token goes to its own host only."""
    session, endpoint = hub_client().get_session(), hub_client(".constants").ENDPOINT
    for _ in range(MOST_REDIRECTS + 1):
        own = hub_client(".utils").build_hf_headers() if origin(url) == origin(endpoint) else {}
        asked = {"headers": {**own, **headers}, "timeout": idle, "follow_redirects": False}
        with session.stream("GET", url, **asked) as answer:
            if answer.status_code not in MOVED:
                yield answer
                return
            location = answer.headers.get("location", "")
        url = redirect_target(name, url, location)
    raise too_many_redirects(name)


def sentence(error: Exception) -> str:
    """What the hub says, without the heading that only repeats the status.

    >>> sentence(ValueError("403 Client Error. (Request ID: x)\\n\\nCannot access gated repo.\\nLog in."))
    'Cannot access gated repo. Log in.'
    """
    lines = [_REQUEST_ID.sub("", line).strip() for line in str(error).splitlines()]
    said = [line for line in lines if line and not _HEADING.fullmatch(line)]
    text = " ".join(said or [line for line in lines if line] or [type(error).__name__])[:400]
    return text if text.endswith(".") else f"{text}."


def lower_case(headers: Any) -> dict[str, str]:
    """Headers with names in lower case."""
    return {str(name).lower(): str(value) for name, value in headers.items()}
