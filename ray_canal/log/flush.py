"""When entries of an open transaction become visible (Canal: EventTransactionBuffer's flushes).

Entries gather until something ends the gathering: before a BEGIN, behind an END, behind an entry
that is no row change, and when `transaction_size` of them are there. So a transaction of up to that
many entries appears in the log at once, and a longer one in pieces.
"""

from __future__ import annotations

import numpy as np

from ray_canal.model.arrays import Records
from ray_canal.model.canal_types import BEGIN, DELETE, END, INSERT, ROWDATA


class Flush:
    """Counts what is gathered. `transaction_size` 0: nothing is ever held back."""

    def __init__(self, transaction_size: int) -> None:
        self._size = transaction_size
        self._gathered = 0

    def held(self, entries: Records) -> int:
        """Take a chunk's entries (ENTRY). Returns how many of the last ones are not visible."""
        count = len(entries)
        if not self._size or not count:
            return 0
        kind, event_type = entries["kind"], entries["event_type"]
        if kind[-1] == END:
            self._gathered = 0
            return 0
        row_change = (kind == ROWDATA) & (event_type >= INSERT) & (event_type <= DELETE)
        stays = row_change | (kind == BEGIN)
        # The last place where everything before it is flushed: behind what does not stay, before a
        # BEGIN.
        behind = np.flatnonzero(~stays)
        before = np.flatnonzero(kind == BEGIN)
        place = max(
            int(behind[-1]) + 1 if len(behind) else 0, int(before[-1]) if len(before) else 0
        )
        flushed = len(behind) > 0 or len(before) > 0
        gathered = count - place + (0 if flushed else self._gathered)
        # A full buffer is flushed when one more comes, so at most `size` are held, and one if any.
        self._gathered = (gathered - 1) % self._size + 1 if gathered else 0
        return self._gathered
