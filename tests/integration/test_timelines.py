"""Row ids on a real server whose log is reset, or no longer has what a subscriber needs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ray_canal as canal
from tests.dumps import purge_all
from tests.integration.test_main_job import deployment
from tests.integration.test_subscribers import SMALL_LOG, filled, place, until
from tests.servers import start

RowId = tuple[int, int, int, int]


class Consumer:
    """Keeps the highest id that it took and skips what is not above it."""

    def __init__(self, destination: str, client_id: int, **wishes: Any) -> None:
        self.connector = canal.connect(destination, client_id)
        self.connector.subscribe(rf"{destination}\.t", **wishes)
        self.ids: list[RowId] = []
        self.taken: list[int] = []

    def read(self, enough: Callable[[list[int]], bool]) -> None:
        deadline = time.monotonic() + 180
        while not enough(self.taken):
            assert time.monotonic() < deadline, (self.taken[-3:], canal.status())
            message = self.connector.get_without_ack(batch_size=50, timeout=0.3)
            if not message:
                continue
            for part in message.batches_by_part():
                for row in (row for batch in part for row in batch.to_pylist()):
                    assert row["timeline"] == message.timeline
                    this = canal.row_id(row)
                    if not self.ids or this > self.ids[-1]:
                        self.ids.append(this)
                        self.taken.append(row["after"]["id"])
            self.connector.ack(message.id)


def timeline(destination: str) -> int:
    return int(canal.status(destination)[destination]["timeline"])


def test_ids_behind_a_reset_are_higher(local_ray: None, tmp_path: Path) -> None:
    """A6: a server begins its log again, under file names and positions that it had before."""
    with start("mysql97", tmp_path / "server") as server:
        source = {
            "address": server.address, "username": "root", "on_reset": "earliest",
            "reconnect_max_s": 0.5,
        }  # fmt: skip
        config = deployment(server, "reset", tmp_path / "meta.db", source=source)
        filled(server, "reset")
        server.execute(*["FLUSH BINARY LOGS"] * 3)
        canal.start(config)
        try:
            consumer = Consumer("reset", 1)
            filled(server, "reset", (1, 100))
            consumer.read(lambda taken: len(taken) == 100)
            before = timeline("reset")
            canal.stop("reset")
            server.execute("RESET BINARY LOGS AND GTIDS")
            filled(server, "reset", (101, 100))
            canal.start(config)
            # All that is in the new log comes, and it counts as new.
            consumer = _again(consumer)
            consumer.read(lambda taken: len(taken) == 200)
            assert consumer.taken == [*range(1, 201)]
            assert {this[0] for this in consumer.ids} == {before, timeline("reset")}
            assert consumer.ids[100][1:] < consumer.ids[99][1:], "lower but for the timeline"
            # A restart in the same log goes on in its timeline.
            canal.stop("reset")
            canal.start(config)
            consumer = _again(consumer)
            filled(server, "reset", (201, 10))
            consumer.read(lambda taken: len(taken) == 210)
            assert consumer.ids[-1][0] == consumer.ids[-11][0]
        finally:
            canal.stop("reset")


@pytest.mark.parametrize("files", [pytest.param(0, marks=pytest.mark.soak), 3])
def test_a_reset_under_a_running_destination(files: int, local_ray: None, tmp_path: Path) -> None:
    """A1: with source.on_reset nobody is told of what passes, and all of the new log comes: also
    where the dump went on with a later file of it, or ended, as its own one was gone."""
    name = f"under{files}"
    with start("mysql97", tmp_path / "server") as server:
        source = {
            "address": server.address, "username": "root", "on_reset": "earliest",
            "reconnect_max_s": 0.5,
        }  # fmt: skip
        config = deployment(server, name, tmp_path / "meta.db", source=source)
        filled(server, name)
        for _ in range(files):
            server.execute("FLUSH BINARY LOGS")
        canal.start(config)
        try:
            consumer = Consumer(name, 1)
            filled(server, name, (1, 100))
            consumer.read(lambda taken: len(taken) == 100)
            server.execute("RESET BINARY LOGS AND GTIDS")
            filled(server, name, (101, 10))
            time.sleep(1.5)
            server.execute("FLUSH BINARY LOGS")
            filled(server, name, (111, 10))
            consumer.read(lambda taken: len(taken) == 120)
            assert consumer.taken == [*range(1, 121)]
        finally:
            canal.stop(name)


def _again(consumer: Consumer) -> Consumer:
    new = Consumer("reset", 1)
    new.ids, new.taken = consumer.ids, consumer.taken
    return new


def test_a_catch_up_that_lost_its_place_begins_a_timeline_for_all(
    local_ray: None, tmp_path: Path
) -> None:
    """A6: a detached subscriber whose file was purged goes on at what is left; whoever comes back
    into the destination's log finds no lower ids there, and one more try is no other timeline."""
    with start("mysql97", tmp_path / "server") as server:
        source = {"address": server.address, "username": "root", "on_purged": "earliest"}
        config = deployment(
            server, "catchup", tmp_path / "meta.db", source=source, store=SMALL_LOG,
            chunk_bytes=128 << 10,
        )  # fmt: skip
        filled(server, "catchup")
        canal.start(config)
        try:
            fast, slow = Consumer("catchup", 1), Consumer("catchup", 2, policy="detach")
            first = timeline("catchup")
            filled(server, "catchup", *((1 + 1000 * k, 1000) for k in range(8)))
            fast.read(lambda taken: len(taken) == 8000)
            until(lambda: bool(place("catchup", 2)["detached"]))
            purge_all(server)
            filled(server, "catchup", (8001, 10))
            slow.read(lambda taken: taken[-1:] == [8010])
            assert slow.taken == [*range(8001, 8011)]
            second = timeline("catchup")
            assert second > first
            filled(server, "catchup", (8011, 10))
            for consumer in (fast, slow):
                consumer.read(lambda taken: taken[-1] == 8020)
                assert consumer.ids[-1][0] == second
            assert fast.taken == [*range(1, 8021)]
            assert slow.taken == [*range(8001, 8021)]
            assert timeline("catchup") == second
        finally:
            canal.stop("catchup")
