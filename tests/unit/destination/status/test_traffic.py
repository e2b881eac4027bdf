"""Rows and bytes by table, and the largest transactions, against a count one by one."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from ray_canal.binlog.chunk import ENTRY, EVENT_CLOSES, ChunkHead, ChunkInfo
from ray_canal.destination.status.traffic import TABLES_MAX, TRANSACTIONS_MAX, Traffic

FILE = "mysql-bin.000001"
TABLES = tuple(("shop", f"t{i}") for i in range(5))
Entry = tuple[int, int, int, int, int, int]
"""(position, length, rows, table, flags, timestamp)"""


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def chunk(entries: list[Entry], tables: tuple[tuple[str, str], ...] = TABLES) -> ChunkInfo:
    made = np.zeros(len(entries), ENTRY)
    for i, (position, length, rows, table, flags, timestamp) in enumerate(entries):
        made[i]["position"], made[i]["length"], made[i]["rows"] = position, length, rows
        made[i]["table"], made[i]["flags"], made[i]["timestamp"] = table, flags, timestamp
    head = ChunkHead.__new__(ChunkHead)
    object.__setattr__(head, "journal_name", FILE)
    return ChunkInfo(
        head=head, size_bytes=0, arena_bytes=0, entries=made, gtids=np.zeros(0), tables=tables
    )


def log(seed: int) -> list[Entry]:
    """Random transactions: BEGIN, rows, END."""
    rng, position = random.Random(seed), 4
    made: list[Entry] = []
    for _ in range(rng.randrange(5, 60)):
        inner = [(rng.randrange(1, 50), rng.randrange(5), 0) for _ in range(rng.randrange(4))]
        for rows, table, flags in [(0, -1, 0), *inner, (0, -1, EVENT_CLOSES)]:
            length = rng.randrange(20, 9000)
            made.append((position, length, rows, table, flags, 1000 + len(made)))
            position += length
    return made


def counted(entries: list[Entry]) -> list[dict[str, Any]]:
    """Every transaction, one by one; the largest first."""
    found, first, rows, size = [], 0, 0, 0
    for position, length, count, _, flags, timestamp in entries:
        first = first or position
        rows, size = rows + count, size + length
        if flags & EVENT_CLOSES:
            place = f"{FILE}:{first}"
            found.append({"position": place, "rows": rows, "bytes": size, "time": timestamp})
            first, rows, size = 0, 0, 0
    return sorted(found, key=lambda each: -int(str(each["bytes"])))


def test_any_cut_into_chunks_gives_what_counting_gives() -> None:
    for seed in range(200):
        entries, rng, traffic = log(seed), random.Random(seed), Traffic(Clock())
        left = entries
        while left:
            count = rng.randrange(1, 20)
            traffic.note(chunk(left[:count]))
            left = left[count:]
        every = counted(entries)
        assert traffic.transactions == len(every)
        sizes = [each["bytes"] for each in every[:TRANSACTIONS_MAX]]
        assert [each["bytes"] for each in traffic.largest()] == sizes
        assert all(each in every for each in traffic.largest())
        by_table = {each["table"]: (each["rows"], each["bytes"]) for each in traffic.tables()}
        for index, name in enumerate(TABLES):
            mine = [each for each in entries if each[3] == index]
            wanted = sum(each[2] for each in mine), sum(each[1] for each in mine)
            assert by_table.get(".".join(name), (0, 0)) == wanted


def test_rates_are_of_the_last_seconds() -> None:
    clock = Clock()
    traffic = Traffic(clock)
    clock.now += 60
    traffic.note(chunk([(4, 1000, 50, 0, 0, 1), (1004, 100, 1, 1, EVENT_CLOSES, 1)]))
    first, second = traffic.tables()
    told = first["table"], first["rows_per_second"], first["bytes_per_second"]
    assert told == ("shop.t0", 5.0, 100.0)
    assert second["rows"] == 1
    clock.now += 11
    traffic.note(chunk([(1104, 10, 1, 1, EVENT_CLOSES, 1)]))
    assert [each["table"] for each in traffic.tables()] == ["shop.t1", "shop.t0"]
    assert traffic.tables()[1]["rows_per_second"] == 0.0
    clock.now += 3601
    assert traffic.largest() == []


def test_very_many_tables_cost_no_memory_without_end() -> None:
    traffic = Traffic(Clock())
    for first in range(0, 20_000, 500):
        tables = tuple(("s", f"t{i}") for i in range(first, first + 500))
        traffic.note(chunk([(4, 10 + i, 1, i, EVENT_CLOSES, 1) for i in range(500)], tables))
    assert len(traffic._totals) <= 4096
    assert len(traffic.tables()) == TABLES_MAX


def test_a_transaction_that_was_open_is_forgotten_when_the_log_begins_again() -> None:
    traffic = Traffic(Clock())
    traffic.note(chunk([(4, 5000, 9, 0, 0, 1)]))
    traffic.begin()
    traffic.note(chunk([(4, 100, 1, 0, EVENT_CLOSES, 1)]))
    assert [each["bytes"] for each in traffic.largest()] == [100]


def test_events_of_one_compressed_event_share_its_length() -> None:
    info = chunk([(4, 900, 5, 0, 0, 1), (4, 900, 7, 1, 0, 1), (4, 900, 0, -1, EVENT_CLOSES, 1)])
    info.entries["inner"] = [80, 300, 700]
    traffic = Traffic(Clock())
    traffic.note(info)
    assert [each["bytes"] for each in traffic.tables()] == [450, 450]
    assert traffic.largest()[0]["bytes"] == 900
    assert traffic.largest()[0]["rows"] == 12
