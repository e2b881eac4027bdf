"""The order of positions in one log, whose files may change their base name (log_bin)."""

from __future__ import annotations

from ray_canal.model.position import EntryPosition, journal_key

LogKey = tuple[int, int, int, int, int]


class LogOrder:
    """Sort keys of positions in a log that begins at `start`.

    Within one base, numbers order the files. Of two bases that one comes first which the log has
    shown first; names do not tell. A base that it has not shown yet lies behind all that it has.
    """

    def __init__(self, start: EntryPosition) -> None:
        self._bases: dict[str, int] = {}
        self.show(start.journal_name)

    def show(self, journal_name: str) -> None:
        """Note that the log has come to this file."""
        self._bases.setdefault(journal_key(journal_name)[0], len(self._bases))

    def knows(self, position: EntryPosition) -> bool:
        """Return whether the log has had files of this position's base name."""
        return journal_key(position.journal_name)[0] in self._bases

    def key(self, position: EntryPosition) -> LogKey:
        """Return what positions of this log are compared by."""
        base, number = journal_key(position.journal_name)
        index = self._bases.get(base, len(self._bases))
        return index, number, position.position, position.row, position.entry
