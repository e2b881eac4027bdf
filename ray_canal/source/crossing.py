"""Watch where a dump leaves one binlog file for the next one.

A server whose log is reset under a dump may not say so: at the end of the file that it still has
open it goes on with the file of the next number, if there is one by then, and leaves out what the
new log has before it. So the two files must fit: the first one ends with a ROTATE event that names
the second one, which was made in that second. Where they do not (the server crashed or was stopped
there, which also ends a file), the server is asked whether it still has the first one.
"""

from __future__ import annotations

from ray_canal.binlog.chunk import RawChunk
from ray_canal.kernels.base import event_types

_TAIL_BYTES = 1024
"""A ROTATE event is shorter: a file's name has at most 512 bytes."""
_CLOSE_S = 1


class Crossing:
    """Remembers the end of the file that is read."""

    def __init__(self) -> None:
        self.stand("", 0)

    def stand(self, journal_name: str, created_s: int) -> None:
        """Reading begins in that file."""
        self._name, self._created_s = journal_name, created_s
        self._tail = b""

    def left_unsure(self, chunk: RawChunk) -> tuple[str, int] | None:
        """The file that was left for the chunk's (name, when it was made), if that is to be looked
        at; else None."""
        head, left = chunk.head, (self._name, self._created_s)
        is_sure = head.journal_name == self._name or not self._created_s
        if not is_sure:
            end_s = _rotated_s(self._tail, head.journal_name, 4 * head.has_checksum)
            is_sure = end_s is not None and 0 <= head.created_s - end_s <= _CLOSE_S
        self._name, self._created_s = head.journal_name, head.created_s
        self._tail = chunk.data[-_TAIL_BYTES:].tobytes()
        return None if is_sure else left


def _rotated_s(tail: bytes, journal_name: str, checksum_bytes: int) -> int | None:
    """Return when the server wrote the ROTATE event to `journal_name` with which `tail` ends, in
    seconds; None: it ends with none. (Its last event may have a checksum or not.)"""
    name = journal_name.encode("utf-8", "surrogateescape")
    for trailer_bytes in {checksum_bytes, 4 - checksum_bytes}:
        event = tail[-(event_types.HEADER_BYTES + 8 + len(name) + trailer_bytes) :]
        if (
            event[4:5] == bytes([event_types.ROTATE])
            and int.from_bytes(event[9:13], "little") == len(event)
            and event[event_types.HEADER_BYTES + 8 :][: len(name)] == name
        ):
            return int.from_bytes(event[:4], "little")
    return None
