"""What a file or folder was when something was measured with it: another state is another experiment."""

from __future__ import annotations

import hashlib
from pathlib import Path

State = str | tuple[str, str] | None


def file_state(name: str | None) -> State:
    """Return the name, and if there is such a file or folder, a digest of it; None stays None.

    A file is told by its contents. A folder, such as that of a model, is told by the names, sizes and times
    of its files, which may be large.
    """
    if name is None or not (path := Path(name)).exists():
        return name
    digest = hashlib.sha256()
    if path.is_file():
        digest.update(path.read_bytes())
    else:
        for file in sorted(file for file in path.rglob("*") if file.is_file()):
            found = file.stat()
            digest.update(f"{file.relative_to(path)} {found.st_size} {found.st_mtime_ns}\n".encode())
    return name, digest.hexdigest()[:16]
