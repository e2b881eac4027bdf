"""Rows that were read of a range and have no place in the log yet."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.model.arrays import Bools
from ray_canal.snapshot.key_numbers import Keys
from ray_canal.snapshot.keys import parted_rows


class UnplacedRows:
    """The rows of a range of one table, in chunks."""

    def __init__(self, chunks: Sequence[DecodedChunk], key: Sequence[str]) -> None:
        self._left = [(chunk, np.ones(chunk.layout.tables[0].rows, np.bool_)) for chunk in chunks]
        self._key = key

    @property
    def chunks(self) -> int:
        """Number of chunks that have such rows."""
        return len(self._left)

    def take(
        self, touched: Sequence[Keys], doubted: Sequence[Keys]
    ) -> list[tuple[DecodedChunk, Bools]] | None:
        """Return which rows of which chunks go to the log: see log/snapshot_sequencer.py `Placed`.
        The ones in doubt stay. None: it cannot be told of some whether their key is touched."""
        taken, left = [], []
        for chunk, rows in self._left:
            parted = parted_rows(chunk, self._key, rows, touched, doubted)
            if parted is None:
                return None
            kept, in_doubt = parted
            if kept.any():
                taken.append((chunk, kept))
            if in_doubt.any():
                left.append((chunk, in_doubt))
        self._left = left
        return taken
