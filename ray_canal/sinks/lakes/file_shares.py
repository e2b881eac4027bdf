"""A commit of a lake's table as work that several writers share: each writes some of the table's
files again without the rows that change, and the new rows of its bucket of keys. What they wrote
counts when one commit names it all; without that it is files that nobody reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ray_canal.model.arrays import Bools
from ray_canal.sinks.key_shares import shared_out

Common = TypeVar("Common")
Piece = TypeVar("Piece")
Answer = TypeVar("Answer")
File = TypeVar("File")

_SHARE_ROWS, _SHARE_BYTES = 4096, 1 << 20
"""Bytes for which one more writer is worth its start."""


class Spread(Protocol):
    """Calls a function for each piece, several at once, and returns the answers in their order.
    What each call needs is given once. Raises what the function raises, and SinkError "retry"."""

    def __call__(
        self,
        function: Callable[[Common, Piece], Answer],
        common: Common,
        pieces: Sequence[Piece],
    ) -> list[Answer]: ...


def in_threads(
    function: Callable[[Common, Piece], Answer], common: Common, pieces: Sequence[Piece]
) -> list[Answer]:
    """Make the calls in threads of this process: a `Spread`."""
    with ThreadPoolExecutor(len(pieces)) as pool:
        return list(pool.map(lambda piece: function(common, piece), pieces))


@dataclass(frozen=True)
class Writers:
    """How many writers share a commit at most, and how they are called."""

    count: int = 1
    spread: Spread = in_threads

    def write(
        self,
        function: Callable[[Common, Piece], Answer],
        common: Common,
        shares: Sequence[Piece],
    ) -> list[Answer]:
        """Call the function for each share; a single one is written here. Raises as `Spread`."""
        if len(shares) == 1:
            return [function(common, shares[0])]
        return self.spread(function, common, shares)


ONE_WRITER = Writers()


@dataclass(frozen=True)
class Share(Generic[File]):
    """One writer's part."""

    files: tuple[File, ...]
    upserts: pa.Table


def shares_of(
    files: Sequence[File], sizes: Sequence[int], upserts: pa.Table, key: Sequence[str], most: int
) -> list[Share[File]]:
    """Return at most so many shares: files that follow each other, of about the same size, and
    rows by a hash of their key."""
    total = sum(sizes)
    count = min(most, 1 + max(upserts.num_rows // _SHARE_ROWS, total // _SHARE_BYTES))
    middles = np.cumsum(sizes) - np.asarray(sizes) / 2
    owners = (middles * count // max(total, 1)).astype(int).tolist()
    return [
        Share(tuple(file for file, owner in zip(files, owners, strict=True) if owner == n), rows)
        for n, rows in enumerate(shared_out(upserts, key, count))
    ]


def has_key_of(rows: pa.Table, touched: pa.Table) -> Bools:
    """Return which rows have a key that is among `touched`, whose columns are the key's."""
    key = touched.column_names
    found: Bools = np.asarray(pc.is_in(rows[key[0]], touched[key[0]].combine_chunks()))
    if len(key) == 1 or not found.any():
        return found
    places = np.flatnonzero(found)
    keys = rows.select(key).take(places).append_column("canal_row", pa.array(places))
    whole = keys.join(touched, key, join_type="left semi")["canal_row"].to_numpy()
    found = np.zeros(len(found), bool)
    found[whole] = True
    return found
