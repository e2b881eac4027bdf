"""A checked cursor over a small byte string: for events that Python parses itself."""

from __future__ import annotations

from ray_canal.errors import CorruptEvent


class Reader:
    """A cursor that takes bytes from the front. Raises CorruptEvent, naming `what`, if there are
    too few."""

    __slots__ = ("_at", "_data", "_what")

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._what = what
        self._at = 0

    @property
    def left(self) -> int:
        """Return the number of bytes that are not read yet."""
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        if count > self.left:
            raise CorruptEvent(f"{self._what}: {count} bytes wanted, {self.left} left")
        self._at += count
        return self._data[self._at - count : self._at]

    def skip(self, count: int) -> None:
        """Go past so many bytes. Raises CorruptEvent: there are not so many."""
        self.take(count)

    def integer(self, count: int) -> int:
        """Take a little-endian, unsigned integer."""
        return int.from_bytes(self.take(count), "little")

    def packed(self) -> int:
        """Take MySQL's length-encoded integer."""
        first = self.integer(1)
        if first < 251:
            return first
        if first == 252:
            return self.integer(2)
        if first == 253:
            return self.integer(3)
        if first == 254:
            return self.integer(8)
        raise CorruptEvent(f"{self._what}: {first:#x} starts no packed integer")
