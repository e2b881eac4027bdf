"""TransactionBuffer: where each entry resumes, GTID sets, order, empty transactions."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from ray_canal.binlog.chunk import GTID, GTID_ANONYMOUS, GTID_MARIADB, GTID_MYSQL
from ray_canal.errors import InstanceError
from ray_canal.log.log_order import LogOrder
from ray_canal.log.subscriber import consumed
from ray_canal.log.thinning import THIN_COUNT
from ray_canal.log.transaction_buffer import TransactionBuffer, gtid_set_after
from ray_canal.model.position import EntryPosition
from tests.unit.log.made_log import UUID, MadeLog, info_of

START = EntryPosition("binlog.000001")


@pytest.mark.parametrize("seed", range(6))
def test_resume_positions_are_those_worked_out_the_slow_way(seed: int) -> None:
    random_ = random.Random(seed)
    log = MadeLog()
    log.grow(random_, 30)
    buffer = TransactionBuffer(START)
    count = 0
    for info in log.chunks(random_):
        chunk = buffer.add(info)
        resumes = zip(*(each.tolist() for each in chunk.resumes()), strict=True)
        for entry, (position, row, inside) in enumerate(resumes):
            count += 1
            found, wanted = chunk.resume_after(entry), log.cursor_after(count)
            assert (found, found.gtid, found.timestamp) == (
                wanted,
                wanted.gtid,
                wanted.timestamp,
            ), f"seed {seed}: behind entry {count}"
            assert (position, row, inside) == (found.position, found.row, found.entry)
    assert count == len(log.entries)


def test_gtid_set_before_a_chunk_leaves_the_open_transaction_out() -> None:
    log = MadeLog()
    log.transaction(1)
    log.transaction(1, 1)
    buffer = TransactionBuffer(START, f"{UUID}:1-0")
    first = buffer.add(info_of(log.entries[:5], 0, 4))
    second = buffer.add(info_of(log.entries[5:], 1))
    assert (first.gtid_set, second.gtid_set) == (f"{UUID}:1-0", f"{UUID}:1")
    assert second.resume_after(1).gtid == f"{UUID}:1-2"


def test_a_gap_or_a_repeat_in_the_order_is_refused() -> None:
    log = MadeLog()
    log.transaction(1)
    for second in (0, 2):
        buffer = TransactionBuffer(START)
        buffer.add(info_of(log.entries, 0))
        with pytest.raises(InstanceError, match=f"chunk {second} follows chunk 0"):
            buffer.add(info_of(log.entries, second))


def test_rows_of_one_statement_without_begin_do_not_resume_between() -> None:
    log = MadeLog()
    log.xa_branch()
    chunk = TransactionBuffer(START).add(info_of(log.entries, 0, 4))
    position, rows, _ = chunk.resumes()
    assert rows.tolist() == [2, 4, 6, 0]
    assert set(position[:3].tolist()) == {197}  # its GTID event


def gtid(flavor: int, gno: int, *, sid: int = 1, domain: int = 0, tag: bytes = b"") -> np.ndarray:
    record = np.zeros(1, GTID)
    record["flavor"], record["gno"], record["domain"], record["tag"] = flavor, gno, domain, tag
    record["sid"] = sid
    record["server_id"] = 7
    return record


def test_gtid_sets_of_mixed_sources_and_tags() -> None:
    one, two = "01010101-0101-0101-0101-010101010101", "02020202-0202-0202-0202-020202020202"
    gtids = np.concatenate(
        [
            gtid(GTID_MYSQL, 5),
            gtid(GTID_MYSQL, 1, sid=2),
            gtid(GTID_MYSQL, 6),
            gtid(GTID_MYSQL, 9),
            gtid(GTID_MYSQL, 2, sid=2),
            gtid(GTID_MYSQL, 1, tag=b"t"),
            gtid(GTID_ANONYMOUS, 3),
        ]
    )
    assert gtid_set_after(f"{one}:1-4", gtids) == f"{one}:1-6:9:t:1,{two}:1-2"
    assert gtid_set_after("", gtid(GTID_ANONYMOUS, 3)) == ""
    assert gtid_set_after("kept", gtids[:0]) == "kept"


def test_mariadb_keeps_the_last_of_each_domain() -> None:
    gtids = np.concatenate([gtid(GTID_MARIADB, n, domain=d) for n, d in ((8, 0), (3, 5), (9, 0))])
    assert gtid_set_after("0-1-7,2-1-1", gtids) == "0-7-9,2-1-1,5-7-3"


def empties(count: int, seconds_apart: int = 0) -> MadeLog:
    log = MadeLog()
    for _ in range(count):
        log.transaction()
        log.timestamp += seconds_apart
    return log


def test_of_empty_transactions_one_passes_in_five_seconds() -> None:
    log = empties(20, seconds_apart=1)
    chunk = TransactionBuffer(START).add(info_of(log.entries, 0, 4))
    assert chunk.visible is not None
    # The first, then each that is more than 5 s behind the one that passed.
    assert np.flatnonzero(chunk.visible).tolist() == [0, 1, 12, 13, 24, 25, 36, 37]


def test_of_empty_transactions_one_passes_in_8192_across_chunks() -> None:
    log = empties(THIN_COUNT + 3)
    buffer = TransactionBuffer(START)
    passed: list[int] = []
    for sequence, at in enumerate(range(0, len(log.entries), 6000)):
        chunk = buffer.add(info_of(log.entries[at : at + 6000], sequence))
        assert chunk.visible is not None
        passed += (np.flatnonzero(chunk.visible) + at).tolist()
    again = 2 * (THIN_COUNT + 1)
    assert passed == [0, 1, again, again + 1]


def test_transactions_with_entries_are_never_thinned() -> None:
    log = MadeLog()
    log.transaction(1)
    log.begin()
    log.statement()
    log.end()
    assert TransactionBuffer(START).add(info_of(log.entries)).visible is None
    kept = TransactionBuffer(START, thin_empty_transactions=False)
    assert kept.add(info_of(empties(3).entries)).visible is None


@pytest.mark.parametrize("gtids", [True, False])
def test_a_place_found_at_a_gtid_event_is_before_its_transaction(gtids: bool) -> None:
    """A9, b15: between a file's start and its first transaction are events of none. A cursor that a
    search has placed at the first transaction had that one counted as consumed."""
    log = MadeLog()
    log.transaction(2)
    log.rotate()
    log.transaction(3)
    buffer = TransactionBuffer(START)
    buffer.add(info_of(log.entries[:3], 0, 4))
    info = info_of(log.entries[3:], 1, 4)
    if not gtids:
        info = replace(info, gtids=info.gtids[:0])
        info.entries["transaction"] = -1
    first = log.entries[3]
    place = EntryPosition("binlog.000002", first.begin if gtids else first.position)
    chunk = buffer.add(info)
    assert not consumed(chunk, place, LogOrder(START)).any()
    assert consumed(chunk, chunk.resume_after(1), LogOrder(START)).tolist() == [True, True, False]
