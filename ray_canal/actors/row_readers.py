"""Actors that read a snapshot's rows, each over a connection of its own, on any node.

Rows lie on the node that read them until somebody wants them: the store, which owns what an actor
returns, has references. A lost node is a lost actor, or a lost chunk of the log: either makes the
attempt void.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

from ray_canal.actors.log_settings import StageActor
from ray_canal.actors.priority import as_ray_itself
from ray_canal.binlog.chunk import ChunkInfo, DecodedChunk
from ray_canal.config import InstanceConfig, kept_secrets
from ray_canal.destination.fetcher import SMALL_CHUNK_BYTES
from ray_canal.malloc import keep_freed_memory
from ray_canal.snapshot.chunks import Origin, load_kernels
from ray_canal.snapshot.key_numbers import Keys
from ray_canal.snapshot.log_chunks import LogPlace
from ray_canal.snapshot.moment_reader import MomentReader, Part, Read
from ray_canal.snapshot.row_reader import RangeOrder, RangeRead, RowReader


class PlacedRows(NamedTuple):
    """Rows at their place of the log: what goes by value. `chunk` None: it is returned besides."""

    info: ChunkInfo
    chunk: DecodedChunk | None


class Announced(NamedTuple):
    """Rows that were read, and that the actor keeps by this number."""

    number: int
    rows: int


class _Reading(StageActor):
    def __init__(self, instance_json: str) -> None:
        as_ray_itself()
        keep_freed_memory()
        load_kernels()
        self._config = InstanceConfig.model_validate_json(instance_json)

    def remember(self, told: dict[str, str]) -> None:
        """Take the secrets that the configuration refers to."""
        kept_secrets.remember(told)


class RangeRows(_Reading):
    """A `RowReader`: connects when it is first asked."""

    _reader: RowReader | None = None

    def open(self) -> None:
        """Connect. Raises as RowReader does."""
        if self._reader is None:
            self._reader = RowReader(self._config)

    def read(self, order: RangeOrder) -> tuple[RangeRead, int]:
        """Return what was read, and of how many chunks it is. Raises as RowReader.read."""
        self.open()
        assert self._reader is not None
        return self._reader.read(order), self._reader.chunks_of(order.number)

    def place(
        self,
        number: int,
        touched: tuple[Keys, ...],
        doubted: tuple[Keys, ...],
        place: LogPlace,
        count: int,
    ) -> Any:
        """Return what RowReader.place does by value, then each of `count` chunks, None where there
        is none, or it goes by value."""
        assert self._reader is not None
        pieces, is_whole = self._reader.place(number, touched, doubted, place)
        sent = [_sent(*piece) for piece in pieces]
        placed = [by_value for by_value, _ in sent], is_whole
        large = [chunk for _, chunk in sent] + [None] * (count - len(sent))
        return (placed, *large) if count else placed


class MomentRows(_Reading):
    """A `MomentReader`."""

    def __init__(self, instance_json: str) -> None:
        super().__init__(instance_json)
        self._reader = MomentReader(self._config, framed=True)
        self._coming: Iterator[Read] = iter(())
        self._read: dict[int, Read] = {}
        self._numbers = itertools.count()

    def open(self) -> None:
        """Connect. Raises SourceError kinds."""
        self._reader.open()

    def query(self, sql: str) -> list[dict[str, Any]]:
        """Return a statement's rows. Raises SourceError kinds."""
        return self._reader.query(sql)

    def begin(self, part: Part, origin: Origin) -> None:
        """Set the part whose rows `next` reads."""
        self._coming = self._reader.read(part, origin)

    def next(self) -> Announced | None:
        """Read the part's next rows; None: those were all. Raises as MomentReader.read."""
        found = next(self._coming, None)
        if found is None:
            return None
        number = next(self._numbers)
        self._read[number] = found
        return Announced(number, found.rows)

    def place(self, number: int, place: LogPlace) -> tuple[PlacedRows, DecodedChunk | None]:
        """Return rows as a transaction at a place of the log."""
        return _sent(*self._read.pop(number).at(place))


def _sent(info: ChunkInfo, chunk: DecodedChunk) -> tuple[PlacedRows, DecodedChunk | None]:
    """Return what goes by value, and the chunk if it does not."""
    if chunk.arena.size <= SMALL_CHUNK_BYTES:
        return PlacedRows(info, chunk), None
    return PlacedRows(info, None), chunk
