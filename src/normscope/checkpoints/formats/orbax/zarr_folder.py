"""Where tensorstore finds zarr arrays: in a local or a served folder, as subfolders or in an OCDBT store."""

from __future__ import annotations

import hashlib
from typing import Any

from normscope.checkpoints.base import Buffer, File, Folder
from normscope.checkpoints.formats.orbax.ocdbt_tree import MANIFEST, check_tree
from normscope.checkpoints.formats.orbax.served import ServedFolder
from normscope.checkpoints.storage.local import LocalFolder
from normscope.errors import CheckpointError, CorruptCheckpoint, NormscopeError
from normscope.plugins import require

METADATA = {".zarray": "zarr", "zarr.json": "zarr3"}
"""Metadata file of an array → tensorstore's driver."""

_METADATA_LIMIT = 200_000
_TOGETHER, _COMPRESSION = 1 << 27, 32
"""Bytes that may be unpacked at once however small the files are; beyond that, for each byte stored."""
_CACHE_BYTES = 10_000_000  # for the tree of an OCDBT store, which all its arrays share
_ENTRIES = 300_000


class ZarrFolder(File):
    """One checkpoint's folder, as a File: it has a size and a digest, but tensorstore reads its bytes."""

    def __init__(self, folder: Folder) -> None:
        self._folder, self.name = folder, folder.name
        self._in_store = MANIFEST in folder.names()
        self._drivers: dict[str, str] = {}
        self._context: Any = None
        self._beside: dict[str, File] = {}
        self._listed = _listed(folder)
        self.size = sum(size for _, size, _ in self._listed)
        # Last: if the folder cannot be listed, no server may be left running.
        self._served = None if isinstance(folder, LocalFolder) else ServedFolder(folder)

    def descriptions(self) -> dict[str, bytes]:
        """The metadata of each array, by the array's name."""
        return self._descriptions_in_store() if self._in_store else self._descriptions_in_folders()

    def open(self, name: str) -> Any:
        """Open an array as a tensorstore object."""
        spec = {"driver": self._drivers[name], "kvstore": self._kvstore(f"{name}/")}
        tensorstore = _tensorstore()
        return tensorstore.open(spec, context=self._shared_context(), read=True, open=True).result()

    def beside(self, name: str) -> File | None:
        """A file in the folder beside the arrays, kept open until `close`; None if there is none."""
        if name not in self._beside and name in self._folder.names():
            self._beside[name] = self._folder.file(name)
        return self._beside.get(name)

    def check_unpacked(self, name: str, nbytes: int) -> None:
        """Refuse an array of which more would be unpacked at once than its files can hold."""
        most = max(_TOGETHER, _COMPRESSION * self.size)
        if nbytes > most:
            raise CorruptCheckpoint(
                f"The array {self.name}/{name[:200]} would need {nbytes:,} bytes at once, but all files have "
                f"{self.size:,} (limit {most:,})."
            )

    def read_error(self, name: str, error: Exception) -> NormscopeError:
        """The error to raise for an array that cannot be read: the storage's own, if it failed."""
        unreadable = CheckpointError(f"The array {self.name}/{name} cannot be read: {str(error)[:200]}")
        return self._failure() or unreadable

    def read(self, start: int, stop: int) -> Buffer:
        """Always an error: a folder has no bytes of its own."""
        raise CorruptCheckpoint(f"{self.name} is a folder, which cannot be read as a file.")

    @property
    def digest(self) -> str:
        """Hash of every file's path, size and modification time or, if served, digest."""
        marks = [(path, size, mtime or self._served_digest(path)) for path, size, mtime in self._listed]
        return hashlib.blake2b(repr(marks).encode(), digest_size=16).hexdigest()

    def _served_digest(self, path: str) -> str:
        file = None if self._served is None else self._served.find(path)
        return "" if file is None else file.digest

    def close(self) -> None:
        """Close the files beside the arrays, and stop the server, if there is one."""
        for file in self._beside.values():
            file.close()
        if self._served is not None:
            self._served.close()

    def _failure(self) -> NormscopeError | None:
        return None if self._served is None else self._served.failure

    def _descriptions_in_store(self) -> dict[str, bytes]:
        """From an OCDBT store, whose keys are NAME/.zarray and NAME/CHUNK."""
        tensorstore = _tensorstore()
        check_tree(self._folder, self.size)
        try:
            store = tensorstore.KvStore.open(self._kvstore(""), context=self._shared_context()).result()
            keys = [bytes(key) for key in store.list().result()]
        except Exception as error:  # tensorstore raises ValueError and subclasses of its own
            damaged = CorruptCheckpoint(f"{self.name} is not a readable OCDBT store ({str(error)[:200]}).")
            raise self._failure() or damaged from None
        if len(keys) > _ENTRIES:
            raise CorruptCheckpoint(f"{self.name} has too many entries: {len(keys):,} (limit {_ENTRIES:,}).")
        found: dict[str, bytes] = {}
        for key in keys:
            above, _, kind = key.rpartition(b"/")
            if kind.decode("ascii", "replace") in METADATA:
                name = above.decode("utf-8", "replace")
                if name.encode() != above:
                    raise CorruptCheckpoint(
                        f"{self.name} has an array whose name {name[:80]!r} is not UTF-8."
                    )
                found[name] = self._described(name, kind.decode(), name in found, bytes(store[key]))
        return found

    def _descriptions_in_folders(self) -> dict[str, bytes]:
        """From the subfolders, each of which is one array."""
        found: dict[str, bytes] = {}
        for name in self._folder.names():
            inside = self._folder.folder(name) if name.endswith("/") else None
            for kind in METADATA.keys() & set(inside.names()) if inside is not None else ():
                assert inside is not None
                file, array = inside.file(kind), name.rstrip("/")
                data = file.peek(0, min(file.size, _METADATA_LIMIT + 1))
                found[array] = self._described(array, kind, array in found, data)
        return found

    def _described(self, name: str, kind: str, again: bool, data: bytes) -> bytes:
        """Note the driver of an array, and check its metadata; an array has one description."""
        if again:
            raise CorruptCheckpoint(
                f"The array {self.name}/{name[:200]} has metadata of two versions of zarr, which may differ."
            )
        self._drivers[name] = METADATA[kind]
        if len(data) > _METADATA_LIMIT:
            raise CorruptCheckpoint(
                f"The array {self.name}/{name[:200]} has too much metadata (limit {_METADATA_LIMIT:,} bytes)."
            )
        return data

    def _kvstore(self, below: str) -> dict[str, Any]:
        if not self._in_store:
            return self._base(below)
        return {"driver": "ocdbt", "base": self._base(""), "path": below}

    def _base(self, below: str) -> dict[str, Any]:
        if self._served is not None:
            return {"driver": "http", "base_url": self._served.address, "path": self._served.path + below}
        assert isinstance(self._folder, LocalFolder)
        return {"driver": "file", "path": f"{self._folder.path.absolute()}/{below}"}

    def _shared_context(self) -> Any:
        if self._context is None:
            options = {
                "cache_pool": {"total_bytes_limit": _CACHE_BYTES},
                "http_request_retries": {"max_retries": 1},  # our own files already retry
            }
            self._context = _tensorstore().Context(options)
        return self._context


def _listed(folder: Folder, above: str = "") -> list[tuple[str, int, int]]:
    """Path, size and modification time of every file below; the time is 0 if the storage has none."""
    if isinstance(folder, LocalFolder):
        found = ((p, p.stat()) for p in sorted(folder.path.rglob("*")) if p.is_file())
        return [(str(p.relative_to(folder.path)), s.st_size, s.st_mtime_ns) for p, s in found]
    files: list[tuple[str, int, int]] = []
    for name in folder.names():
        if name.endswith("/"):
            files += _listed(folder.folder(name), above + name)
        else:
            files.append((above + name, folder.file(name).size, 0))
    return files


def _tensorstore() -> Any:
    return require("tensorstore", "orbax", "Reading Orbax checkpoints")
