"""What every meta backend and every schema store must do, as tests: subclass `Conformance` and give
it a `backend` and a `reopen`, or `SchemaConformance` and give it a `store`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from ray_canal.errors import EpochLost, Fenced
from ray_canal.meta.backend import MetaBackend
from ray_canal.meta.manager import MetaManager, SubscriberMeta
from ray_canal.meta.schema_store import SchemaStore, chunk_key
from ray_canal.model.position import EntryPosition, LogPosition, SourceIdentity
from ray_canal.model.schema_record import Quarantined, QuarantinedChunk, SchemaRecord
from ray_canal.model.snapshot_ledger import Ledger
from ray_canal.model.timeline import Timeline

IDENTITY = SourceIdentity("127.0.0.1:3306", "6b0c-uuid")

Reopen = Callable[[], MetaBackend]


def cursor(position: int, row: int = 0) -> LogPosition:
    return LogPosition(IDENTITY, EntryPosition("binlog.000001", position, row, "u:1-5", 99))


class Conformance:
    """Fixtures: `backend`, empty for the destinations used here; `reopen`, another connection to
    the same."""

    def test_records_come_back_whole(self, backend: MetaBackend) -> None:
        manager = MetaManager(backend)
        epoch = manager.acquire("orders")
        assert manager.load("orders") == {}
        subscribers = [
            SubscriberMeta(1, r"shop\..*", None),
            SubscriberMeta(2, "商店🚀'\"\\n%s{d}", cursor(1 << 40, 7)),
        ]
        for subscriber in subscribers:
            manager.save("orders", epoch, subscriber)
        found = manager.load("orders")
        assert found == {1: subscribers[0], 2: subscribers[1]}
        assert found[2].cursor is not None
        # Positions are equal by place alone; the rest must come back, too.
        assert (found[2].cursor.position.gtid, found[2].cursor.position.timestamp) == ("u:1-5", 99)
        assert found[2].cursor.identity == IDENTITY

    def test_a_save_replaces_and_a_remove_forgets_one_record(self, backend: MetaBackend) -> None:
        manager = MetaManager(backend)
        epoch = manager.acquire("orders")
        for position in (4, 500, 500):  # the same once more is no error
            manager.save("orders", epoch, SubscriberMeta(1, "a", cursor(position)))
            manager.save("orders", epoch, SubscriberMeta(2, "a", cursor(position)))
        manager.remove("orders", epoch, 1)
        manager.remove("orders", epoch, 1)
        assert manager.load("orders") == {2: SubscriberMeta(2, "a", cursor(500))}

    def test_a_long_record_is_kept(self, backend: MetaBackend) -> None:
        epoch = backend.acquire("orders")
        record = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5," * 10_000
        backend.save("orders", epoch, 1, record)
        assert backend.load("orders") == {1: record}

    def test_destinations_do_not_touch_each_other(self, backend: MetaBackend) -> None:
        manager = MetaManager(backend)
        names = ("orders", "Orders", "stock")
        epochs = {name: manager.acquire(name) for name in names}
        assert manager.acquire("stock") > epochs["stock"]
        manager.save("orders", epochs["orders"], SubscriberMeta(1, "a", None))
        assert manager.load("stock") == manager.load("Orders") == {}
        assert [backend.epoch(name) for name in ("orders", "Orders")] == [
            epochs[name] for name in ("orders", "Orders")
        ]
        assert backend.epoch("none") == 0

    def test_the_timeline_is_fenced_and_no_subscriber(
        self, backend: MetaBackend, reopen: Reopen
    ) -> None:
        """A6: a destination's timeline is kept beside its cursors, written by its owner only."""
        manager = MetaManager(backend)
        old = manager.acquire("orders")
        assert manager.load_timeline("orders") is None
        for number in (1, 2):
            manager.save_timeline("orders", old, Timeline(number, IDENTITY))
        assert manager.load("orders") == {}
        assert manager.load_filter("orders") == ""
        successor = MetaManager(reopen())
        assert successor.load_timeline("orders") == Timeline(2, IDENTITY)
        assert successor.load_timeline("stock") is None
        successor.acquire("orders")
        with pytest.raises(Fenced):
            manager.save_timeline("orders", old, Timeline(3, IDENTITY))
        assert successor.load_timeline("orders") == Timeline(2, IDENTITY)

    def test_an_older_epoch_is_fenced_and_changes_nothing(
        self, backend: MetaBackend, reopen: Reopen
    ) -> None:
        manager, successor = MetaManager(backend), MetaManager(reopen())
        old = manager.acquire("orders")
        kept = SubscriberMeta(1, "a", cursor(100))
        manager.save("orders", old, kept)
        manager.refuse_fenced("orders", old)
        new = successor.acquire("orders")
        assert new > old
        fenced = rf"epoch {old} was replaced by epoch {new}.*orders"
        with pytest.raises(Fenced, match=fenced):
            manager.save("orders", old, SubscriberMeta(1, "a", cursor(200)))
        with pytest.raises(Fenced, match=fenced):
            manager.remove("orders", old, 1)
        with pytest.raises(Fenced, match=fenced):
            manager.refuse_fenced("orders", old)
        assert successor.load("orders") == {1: kept}
        successor.save("orders", new, SubscriberMeta(1, "a", cursor(300)))

    def test_what_nobody_acquired_cannot_be_written(self, backend: MetaBackend) -> None:
        with pytest.raises(EpochLost):
            MetaManager(backend).save("orders", 0 + 1, SubscriberMeta(1, "a", None))
        assert backend.load("orders") == {}

    def test_epochs_rise_also_where_the_newest_was_forgotten(
        self, backend: MetaBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """D4: put back from a copy, a Redis that lost its last writes: no epoch is given twice."""
        before = time.time_ns() // 1_000_000
        first = backend.acquire("orders", "me")
        assert first >= before
        time.sleep(0.01)
        assert backend.acquire("stock", "me") > first  # also where nothing is known of it
        # A clock that goes back, a clock that stands: never the same one again.
        monkeypatch.setattr(time, "time_ns", lambda: 5)
        assert backend.acquire("orders", "me") == first + 1
        assert backend.acquire("orders", "me") == first + 2

    def test_an_epoch_that_was_forgotten_is_told_from_one_that_was_replaced(
        self, backend: MetaBackend
    ) -> None:
        """D4: its owner begins again, it does not give up; it may take a newer epoch."""
        manager = MetaManager(backend)
        known = manager.acquire("orders", "me")
        lost = known + 1000  # what the owner has, where the backend knows of `known` only
        for call in (
            lambda: manager.save("orders", lost, SubscriberMeta(1, "a", None)),
            lambda: manager.remove("orders", lost, 1),
            lambda: manager.refuse_fenced("orders", lost),
        ):
            with pytest.raises(EpochLost, match="put back from a copy"):
                call()
        assert manager.acquire("orders", "another name", lost) > known
        assert manager.acquire("nobody yet", "me", 5) >= known

    def test_batch_ids_that_were_given_out_are_kept(self, backend: MetaBackend) -> None:
        """a12, D4: they rise over restarts, and begin at 1."""
        manager = MetaManager(backend)
        epoch = manager.acquire("orders")
        assert manager.load_batch_ids("orders") == 0
        manager.save_batch_ids("orders", epoch, 4096)
        manager.save("orders", epoch, SubscriberMeta(1, "a", None))
        assert manager.load_batch_ids("orders") == 4096
        assert list(manager.load("orders")) == [1]

    def test_attempts_of_removed_subscribers_are_kept(self, backend: MetaBackend) -> None:
        """The highest number; what is damaged can be removed."""
        manager = MetaManager(backend)
        epoch = manager.acquire("orders")
        for client_id, attempt in enumerate((0, 3, 7, 2), start=1):
            ledger = Ledger("s", (), attempt=attempt).to_json() if attempt else ""
            manager.save("orders", epoch, SubscriberMeta(client_id, "a", None, snapshot=ledger))
        backend.save("orders", epoch, 5, "damaged")
        found = []
        for client_id in (1, 2, 3, 4, 5, 6):
            manager.remove("orders", epoch, client_id)
            found.append(manager.load_attempts("orders"))
        assert found == [0, 3, 7, 7, 7, 7]
        assert manager.load("orders") == {}

    def test_each_owner_gets_an_epoch_of_its_own(self, reopen: Reopen) -> None:
        epochs: list[int] = []
        began = time.time_ns() // 1_000_000

        def acquire(backend: MetaBackend) -> None:
            found = [backend.acquire("orders") for _ in range(8)]
            assert found == sorted(found)
            epochs.extend(found)

        threads = [threading.Thread(target=acquire, args=(reopen(),)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(epochs)) == 32
        assert min(epochs) >= began

    def test_who_was_replaced_does_not_take_it_back(
        self, backend: MetaBackend, reopen: Reopen
    ) -> None:
        old, new = backend, reopen()
        first = old.acquire("orders", "old", None)
        second = old.acquire("orders", "old", first)
        # Its answer was lost: the owner does not know of its own third epoch.
        third = old.acquire("orders", "old", second)
        fourth = old.acquire("orders", "old", second)
        fifth = new.acquire("orders", "new")
        with pytest.raises(Fenced, match=f"epoch {fourth} was replaced by epoch {fifth}.*stop it"):
            old.acquire("orders", "old", fourth)
        with pytest.raises(Fenced):
            old.acquire("orders", "", fourth)
        sixth = new.acquire("orders", "new", fifth)
        epochs = [first, second, third, fourth, fifth, sixth, old.acquire("orders", "old")]
        assert epochs == sorted(set(epochs))

    def test_after_a_takeover_nothing_of_the_old_owner_comes(
        self, backend: MetaBackend, reopen: Reopen
    ) -> None:
        """The old owner writes as fast as it can; whatever it wrote, it wrote before."""
        old, new = reopen(), backend
        for _ in range(6):
            epoch = old.acquire("orders")
            started = threading.Event()
            written: list[int] = []

            def write(epoch: int, started: threading.Event, written: list[int]) -> None:
                try:
                    for number in range(10**6):
                        old.save("orders", epoch, 1, str(number))
                        written.append(number)
                        started.set()
                except Fenced:
                    return

            writer = threading.Thread(target=write, args=(epoch, started, written))
            writer.start()
            assert started.wait(120)
            new.acquire("orders")
            found = new.load("orders")
            writer.join(120)
            assert not writer.is_alive()
            assert found == new.load("orders") == {1: str(written[-1])}


def record(position: int, kind: str = "ddl", body: bytes = b"x", server: str = "u") -> SchemaRecord:
    return SchemaRecord(server, "bin.000002", position, kind, 1.5, body)


def held(position: int, journal_name: str = "bin.000002") -> Quarantined:
    return Quarantined("u", journal_name, position, (("s", "t"),), 2.5, "why", b"data")


def listed(chunk: Quarantined) -> QuarantinedChunk:
    return QuarantinedChunk(*chunk_key(chunk), chunk.tables, len(chunk.data))


class SchemaConformance:
    """Fixture: `store`, empty for the destinations used here."""

    def test_records_are_kept_once_by_destination(self, store: SchemaStore) -> None:
        first = [
            record(1, "snapshot"),
            record(2),
            record(2, "table", b"a"),
            record(2, "table", b"b"),
        ]
        store.append("d", first)
        store.append("d", first[1:])
        store.append("other", [record(7)])
        store.append("d", [])
        assert store.records("d") == first
        assert store.records("other") == [record(7)]
        assert store.records("none") == []

    def test_what_lies_before_a_snapshot_is_forgotten(self, store: SchemaStore) -> None:
        elsewhere = record(1, server="v")
        store.append("d", [record(1, "snapshot"), record(2), record(5, "snapshot"), record(6)])
        store.append("d", [elsewhere])
        store.forget_before("d", record(5, "snapshot"))
        assert store.records("d") == [record(5, "snapshot"), record(6), elsewhere]

    def test_logs_of_one_server_are_told_apart(self, store: SchemaStore) -> None:
        """A8: one that began again has the old one's places, and is forgotten as a whole."""
        old = [record(1, "snapshot", server="u#1"), record(2, server="u#1")]
        new = [record(1, "snapshot", server="u#2"), record(2, server="u#2")]
        store.append("d", [*old, record(2), *new])
        store.append("other", old)
        assert store.records("d") == [*old, record(2), *new]
        store.forget_before("d", record(2, "snapshot", server="u#2"))
        assert store.records("d") == [*old, record(2), new[1]]
        store.forget_log("d", "u#1")
        assert store.records("d") == [record(2), new[1]]
        assert store.records("other") == old
        store.forget_log("d", "nothing")

    def test_order_is_not_the_clocks(self, store: SchemaStore) -> None:
        """A8: what a clock that stepped back wrote is kept as it came."""
        found = [replace(record(n), recorded_at=at) for n, at in ((1, 9.0), (2, -1.0), (3, 5.0))]
        store.append("d", found)
        assert store.records("d") == found

    def test_quarantine_in_the_logs_order(self, store: SchemaStore) -> None:
        chunks = [held(9), held(30, "bin.000001"), held(4)]
        store.quarantine("d", chunks)
        store.quarantine("d", chunks[:1])
        assert store.quarantined("d") == [listed(chunks[n]) for n in (1, 2, 0)]
        store.release("d", chunk_key(chunks[2]))
        assert store.quarantined("d") == [listed(chunks[n]) for n in (1, 0)]
        assert store.quarantined("other") == []
        assert store.quarantined_data("d", chunk_key(chunks[0])) == b"data"
        assert store.quarantined_data("d", chunk_key(chunks[2])) is None
        assert store.quarantined_data("other", chunk_key(chunks[0])) is None

    def test_an_outline_has_all_but_the_bodies(self, store: SchemaStore) -> None:
        """B9, b17: what is counted and listed is not read."""
        records = [record(1, "snapshot", b"long" * 1000), record(2)]
        store.append("d", records)
        assert store.outline("d") == [replace(each, body=b"") for each in records]
        assert store.outline("other") == []

    def test_long_bodies_and_many_records(self, store: SchemaStore) -> None:
        records = [record(n, "ddl", bytes([n % 256, 0, 39, 92]) * 50_000) for n in range(1, 12)]
        store.append("d", records)
        store.append("d", records)
        assert store.records("d") == records
