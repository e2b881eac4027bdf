"""Trails: digests that do not depend on how a log was cut, and the place behind them elsewhere."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ray_canal.binlog import trail
from ray_canal.binlog.chunk import RawChunk
from ray_canal.binlog.open_transactions import closing_entries
from ray_canal.binlog.trail import (
    DIGEST_CHARACTERS,
    TRAIL_MAX,
    Folding,
    digests_of,
    extended,
    place_behind,
)
from ray_canal.binlog.walked import digest_pieces, names_transactions, walk
from ray_canal.kernels.framing import digest
from ray_canal.kernels.framing import query as q
from ray_canal.log.transaction_buffer import TransactionBuffer
from ray_canal.model.position import EntryPosition
from ray_canal.offline import decode_chunks
from ray_canal.schema.event_parser import EventParser
from ray_canal.schema.registry import SchemaRegistry
from ray_canal.source.start.files_log import FilesLog
from ray_canal.source.start.search import MICROS, Search

FILE = Path(__file__).parents[2] / "golden" / "data" / "mysql56" / "mysql56_strings.binlog"


def test_the_kernels_numbers_are_ours() -> None:
    assert (trail.PRIMES, trail.BASES) == (digest.PRIMES, digest.BASES)
    fields = (digest.END, digest.FIRST, digest.SECOND, digest.BYTES, digest.BEGINS)
    assert fields == (trail.END, trail.FIRST, trail.SECOND, trail.BYTES, trail.BEGINS)


def folded(chunk_bytes: int, file: Path = FILE) -> tuple[list[int], list[int]]:
    """(where each transaction ends, its digest), the file cut into chunks of this size."""
    folding = Folding()
    behind: list[int] = []
    digests: list[int] = []
    for chunk in FilesLog([file]).chunks(file.name, chunk_bytes):
        closed = folding.add(digest_pieces(chunk, walk(chunk)))
        behind += closed.behind.tolist()
        digests += closed.digests.tolist()
    return behind, digests


@pytest.mark.parametrize("chunk_bytes", [200, 700, 2000])
def test_digests_do_not_depend_on_chunks(chunk_bytes: int) -> None:
    whole = folded(1 << 20)
    assert len(whole[0]) == len(set(whole[1])) == 17
    assert folded(chunk_bytes) == whole


@pytest.mark.parametrize("name", ["mysql97/mysql_xa", "mariadb1011/maria_xa"])
def test_xa_transactions_end_as_others(name: str) -> None:
    """XA START was one of its own, and the rows behind it were in none: a trail that ended with
    them led to the place before them."""
    path = FILE.parents[1] / f"{name}.binlog"
    ends = [
        int(entry["position"]) + int(entry["length"])
        for info, _ in decode_chunks([path])
        for entry in info.entries[closing_entries(info)]
    ]
    assert len(ends) > 5
    for chunk_bytes in (200, 1 << 20):
        assert folded(chunk_bytes, path)[0] == ends


def longest_chunk() -> RawChunk:
    return max(FilesLog([FILE]).chunks(FILE.name, 1 << 20), key=lambda chunk: chunk.size_bytes)


def changed(at: int) -> list[int]:
    """The longest chunk's digests with one byte changed; -1: none."""
    chunk = longest_chunk()
    walked = walk(chunk)
    data = chunk.data.copy()
    if at >= 0:
        data[at] ^= 1
    pieces = digest_pieces(RawChunk(chunk.head, data), walked)
    return Folding().add(pieces).digests.tolist()


def test_what_a_digest_sees() -> None:
    walked = walk(longest_chunk())
    events = walked.events
    digests = changed(-1)
    ends = events["position"][events["kind"] == q.KIND_END]
    rows = np.flatnonzero(events["kind"] == q.KIND_ROWS)[1]
    here = int(np.flatnonzero(ends > events["position"][rows])[0])
    start, end = walked.bodies[rows].tolist()
    value = end - 1
    same = [a == b for a, b in zip(changed(value), digests, strict=True)]
    assert same == [k != here for k in range(len(digests))]
    table_id, position = start, start - 6
    assert changed(table_id) == changed(position) == digests


def test_hostile_lengths_end_it() -> None:
    chunk = longest_chunk()
    walked = walk(chunk)
    random_ = random.Random(5)
    for _ in range(300):
        data = chunk.data.copy()
        for start in walked.bodies[walked.events["kind"] == q.KIND_ROWS, 0].tolist():
            data[start + 8 : start + 12] = [
                random_.choice((0, 1, 2, 251, 252, 253, 254, 255)) for _ in range(4)
            ]
        assert len(digest_pieces(RawChunk(chunk.head, data), walked)) <= len(walked.events)


@pytest.mark.parametrize("chunk_bytes", [300, 1 << 20])
def test_a_cursor_anywhere_finds_its_place_by_its_trail_alone(chunk_bytes: int) -> None:
    log = FilesLog([FILE])
    buffer = TransactionBuffer(EntryPosition(FILE.name))
    parser = EventParser(SchemaRegistry(FILE.with_suffix(".schema.sql").read_text()))
    behind, digests = folded(1 << 20)
    for chunk in log.chunks(FILE.name, chunk_bytes):
        walked = walk(chunk)
        assert names_transactions(walked) == bool(len(walked.gtids))
        info, _ = parser.decode_chunk(chunk)
        placed = buffer.add(replace(info, pieces=digest_pieces(chunk, walked)))
        for entry in range(len(info.entries)):
            cursor = placed.resume_after(entry)
            count = sum(end <= cursor.position for end in behind)
            assert digests_of(cursor.trail) == digests[:count][-TRAIL_MAX:]
            if count:
                last_us = cursor.timestamp * MICROS
                found = Search(log).trail(cursor.trail, last_us, 60 * MICROS)
                assert found is not None
                assert (found[0].position, found[1]) == (behind[count - 1], 0)
                assert found[0].trail == cursor.trail or count > TRAIL_MAX
        assert info.failure is None


A, B, C, D, X, Y = range(1, 7)


@pytest.mark.parametrize(
    ("known", "seen", "place"),
    [
        ([A, B, C], [X, A, B, C, D], (4, 0)),
        ([A, B, C], [C], (1, 0)),  # the log began later
        ([A, B, C], [A, B], (2, 1)),  # the last is not there (in another form, say): it comes again
        ([A, B, C], [X, Y], None),
        ([A, B, C], [], None),
        ([A, A, B], [A, A, B, A, B, A], (3, 0)),  # the same again: as many before it as there were
        ([A, A], [A, A, A, A], (2, 0)),
        ([A, B, C], [A, X, B, C], (1, 2)),  # the standby's own, or out of order: from there on
        ([A, B, C], [X, A, C, B], (3, 1)),
        ([A, B], [Y, B, X, A], (2, 1)),
    ],
)
def test_place_behind(known: list[int], seen: list[int], place: tuple[int, int] | None) -> None:
    assert place_behind(known, seen) == place


def test_a_trail_is_bounded() -> None:
    text = ""
    for k in range(40):
        text = extended(text, np.array([k], np.uint64))
    assert digests_of(text) == list(range(24, 40))
    assert extended("", np.arange(40, dtype=np.uint64)) == text
    assert len(text) == TRAIL_MAX * DIGEST_CHARACTERS


def test_nothing_is_lost_whatever_the_other_log_has_in_between() -> None:
    """A log that has all of ours in order, with others among them: none is passed over."""
    random_ = random.Random(7)
    for _ in range(500):
        ours = [random_.randrange(1, 6) for _ in range(30)]
        seen = []
        for digest_ in ours:
            seen += [random_.randrange(100, 120)] * (random_.random() < 0.2)
            seen.append(digest_)
        acked = random_.randrange(1, 30)
        place = place_behind(ours[:acked][-TRAIL_MAX:], seen)
        assert place is not None
        delivered_of_ours = sum(digest_ < 100 for digest_ in seen[: place[0]])
        assert delivered_of_ours <= acked
