"""What must be true of every input: a DecodeError with file and offset, or an answer.

Never another exception, never a wrong prefix, never memory out of proportion. Crashes and hangs are
seen from outside (runner.py).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from ray_canal.binlog.chunk import EVENT_SILENT, DecodedChunk, RawChunk
from ray_canal.binlog.cutter import ChunkCutter
from ray_canal.binlog.decode import ARENA_FACTOR_MAX, ARENA_FREE_BYTES
from ray_canal.canal.generated import EntryProtocol_pb2 as pb
from ray_canal.errors import CanalError, ConfigError, DecodeError
from ray_canal.filter import TableFilter
from ray_canal.kernels.base.jit import JIT_DISABLED
from ray_canal.model.gtid import GtidSet, MariadbGtid
from ray_canal.schema.ddl.create_table import parse_tables
from ray_canal.schema.ddl.words import (
    MODE_ANSI_QUOTES,
    MODE_NO_BACKSLASH_ESCAPES,
    MODE_REAL_AS_FLOAT,
    Dialect,
)
from ray_canal.schema.event_parser import EventParser
from ray_canal.schema.history import SchemaHistory, place_of
from ray_canal.schema.keeper import SchemaKeeper
from ray_canal.schema.registry import SchemaRegistry
from ray_canal.schema.table_state import StatementSession
from ray_canal.views.arrow import batches
from ray_canal.views.entries import render_entries
from tests.fuzz.corpus import MAGIC, Piece, pieces, short_pieces
from tests.fuzz.mutate import Hostile, hostile
from tests.fuzz.sql import mangled, mangled_filter, mangled_gtids, mangled_script

JOURNAL = "fuzz.000001"
EVENT_BYTES_MAX = 16 << 20
_TEXTS_EACH = 16
"""One input in so many is a text: SQL, GTIDs, a filter."""
_PARTS = (1, 6, 1)
"""Of the binlogs: long ones, which take several times as long; short ones with rows; others."""


class Wrong(AssertionError):
    """The program did what it never may."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Rendered entries with their offsets in the file; how it ended."""

    entries: tuple[tuple[int, bytes], ...]
    error: DecodeError | None
    partial_bytes: int


def rng_of(seed: int, number: int) -> random.Random:
    return random.Random(f"{seed}/{number}")


def input_of(seed: int, number: int) -> tuple[Piece, Hostile]:
    """The binlog of an input, whether or not it is a text's turn."""
    rng = rng_of(seed, number)
    with_rows, others = short_pieces()
    chosen = rng.choices((pieces(), with_rows, others), _PARTS)[0]
    piece = rng.choice(chosen)
    return piece, hostile(piece, rng)


def warm_up() -> None:
    """Compile what intact pieces need, which is nearly everything."""
    if JIT_DISABLED:
        return
    for piece in pieces():
        decoded(piece.data, piece.schema_sql, 1 << 20, random.Random(0))


def check(seed: int, number: int) -> str:
    """Run one input; what it was. Raises Wrong, or whatever the program raised wrongly."""
    if number % _TEXTS_EACH == 0:
        return check_text(rng_of(seed, number))
    piece, given = input_of(seed, number)
    rng = rng_of(seed, -1 - number)
    chunk_bytes = rng.choice((200, 2000, 1 << 20))
    is_known = given.intact_bytes >= 0
    outcome = decoded(given.data, piece.schema_sql, chunk_bytes, rng, keep_entries=is_known)
    if outcome.error is not None:
        _check_place(outcome.error)
    if is_known:
        _check_prefix(piece, given, outcome)
    return f"{piece.name}: {given.what}: {outcome.error or 'an answer'}"


def _check_place(error: DecodeError) -> None:
    if error.journal_name != JOURNAL or error.position is None:
        raise Wrong(f"{type(error).__name__} without its place: {error}")
    # A payload's inner event has no offset of its own; a file's end may lie behind the last one.
    if error.position < len(MAGIC):
        raise Wrong(f"{type(error).__name__} at an impossible offset: {error}")


def _check_prefix(piece: Piece, given: Hostile, outcome: Outcome) -> None:
    """Damage that a checksum sees, or the file's end, costs nothing before it."""
    whole = _intact(piece)
    starts, at = [], len(MAGIC)
    for event in piece.events:
        starts.append(at)
        at += len(event)
    broken = max(s for s in starts if s <= len(MAGIC) + given.intact_bytes)
    # An intact piece may itself end in an error before the damage.
    expected = tuple(e for e in whole.entries if e[0] < broken)
    if outcome.entries != expected:
        raise Wrong(
            f"{len(outcome.entries)} entries, {len(expected)} stand before offset {broken}: "
            f"{outcome.error}"
        )
    ends_between = len(MAGIC) + given.intact_bytes in starts and given.what == "truncate"
    if outcome.error is None and not outcome.partial_bytes and not ends_between:
        raise Wrong(f"damage at offset {broken} was not seen")


@cache
def _intact(piece: Piece) -> Outcome:
    return decoded(piece.data, piece.schema_sql, 1 << 20, random.Random(0))


def decoded(
    data: bytes,
    schema_sql: str,
    chunk_bytes: int,
    rng: random.Random,
    keep_entries: bool = True,
) -> Outcome:
    """The whole path: cut, parse, decode, both views."""
    cutter = ChunkCutter(chunk_bytes, EVENT_BYTES_MAX, contiguous=True)
    cutter.begin_file(JOURNAL)
    # As files are decoded offline.
    parser = EventParser(_given_schemas(schema_sql), SchemaKeeper(None))
    entries: list[tuple[int, bytes]] = []
    error: DecodeError | None = None
    try:
        for raw in _chunks(cutter, data, rng):
            info, chunk = parser.decode_chunk(raw)
            _check_memory(raw, chunk)
            _check_entries(chunk)
            entries += _rendered(chunk) if keep_entries else []
            _check_arrow(chunk)
            if info.failure is not None:
                raise info.failure
    except DecodeError as caught:
        error = caught
    return Outcome(tuple(entries), error, cutter.partial_bytes)


def _chunks(cutter: ChunkCutter, data: bytes, rng: random.Random) -> Iterator[RawChunk]:
    at = 0
    while at < len(data):
        size = rng.choice((1, 100, 4096, len(data)))
        cutter.feed(data[at : at + size])
        at += size
        while (raw := cutter.next()) is not None:
            yield raw
        if rng.random() < 0.1 and (raw := cutter.flush()) is not None:
            yield raw
    while (raw := cutter.flush()) is not None:
        yield raw


def _check_memory(raw: RawChunk, chunk: DecodedChunk) -> None:
    allowed = ARENA_FREE_BYTES + ARENA_FACTOR_MAX * raw.data.size
    if chunk.arena.size > allowed:
        raise Wrong(f"{raw.data.size} bytes became an arena of {chunk.arena.size}")


@cache
def _given_schemas(sql: str) -> SchemaRegistry:
    """Inputs may share them: each parser brings a history of its own."""
    return SchemaRegistry(sql)


def _check_entries(chunk: DecodedChunk) -> None:
    """Each must be a readable Entry."""
    count = chunk.layout.event_count
    rendered = render_entries(chunk, 0, count, gtid=True, time_zone="Europe/Berlin")
    for k in range(len(rendered)):
        entry = pb.Entry.FromString(bytes(rendered[k]))
        if entry.entryType == pb.ROWDATA:
            pb.RowChange.FromString(entry.storeValue)


def _rendered(chunk: DecodedChunk) -> list[tuple[int, bytes]]:
    """Without GTIDs, whose texts depend on where chunks were cut."""
    rendered = render_entries(chunk, 0, chunk.layout.event_count)
    shown = np.flatnonzero(chunk.events["flags"] & EVENT_SILENT == 0)
    positions = chunk.events["position"][shown].tolist()
    texts = [bytes(rendered[k]) for k in range(len(rendered))]
    return list(zip(positions, texts, strict=True))


def _check_arrow(chunk: DecodedChunk) -> None:
    for batch in batches(chunk, 0, chunk.layout.event_count):
        batch.validate(full=True)


def check_text(rng: random.Random) -> str:
    """SQL, GTID sets and filters: an answer, or an error of ours."""
    way = rng.randrange(5)
    if way == 4:
        return _check_script(rng)
    text = (mangled, mangled, mangled_gtids, mangled_filter)[way](rng)
    try:
        if way < 2:
            parse_tables(text)
        elif way == 2:
            rng.choice((GtidSet, MariadbGtid)).parse(text)
        else:
            TableFilter(text).admits("a", "b")
    except ConfigError as error:
        return f"text: {error}"
    except CanalError as error:
        return f"text: {error}"
    return "text: an answer"


def _check_script(rng: random.Random) -> str:
    """DDL that is applied to what is known of tables: it never fails."""
    dialect = Dialect(
        rng.choice((None, True, False)),
        rng.choice((0, 50640, 80036, 101100)),
        rng.choice((0, MODE_ANSI_QUOTES, MODE_NO_BACKSLASH_ESCAPES, MODE_REAL_AS_FLOAT)),
    )
    history = SchemaHistory()
    for number, sql in enumerate(mangled_script(rng)):
        history.apply(place_of(JOURNAL, number), sql, StatementSession("g_ddl", dialect=dialect))
    return "text: an answer"
