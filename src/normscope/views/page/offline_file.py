"""What every page needs to be one file that loads nothing and sends nothing: resources, policy, writing."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from normscope.atomic_write import atomic_write
from normscope.errors import RunFileError, UsageError


def resource(name: str, package: str = "normscope.views.page") -> str:
    """The text of a style sheet, script or template that comes with the package."""
    return files(package).joinpath(name).read_text("utf-8")


def embedded(value: Any) -> str:
    """JSON that cannot end the script element around it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def policy(scripts: Sequence[str], requests: bool = False) -> str:
    """A content security policy under which only our scripts run and no request can leave.

    With `requests`, the page may ask the server that it came from.
    """
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts)
    allowed = " ".join(f"'sha256-{value}'" for value in hashes)
    connections = "; connect-src 'self'" if requests else ""
    return (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; "
        f"base-uri 'none'; form-action 'none'; script-src {allowed}{connections}"
    )


def write_html(html: str, output: str | os.PathLike[str]) -> Path:
    """Write a page completely or not at all."""
    target = check_place(output)
    try:
        with atomic_write(target) as part:
            part.write_bytes(html.encode("utf-8", "replace"))
    except OSError as error:
        raise RunFileError(
            f"cannot write the report to {target}: {error.strerror}; choose another place with -o"
        ) from error
    return target


def check_place(output: str | os.PathLike[str]) -> Path:
    """Check that a report can be written to `output`, before any work is done for it."""
    target = Path(output)
    if target.is_dir():
        raise UsageError(f"{target} is a folder; give the report a file name, as in {target / 'report.html'}")
    if not target.parent.is_dir():
        raise UsageError(f"the folder {target.parent} does not exist; create it before writing the report")
    if not os.access(target.parent, os.W_OK):
        raise RunFileError(
            f"cannot write the report to {target}: no permission; choose another place with -o"
        )
    return target
