"""Files and folders in memory, for tests that need thousands of them."""

from normscope.checkpoints.base import File, Folder
from normscope.errors import CorruptCheckpoint


class MemoryFile(File):
    def __init__(self, name, data):
        self.name, self.data, self.size = name, data, len(data)

    def read(self, start, stop):
        if not 0 <= start <= stop <= self.size:
            raise CorruptCheckpoint(f"{self.name} is truncated.")
        return memoryview(self.data)[start:stop]

    @property
    def digest(self):
        return str(hash(self.data))

    def close(self):
        pass


class MemoryFolder(Folder):
    """Paths with slashes make subfolders."""

    def __init__(self, name, files):
        self.name, self.files = name, files

    def names(self):
        return sorted({head + slash for head, slash, _ in (path.partition("/") for path in self.files)})

    def file(self, name):
        return MemoryFile(f"{self.name}/{name}", self.files[name])

    def folder(self, name):
        inside = {p[len(name) :]: d for p, d in self.files.items() if p.startswith(name)}
        return MemoryFolder(f"{self.name}/{name.rstrip('/')}", inside)
