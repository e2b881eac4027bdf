"""What every meta backend must do, as tests: subclass `Conformance` and give it a `backend` and a
`reopen`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from ray_canal.errors import Fenced
from ray_canal.meta.backend import MetaBackend
from ray_canal.meta.manager import MetaManager, SubscriberMeta
from ray_canal.protocol.position import EntryPosition, LogPosition, SourceIdentity

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
        assert manager.acquire("stock") == epochs["stock"] + 1
        manager.save("orders", epochs["orders"], SubscriberMeta(1, "a", None))
        assert manager.load("stock") == manager.load("Orders") == {}
        assert [backend.epoch(name) for name in (*names, "none")] == [1, 1, 2, 0]

    def test_an_older_epoch_is_fenced_and_changes_nothing(
        self, backend: MetaBackend, reopen: Reopen
    ) -> None:
        manager, successor = MetaManager(backend), MetaManager(reopen())
        old = manager.acquire("orders")
        kept = SubscriberMeta(1, "a", cursor(100))
        manager.save("orders", old, kept)
        manager.refuse_fenced("orders", old)
        new = successor.acquire("orders")
        assert new == old + 1
        fenced = rf"epoch {old} was replaced by epoch {new}.*orders"
        with pytest.raises(Fenced, match=fenced):
            manager.save("orders", old, SubscriberMeta(1, "a", cursor(200)))
        with pytest.raises(Fenced, match=fenced):
            manager.remove("orders", old, 1)
        with pytest.raises(Fenced, match=fenced):
            manager.refuse_fenced("orders", old)
        assert successor.load("orders") == {1: kept}
        successor.save("orders", new, SubscriberMeta(1, "a", cursor(300)))

    def test_a_destination_that_nobody_acquired_is_fenced(self, backend: MetaBackend) -> None:
        with pytest.raises(Fenced):
            MetaManager(backend).save("orders", 0 + 1, SubscriberMeta(1, "a", None))

    def test_each_owner_gets_an_epoch_of_its_own(self, reopen: Reopen) -> None:
        epochs: list[int] = []

        def acquire(backend: MetaBackend) -> None:
            epochs.extend(backend.acquire("orders") for _ in range(8))

        threads = [threading.Thread(target=acquire, args=(reopen(),)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(epochs) == list(range(1, 33))

    def test_who_was_replaced_does_not_take_it_back(
        self, backend: MetaBackend, reopen: Reopen
    ) -> None:
        old, new = backend, reopen()
        assert old.acquire("orders", "old", None) == 1
        assert old.acquire("orders", "old", 1) == 2
        # Its answer was lost: the owner does not know of its own epoch 3.
        assert old.acquire("orders", "old", 2) == 3
        assert old.acquire("orders", "old", 2) == 4
        assert new.acquire("orders", "new") == 5
        with pytest.raises(Fenced, match="epoch 4 was replaced by epoch 5"):
            old.acquire("orders", "old", 4)
        with pytest.raises(Fenced):
            old.acquire("orders", "", 4)
        assert new.acquire("orders", "new", 5) == 6
        assert old.acquire("orders", "old") == 7

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
            assert started.wait(30)
            new.acquire("orders")
            found = new.load("orders")
            writer.join(30)
            assert not writer.is_alive()
            assert found == new.load("orders") == {1: str(written[-1])}
