"""A subscription as micro-batches: cut exactly, acked when committed, through every kill; no Spark.

`Engine` does what Spark's MicroBatchExecution does with a source, an offset log and a commit log.
"""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from ray_canal.client.log_end import Reach
from ray_canal.errors import CanalError, ConfigError, InstanceRestarted, UnsupportedEvent
from ray_canal.spark import log_stream
from ray_canal.spark.chunks import MemoryFile
from ray_canal.spark.log_offset import offset_place, offset_text
from ray_canal.spark.log_stream import LogStream, Sizes, Table
from ray_canal.spark.stream_schema import peeked_schema
from ray_canal.views.row_places import RowPlace
from tests.spark.conftest import ITEM, Message, change_batch, inserts
from tests.spark.test_ahead import wait_until
from tests.spark.test_chunks import read

EVENTS = [(1000 + 100 * n, 1 + n % 5) for n in range(40)]
"""(position, rows) of each event."""
ALL = list(range(sum(rows for _, rows in EVENTS)))


def event_batches() -> list[pa.RecordBatch]:
    found, first = [], 0
    for position, count in EVENTS:
        found.append(inserts(first, count, position=position))
        first += count
    return found


class Subscription:
    """A connector over batches, whose messages end anywhere, as `cut` says: rows of each."""

    def __init__(self, batches: list[pa.RecordBatch], seed: int = 0, rows_max: int = 12) -> None:
        self.rows = [batch.slice(row, 1) for batch in batches for row in range(batch.num_rows)]
        self.chance = random.Random(seed)
        self.rows_max = rows_max
        self.acked = self.given = 0
        self.outstanding: dict[int, int] = {}  # batch id: row that it ends at
        self.last_id = 0
        self.ended = True
        self.exact = False
        self.restarts_at: set[int] = set()
        self.mark = ""

    def get_without_ack(self, batch_size: int = 1000, timeout: float | None = None) -> Message:
        if self.given == len(self.rows):
            return Message(-1, finished=self.ended)
        count = self.rows_max if self.exact else self.chance.randint(1, self.rows_max)
        end = min(len(self.rows), self.given + count)
        self.last_id += 1
        found = Message(self.last_id, self.rows[self.given : end])
        self.given = self.outstanding[self.last_id] = end
        return found

    def ack(self, batch_id: int, mark: str = "") -> None:
        if batch_id in self.restarts_at:
            self.rollback()
            raise InstanceRestarted("restarted")
        assert batch_id == min(self.outstanding)
        self.acked = self.outstanding.pop(batch_id)
        self.mark = mark or self.mark

    def rollback(self) -> None:
        self.outstanding.clear()
        self.given = self.acked


class Killed(Exception):
    pass


class Engine:
    """A query's checkpoint and its sink, which writes each batch id whole."""

    def __init__(self) -> None:
        self.offsets: list[str] = []
        self.commits = 0
        self.sink: dict[int, list[int]] = {}
        self.planned_twice = 0
        self.steps = 0
        self.kill_at = -1

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.kill_at:
            raise Killed

    def run(self, stream: LogStream) -> None:
        """Until there is no news."""
        try:
            if len(self.offsets) > self.commits:
                self.planned_twice += 1
                self.batch(stream)
            while True:
                start = self.offsets[-1] if self.offsets else stream.initial()
                self.step()
                end = stream.latest(start)
                self.step()
                if end == start:
                    if stream._finished:
                        return
                    continue
                self.offsets.append(end)
                self.step()
                if self.commits:
                    stream.commit(self.offsets[self.commits - 1])
                self.step()
                self.batch(stream)
        finally:
            stream.close()

    def batch(self, stream: LogStream) -> None:
        number = len(self.offsets) - 1
        start = self.offsets[number - 1] if number else stream.initial()
        places = stream.plan(start, self.offsets[number])
        self.step()
        ids = [row["after"]["id"] for at in places for part in read(at) for row in part.to_pylist()]
        if number in self.sink:
            assert ids == self.sink[number], "the same batch has other rows"
        self.sink[number] = ids
        self.step()
        self.commits = number + 1
        self.step()

    @property
    def written(self) -> list[int]:
        return [each for number in sorted(self.sink) for each in self.sink[number]]


def stream_of(
    subscription: Any, bytes_max: int = 3000, schema: pa.Schema | None = None
) -> LogStream:
    subscription.rollback()  # as a new connection does
    if schema is None:
        schema = peeked_schema(subscription, "shop.item", 1000, 5.0, "error")
    key = tuple(json.loads((schema.metadata or {}).get(b"canal.key", b"[]")))
    return LogStream(
        subscription,
        Table("shop.item", schema, key=key),
        Sizes(MemoryFile, 2, bytes_max=bytes_max),
        mark=lambda: subscription.mark,
    )


def test_all_rows_once_and_acked_when_committed() -> None:
    subscription, engine = Subscription(event_batches()), Engine()
    engine.run(stream_of(subscription))
    assert engine.written == ALL
    assert len(engine.offsets) > 5
    # The last batch is acked when Spark asks what is newer.
    assert subscription.acked == len(ALL)


@pytest.mark.parametrize("seed", range(6))
def test_killed_at_any_step_each_row_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages are cut otherwise after each kill, planned batches are not. In half of the runs all
    messages are fetched ahead, as large ones are."""
    monkeypatch.setattr(log_stream, "_LARGE_BYTES", seed % 2 << 20)
    chance = random.Random(seed)
    subscription, engine = Subscription(event_batches(), seed), Engine()
    kills = 0
    while True:
        subscription.rows_max = chance.choice([2, 7, 40])
        engine.kill_at = engine.steps + chance.randint(1, 14)
        try:
            engine.run(stream_of(subscription, chance.choice([1, 2000, 9000]), schema_of_items()))
            break
        except Killed:
            kills += 1
            written = engine.written
            assert written == ALL[: len(written)]
    assert engine.written == ALL
    assert kills > 3
    assert engine.planned_twice > 0


def test_each_step_of_one_batch() -> None:
    """A kill at every single step of the first batches."""
    for step in range(1, 22):
        subscription, engine = Subscription(event_batches(), step), Engine()
        engine.kill_at = step
        with pytest.raises(Killed):
            engine.run(stream_of(subscription))
        engine.run(stream_of(subscription))
        assert engine.written == ALL, step


def test_a_restart_of_the_destination_is_no_error() -> None:
    subscription, engine = Subscription(event_batches(), 3), Engine()
    subscription.restarts_at = {3, 9, 30}
    engine.run(stream_of(subscription, schema=schema_of_items()))
    assert engine.written == ALL


def test_a_restart_after_the_end_of_files_was_seen() -> None:
    """What was fetched and not planned comes again, though the source had ended."""
    subscription, engine = Subscription(event_batches(), rows_max=40), Engine()
    subscription.exact = True
    stream = stream_of(subscription, bytes_max=1, schema=schema_of_items())
    wait_until(lambda: stream._fetch(0.1) is None and stream._finished)
    subscription.restarts_at = {2}
    engine.run(stream)
    assert engine.written == ALL


def test_a_query_on_a_table_without_changes_has_an_empty_first_batch() -> None:
    """Spark plans it, for it has no offset yet."""
    subscription = Subscription([])
    subscription.ended = False
    stream = stream_of(subscription, schema=schema_of_items())
    start = stream.initial()
    assert stream.latest(start) == start
    assert stream.plan(start, start) == []
    stream.close()


def schema_of_items() -> pa.Schema:
    return peeked_schema(Subscription(event_batches()), "shop.item", 1000, 5.0, "error")


def test_a_micro_batch_has_what_has_come_since_its_first_message_was_fetched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_stream, "_SINCE_S", 60.0)
    subscription = Subscription(event_batches(), rows_max=1)
    subscription.ended, subscription.exact = False, True
    stream = stream_of(subscription, bytes_max=1 << 20, schema=schema_of_items())
    wait_until(lambda: stream._ahead.is_ready)
    assert subscription.given == 1
    subscription.rows_max = len(ALL)
    end = stream.latest(stream.initial())
    places = stream.plan(stream.initial(), end)
    assert sum(part.num_rows for at in places for part in read(at)) == len(ALL)
    stream.close()


def test_a_micro_batch_has_a_limit_but_always_a_message() -> None:
    subscription = Subscription(event_batches(), rows_max=5)
    stream = stream_of(subscription, bytes_max=1)
    end = stream.latest(stream.initial())
    assert len([row for at in stream.plan(stream.initial(), end) for row in read(at)]) <= 5
    stream.close()


def test_messages_without_rows_of_the_table_are_acked() -> None:
    others = [inserts(n, 1, table="other") for n in range(5)]
    subscription = Subscription([*others, inserts(0, 1, position=5000)], rows_max=1)
    stream = stream_of(subscription, schema=schema_of_items())
    start = stream.initial()
    for _ in range(100):
        end = stream.latest(start)
        if end != start:
            break
    assert subscription.acked == 5
    assert offset_place(end).position == 5000
    stream.close()


WIDER = pa.struct([("id", pa.uint32()), ("name", pa.string()), ("price", pa.int32())])


def wider(first: int, count: int, position: int) -> pa.RecordBatch:
    images = [{"id": n, "name": "", "price": n} for n in range(first, first + count)]
    return change_batch([("INSERT", None, image) for image in images], WIDER, position=position)


@pytest.mark.parametrize("rows_max", [3, 50])
def test_a_ddl_ends_the_query_and_the_next_one_has_the_new_columns(rows_max: int) -> None:
    batches = [inserts(0, 10), wider(10, 5, 2000)]
    subscription, engine = Subscription(batches, 1, rows_max), Engine()
    subscription.exact = True
    if rows_max == 3:
        with pytest.raises(ConfigError, match=r"other columns .* start it again, with the same"):
            engine.run(stream_of(subscription))
        assert engine.written == list(range(len(engine.written)))
    engine.run(stream_of(subscription))
    assert engine.written == list(range(15))


def test_columns_that_go_are_null_and_no_error() -> None:
    narrower = pa.struct([("id", pa.uint8())])
    later = change_batch([("INSERT", None, {"id": 3})], narrower, position=2000)
    engine = Engine()
    engine.run(stream_of(Subscription([inserts(0, 3), later]), schema=schema_of_items()))
    assert engine.written == [0, 1, 2, 3]


def test_a_truncate_is_a_row_and_a_statement_an_error() -> None:
    told = change_batch([("STATEMENT", None, None)], ITEM, position=2000)
    told = told.replace_schema_metadata({**told.schema.metadata, b"canal.sql": b"UPDATE item"})
    stream = stream_of(Subscription([inserts(0, 3), told], rows_max=1), schema=schema_of_items())
    first = stream.latest(stream.initial())
    for _ in range(100):
        if offset_place(first).row < 2:
            first = stream.latest(first)
    assert offset_place(first).row == 2
    with pytest.raises(UnsupportedEvent, match="UPDATE item"):
        stream.latest(first)
    stream.close()
    assert {"sql", "renamed_from", "renamed_to"} <= set(schema_of_items().names)


def test_what_is_available_ends() -> None:
    class Endless(Subscription):
        def get_without_ack(self, *arguments: Any) -> Message:
            if self.given == len(self.rows):
                n = len(self.rows)
                self.rows += [inserts(at, 1, position=90_000 + at) for at in (n, n + 1, n + 2)]
            return super().get_without_ack(*arguments)

    subscription = Endless(event_batches())
    subscription.ended = False
    here = RowPlace(0, 1, 90_000, -1)
    stream = LogStream(
        subscription,
        Table("shop.item", schema_of_items()),
        Sizes(MemoryFile, bytes_max=3000),
        lambda: Reach(here, here),
    )
    stream.only_available()
    start, found = stream.initial(), []
    while (end := stream.latest(start)) != start:
        assert len(found) < 2 * len(ALL)
        for at in stream.plan(start, end):
            found += [row["after"]["id"] for part in read(at) for row in part.to_pylist()]
        start = end
    assert found == list(range(len(found)))
    assert len(found) > len(ALL)
    stream.close()


def test_what_is_available_waits_for_the_log_to_catch_up() -> None:
    end_place = RowPlace(0, 1, 90_000, -1)
    answers = iter(Reach(RowPlace(0, 1, at, -1), end_place) for at in (4, 5000, 90_000, 90_000))
    subscription = Subscription([inserts(0, 3)])
    subscription.ended = False
    table = Table("shop.item", schema_of_items())
    stream = LogStream(subscription, table, Sizes(MemoryFile), lambda: next(answers))
    stream.only_available()
    end = stream.latest(stream.initial())
    assert offset_place(end).row == 2
    assert stream.latest(end) == end
    assert next(answers, None) is None
    stream.close()


def test_planned_rows_that_are_gone_are_told() -> None:
    subscription = Subscription([inserts(0, 3)])
    stream = stream_of(subscription)
    beyond = offset_text(RowPlace(0, 7, 99, 0, "mysql-bin.000007"))
    with pytest.raises(CanalError, match="the log does not give them to this subscriber"):
        stream.plan(stream.initial(), beyond)
    stream.close()


@pytest.mark.parametrize("acked", [1, 3, 4])
def test_planned_rows_that_another_reader_has_acked_are_told(acked: int) -> None:
    """With a row behind them in the log, too."""
    batches = [inserts(n, 1, position=1000 + n) for n in range(6)]
    stream = stream_of(Subscription(batches, rows_max=1), schema=schema_of_items())
    planned = offset_text(RowPlace(0, 1, 1002, 0, "mysql-bin.000001"))
    assert len(stream.plan(stream.initial(), planned)) == 3
    stream.close()
    later = stream_of(Subscription(batches[acked:], rows_max=2), schema=schema_of_items())
    if acked < 3:
        assert later.plan(later.initial(), planned)  # its last row is there
    else:
        with pytest.raises(CanalError, match="another reader has acked them"):
            later.plan(later.initial(), planned)
    later.close()


def test_rows_that_come_again_under_new_ids_are_not_missed() -> None:
    """Those of another timeline, and those that a snapshot reads again."""
    place = RowPlace(0, 1, 900, 0, "mysql-bin.000001")
    stream = stream_of(Subscription(event_batches()), schema=schema_of_items())
    assert stream.plan(stream.initial(), offset_text(place, is_read=True)) == []
    earlier = offset_text(place._replace(timeline=-1))
    assert stream.plan(stream.initial(), earlier) == []
    stream.close()
    # A consistent snapshot that begins again replaces what the subscriber has.
    emptied = change_batch([("TRUNCATE", None, None)], ITEM)
    stream = stream_of(Subscription([emptied, *event_batches()[1:]]), schema=schema_of_items())
    assert stream.plan(stream.initial(), offset_text(place)) == []
    stream.close()


def test_a_query_that_is_stopped_waits_for_nothing() -> None:
    subscription = Subscription([])
    subscription.ended = False
    stream = stream_of(subscription, schema=schema_of_items())  # nobody says where the log ends
    stream.only_available()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(stream.latest, stream.initial())
        wait_until(lambda: stream._lock.locked())
        stream.close()
        with pytest.raises(CanalError, match="the query was stopped"):
            asked.result(30)
