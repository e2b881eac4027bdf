"""Subscribers of one destination on a real server: when it runs, and who gets what."""

from __future__ import annotations

import contextlib
import datetime as dt
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ray_canal as canal
from ray_canal import errors
from ray_canal.actors.ray_internals import Untracked
from ray_canal.client.connector import Connector
from ray_canal.client.transport import RayTransport
from ray_canal.destination.api import DestinationApi, PollRequest
from ray_canal.model.position import EntryPosition
from tests.dumps import purge_all
from tests.integration.test_main_job import deployment
from tests.servers import Server


@pytest.fixture
def stop_after() -> Iterator[list[str]]:
    names: list[str] = []
    yield names
    for name in names:
        if name in canal.status():
            canal.stop(name)


def until(condition: Callable[[], bool], seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.1)


def state(destination: str) -> str:
    return str(canal.status(destination)[destination]["state"])


def ids(connector: canal.Connector, count: int, *, batch_size: int = 1000) -> list[int]:
    """The ids of the next rows, at least `count`, all acked."""
    found: list[int] = []
    deadline = time.monotonic() + 180
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {found}"
        message = connector.get_without_ack(batch_size=batch_size, timeout=0.3)
        if message:
            for batch in message.batches:
                found.extend(batch.column("after").field("id").to_pylist())
            connector.ack(message.id)
    return found


SMALL_LOG = {"buffer_size": 1024, "memunit_bytes": 1024}
ROWS = 8_000


def filled(server: Server, database: str, *transactions: tuple[int, int]) -> None:
    """A table with rows of about 300 bytes; `transactions`: first id and how many."""
    server.execute(
        f"create database if not exists {database}",
        f"create table if not exists {database}.t (id int primary key, v varchar(300))",
        "set cte_max_recursion_depth = 1000000",
        *(
            f"insert into {database}.t with recursive n (id) as (select {first} union all "
            f"select id + 1 from n where id < {first + count - 1}) "
            "select id, repeat('v', 280) from n"
            for first, count in transactions
        ),
    )


def place(destination: str, client_id: int) -> dict[str, Any]:
    found: dict[str, Any] = canal.status(destination)[destination]["store"]["subscribers"]
    return dict(found[str(client_id)])


def log_of(destination: str) -> dict[str, Any]:
    return dict(canal.status(destination)[destination]["store"])


def test_a_transaction_larger_than_the_log_is_one_message(
    mysql97: Server, local_ray: None, tmp_path: Path, stop_after: list[str]
) -> None:
    filled(mysql97, "whole")
    stop_after.append("whole")
    config = deployment(
        mysql97, "whole", tmp_path / "meta.db", store=SMALL_LOG, chunk_bytes=128 << 10
    )
    canal.start(config)
    with canal.connect("whole") as connector:
        connector.subscribe(r"whole\.t", transactions=True)
        filled(mysql97, "whole", (1, ROWS), (ROWS + 1, 3))
        message = connector.get_without_ack(batch_size=1, timeout=60)
        while message.row_count == 0:
            connector.ack(message.id)
            message = connector.get_without_ack(batch_size=1, timeout=60)
        assert message.row_count == ROWS
        assert sum(part.on_disk for part in message.head.parts) > 10
        for _ in range(2):  # it can be read again
            found: list[int] = []
            for batches in message.batches_by_part():
                for batch in batches:
                    found.extend(batch.column("after").field("id").to_pylist())
            assert found == list(range(1, ROWS + 1))
        assert connector.list_batch_ids() == [message.id]
        assert list((tmp_path / "meta.spill" / "whole").rglob("*.segment"))
        connector.ack(message.id)
        assert ids(connector, 3) == [ROWS + 1, ROWS + 2, ROWS + 3]
        assert log_of("whole")["bytes_on_disk"] == 0


@pytest.mark.parametrize("policy", ["spill", "detach"])
def test_a_slow_subscriber_does_not_hold_up_the_others(
    policy: Any, mysql97: Server, local_ray: None, tmp_path: Path, stop_after: list[str]
) -> None:
    database = f"slow_{policy}"
    filled(mysql97, database)
    stop_after.append(database)
    config = deployment(
        mysql97, database, tmp_path / "meta.db", store=SMALL_LOG, chunk_bytes=128 << 10
    )
    canal.start(config)
    fast, slow = canal.connect(database, 1), canal.connect(database, 2)
    fast.subscribe(rf"{database}\.t")
    slow.subscribe(rf"{database}\.t", policy=policy)
    filled(mysql97, database, *((1 + 1000 * k, 1000) for k in range(8)))
    assert ids(fast, ROWS) == list(range(1, ROWS + 1))
    if policy == "spill":
        assert log_of(database)["bytes_on_disk"] > 500_000
    else:
        assert place(database, 2)["detached"]
    first = slow.get_without_ack(batch_size=100, timeout=30)
    assert first
    slow.rollback()
    assert ids(slow, ROWS, batch_size=100) == list(range(1, ROWS + 1))
    # And it goes on with what is new, in the log that all share.
    filled(mysql97, database, (ROWS + 1, 10))
    wanted = list(range(ROWS + 1, ROWS + 11))
    assert ids(fast, 10) == wanted
    assert ids(slow, 10) == wanted
    slow.get_without_ack()
    assert "detached" not in place(database, 2)
    assert log_of(database)["bytes_on_disk"] == 0
    filled(mysql97, database, (ROWS + 11, 1))
    assert ids(slow, 1) == ids(fast, 1) == [ROWS + 11]


def test_a_late_subscriber_starts_where_it_says(
    mysql97: Server, local_ray: None, tmp_path: Path, stop_after: list[str]
) -> None:
    filled(mysql97, "late")
    begin, executed = mysql97.position(), str(
        mysql97.execute("select @@global.gtid_executed")[0][0]
    )
    before = dt.datetime.now(dt.timezone.utc)
    filled(mysql97, "late", (1, 3))
    stop_after.append("late")
    canal.start(deployment(mysql97, "late", tmp_path / "meta.db"))
    with canal.connect("late", 1) as connector:
        connector.subscribe(r"late\.t")
        filled(mysql97, "late", (4, 3))
        assert ids(connector, 3) == [4, 5, 6]
    filled(mysql97, "late", (7, 3))
    late = {number: canal.connect("late", number) for number in (2, 3, 4, 5, 6)}
    late[2].subscribe(r"late\.t", start=EntryPosition(*begin))
    late[3].subscribe(r"late\.t", start=executed)
    late[4].subscribe(r"late\.t", start="head")
    late[6].subscribe(r"late\.t", start=before)
    until(lambda: log_of("late")["entries"] >= 5)
    late[5].subscribe(r"late\.t", start="tail")
    assert ids(late[2], 9) == ids(late[3], 9) == list(range(1, 10))
    assert ids(late[6], 9) == list(range(1, 10))
    assert ids(late[4], 3)[-3:] == [7, 8, 9]
    filled(mysql97, "late", (10, 1))
    for number in (2, 3, 4, 5, 6):
        assert ids(late[number], 1) == [10], number
    for number in (2, 3, 6):
        until(lambda n=number: not late[n].get_without_ack() and "detached" not in place("late", n))
    with pytest.raises(errors.PositionNotFound):
        canal.connect("late", 7).subscribe(start=EntryPosition("nothing.000001"))
    with pytest.raises(errors.ConfigError, match="no time zone"):
        canal.connect("late", 7).subscribe(start=dt.datetime(2026, 1, 1))


def test_an_instance_rests_while_nobody_subscribes(
    mysql97: Server, local_ray: None, tmp_path: Path, stop_after: list[str]
) -> None:
    mysql97.execute("create database if not exists rst", "create table rst.t (id int primary key)")
    stop_after.append("rests")
    canal.start(deployment(mysql97, "rests", tmp_path / "meta.db", runs="while_subscribed"))
    assert state("rests") == "idle"
    with canal.connect("rests") as connector:
        with pytest.raises(errors.NotSubscribed, match="should subscribe first"):
            connector.get_without_ack()
        for number in (1, 2):
            connector.subscribe(r"rst\.t")
            assert state("rests") == "running"
            mysql97.execute(f"insert into rst.t values ({number})")
            assert ids(connector, 1) == [number]
            connector.unsubscribe()
            until(lambda: state("rests") == "idle")


def polled(done: tuple[int, int]) -> PollRequest:
    return PollRequest(client_id=5, batch_size=1, timeout=60.0, done=done)


def test_the_call_for_the_next_message_acks_the_last_one_and_may_come_twice(
    mysql97: Server, local_ray: None, tmp_path: Path, stop_after: list[str]
) -> None:
    filled(mysql97, "acked")
    stop_after.append("acked")
    canal.start(deployment(mysql97, "acked", tmp_path / "meta.db"))
    calls = RayTransport("acked")
    with Connector(calls, 5) as connector:
        connector.subscribe(r"acked\.t")
        filled(mysql97, "acked", (1, 9))
        messages = connector.messages(1)
        first = next(messages)
        assert connector.list_batch_ids() == [first.id]
        second = next(messages)
        assert connector.list_batch_ids() == [second.id]
        done = first.id, first.head.epoch
        # As another call of the same connector.
        third = calls.call(DestinationApi.poll, polled(done))
        assert connector.list_batch_ids() == [second.id, third.id]
        too_soon = third.id, third.epoch
        # An ack out of order is refused; the poll says so if that was before its answer.
        with contextlib.suppress(errors.BatchNotFirst):
            calls.call(DestinationApi.poll, polled(too_soon))
        assert connector.list_batch_ids()[:2] == [second.id, third.id]
        messages.close()  # in the midst of the second one
        assert connector.list_batch_ids() == []
        assert next(connector.messages(1)).id > third.id


def test_messages_can_be_read_after_the_log_has_let_them_go(
    mysql97: Server, local_ray: None, tmp_path: Path, stop_after: list[str]
) -> None:
    """A loop's large chunks are untracked: nobody but the loop has them once they are acked."""
    stop_after.append("kept")
    given = deployment(mysql97, "kept", tmp_path / "meta.db")
    given["instance"][0]["store"] = SMALL_LOG
    canal.start(given)
    with canal.connect("kept", 5) as connector:
        connector.subscribe(r"kept\.t")
        filled(mysql97, "kept", *((first, ROWS // 4) for first in range(1, 4 * ROWS, ROWS // 4)))
        kept = []
        rows = untracked = 0
        for message in connector.messages(1024):
            assert message.head.untracked
            untracked += sum(isinstance(part.payload, Untracked) for part in message.head.parts)
            kept.append(message)
            rows += message.row_count
            if rows >= 4 * ROWS:
                break
        assert untracked > 0
        assert connector.list_batch_ids() == []
        found = [
            number
            for message in kept
            for batch in message.batches
            for number in batch.column("after").field("id").to_pylist()
        ]
        assert found == list(range(1, 4 * ROWS + 1))


def test_a_connector_that_has_not_subscribed_gets_nobodys_batches(
    mysql97: Server, local_ray: None, tmp_path: Path, stop_after: list[str]
) -> None:
    """D9, C4: it is told to subscribe; who was replaced cannot end its successor's subscription."""
    stop_after.append("shared")
    filled(mysql97, "shared")
    canal.start(deployment(mysql97, "shared", tmp_path / "meta.db"))
    with canal.connect("shared", 5) as one, canal.connect("shared", 5) as other:
        one.subscribe(r"shared\.t")
        filled(mysql97, "shared", (1, 3))
        for call in (
            other.get_without_ack, other.get, other.list_batch_ids, other.rollback,
            other.unsubscribe, lambda: next(iter(other)), lambda: other.ack(1),
        ):  # fmt: skip
            with pytest.raises(errors.NotSubscribed, match="this connector has not"):
                call()
        assert ids(one, 3) == [1, 2, 3]
        other.subscribe(r"shared\.t")
        with pytest.raises(errors.SubscriberReplaced):
            one.unsubscribe()
        filled(mysql97, "shared", (4, 1))
        assert ids(other, 1) == [4]


def test_a_purged_cursor_is_its_subscribers_failure_alone(
    mysql97: Server, local_ray: None, tmp_path: Path, stop_after: list[str]
) -> None:
    """b2: a detached subscriber whose binlog is gone; the others go on through any restart."""
    stop_after.append("stale")
    filled(mysql97, "stale")
    config = deployment(mysql97, "stale", tmp_path / "meta.db")
    canal.start(config)
    stale, well = canal.connect("stale", 7), canal.connect("stale", 8)
    for connector in (stale, well):
        connector.subscribe(r"stale\.t", policy="detach")
    filled(mysql97, "stale", (1, 3))
    assert ids(stale, 3) == ids(well, 3) == [1, 2, 3]
    for first in (4, 7):
        filled(mysql97, "stale", (first, 3))
        assert ids(well, 3) == [first, first + 1, first + 2]
        if first == 4:
            purge_all(mysql97)
    canal.stop("stale")
    filled(mysql97, "stale", (10, 3))
    canal.start(config)
    assert ids(well, 3) == [10, 11, 12]
    for call in (stale.get_without_ack, lambda: stale.subscribe(r"stale\.t")):
        with pytest.raises(errors.PositionPurged, match="ray-canal unsubscribe stale") as caught:
            call()
        assert caught.value.lost is not None
    assert "PositionPurged" in place("stale", 7)["failure"]
    assert place("stale", 8)["failure"] is None
    canal.unsubscribe("stale", 7)
    stale.subscribe(r"stale\.t", start="tail")
    filled(mysql97, "stale", (13, 1))
    assert ids(stale, 1) == ids(well, 1) == [13]
