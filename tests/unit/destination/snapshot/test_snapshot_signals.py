"""Rows of the signal table: for whom they are, and what a refused one does."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from ray_canal.destination.snapshot.snapshot_signals import SnapshotSignals
from ray_canal.errors import ConfigError, MetaUnavailable, NotSubscribed
from ray_canal.snapshot import signals
from ray_canal.snapshot.signals import Signal


class World:
    """A destination with subscribers 7, 8 and an ephemeral 9; its snapshots note what is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *asked: Any, table: str = "ops.signals"):
        self.loads, self.done = 0, list[tuple[Any, ...]]()
        self.error: Exception | None = None
        known = {7: False, 8: False, 9: True}
        state: Any = SimpleNamespace(
            destination="orders",
            config=SimpleNamespace(now=SimpleNamespace(
                snapshot=SimpleNamespace(signal_table=table))),
            runtime=SimpleNamespace(load=self._load),
            subscribers=SimpleNamespace(known={
                client: SimpleNamespace(ephemeral=ephemeral) for client, ephemeral in known.items()
            }),
        )  # fmt: skip
        monkeypatch.setattr(signals, "inserted", lambda chunk, schema, table: asked)
        monkeypatch.setattr(signals, "signal_of", self._read)
        self.signals = SnapshotSignals(state, SimpleNamespace(signalled=self._do))  # type: ignore

    async def _load(self, payload: object) -> object:
        self.loads += 1
        return payload

    def _read(self, row: Any) -> Signal:
        if isinstance(row, Exception):
            raise row
        return row  # type: ignore[no-any-return]

    async def _do(self, client_id: int, action: str, *more: Any) -> None:
        if self.error is not None:
            raise self.error
        self.done.append((client_id, action))

    def note(self, *tables: tuple[str, str]) -> None:
        chunk: Any = SimpleNamespace(info=SimpleNamespace(tables=set(tables)))
        asyncio.run(self.signals.carry_out(chunk, None))


def signal(action: str, client_id: int | None = None) -> Signal:
    return Signal(id="s1", action=action, client_id=client_id, wishes=())


HERE = ("ops", "signals")


def test_one_is_for_a_subscriber_or_for_all_that_last(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, signal("start", 8), signal("pause"))
    world.note(HERE, ("shop", "t"))
    assert world.done == [(8, "start"), (7, "pause"), (8, "pause")]


def test_a_chunk_without_the_table_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    for table in ("ops.signals", ""):
        world = World(monkeypatch, signal("start", 7), table=table)
        world.note(("ops", "signals2"), ("shop", "signals"))
        assert (world.loads, world.done) == (0, [])


def test_what_cannot_be_meant_is_told_and_the_next_one_is_done(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    world = World(monkeypatch, ConfigError("no such action: dance"), signal("start", 7))
    world.note(HERE)
    assert "destination orders: a signal of ops.signals is not done: no such action" in caplog.text
    assert world.done == [(7, "start")]
    world.error = NotSubscribed("nobody is 7")
    world.note(HERE)
    assert "nobody is 7" in caplog.text


def test_where_it_cannot_be_kept_the_chunk_does_not_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is durable before anybody acks the row that asked for it."""
    world = World(monkeypatch, signal("start", 7))
    world.error = MetaUnavailable("the server of the cursors is away")
    with pytest.raises(MetaUnavailable):
        world.note(HERE)
