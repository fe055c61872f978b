"""Part of a file as a file of its own: an archive inside a larger file."""

from __future__ import annotations

from normscope.checkpoints.base import Borrowed, Buffer, File


class PartFile(File):
    """Part of another file, as a file of its own."""

    def __init__(self, whole: File, start: int, length: int) -> None:
        self.whole, self.start, self.size = whole, start, length
        self.name = f"{whole.name} (from byte {start})"
        whole.check_range(start, start + length)

    def read(self, start: int, stop: int) -> Buffer:
        """Read from the whole file."""
        return self.whole.read(*self._in_whole(start, stop))

    def borrow(self, start: int, stop: int, mapped: bool = True) -> Borrowed:
        """Borrow from the whole file."""
        return self.whole.borrow(*self._in_whole(start, stop), mapped)

    def check_unchanged(self) -> None:
        """Check the whole file."""
        self.whole.check_unchanged()

    def check_not_rewritten(self) -> None:
        """Check the whole file."""
        self.whole.check_not_rewritten()

    def peek(self, start: int, stop: int) -> bytes:
        """Peek into the whole file."""
        return self.whole.peek(*self._in_whole(start, stop))

    def drop(self, start: int, stop: int) -> None:
        """Drop the bytes in the whole file."""
        self.whole.drop(*self._in_whole(start, stop))

    def hold(self, start: int, stop: int) -> None:
        """Hold the bytes in the whole file."""
        self.whole.hold(*self._in_whole(start, stop))

    def release(self, start: int, stop: int) -> None:
        """Release the bytes in the whole file."""
        self.whole.release(*self._in_whole(start, stop))

    @property
    def remote(self) -> bool:
        """Same as the whole file."""
        return self.whole.remote

    @property
    def zero_copy(self) -> bool:
        """Same as the whole file."""
        return self.whole.zero_copy

    @property
    def digest(self) -> str:
        """Digest of the whole file."""
        return self.whole.digest

    @property
    def stamp(self) -> tuple[str, str] | None:
        """Same as the whole file."""
        return self.whole.stamp

    def close(self) -> None:
        """Do nothing: the owner of the whole file closes it."""

    def _in_whole(self, start: int, stop: int) -> tuple[int, int]:
        """The same range, counted from the beginning of the whole file."""
        self.check_range(start, stop)
        return self.start + start, self.start + stop
