"""Cursors of one owner: written under its epoch, in an order that holds over its own takeovers."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from ray_canal.config import MetaConfig, SourceConfig
from ray_canal.destination import ownership as ownership_module
from ray_canal.destination.ownership import Claim, Ownership
from ray_canal.destination.records.start_record import StartRecord
from ray_canal.errors import Fenced, InstanceRestarted, MetaUnavailable
from ray_canal.meta.manager import MetaManager, SubscriberMeta
from ray_canal.meta.open import open_backend
from tests.local_destination import meta_away, saves_that_wait
from tests.meta_conformance import cursor

ME = SubscriberMeta(1, "a", cursor(100))


async def opened(path: Path, claim: Claim | None = None) -> Ownership:
    ownership = Ownership("orders", MetaConfig(path=str(path / "meta.db")), claim or Claim())
    await ownership.open()
    return ownership


def counted(monkeypatch: pytest.MonkeyPatch, name: str) -> list[float]:
    """The times at which a method of the MetaManager is called."""
    calls: list[float] = []
    method = getattr(MetaManager, name)

    def call(*arguments: Any) -> Any:
        calls.append(time.monotonic())
        return method(*arguments)

    monkeypatch.setattr(MetaManager, name, call)
    return calls


def test_what_comes_behind_an_own_takeover_is_void_not_fenced(tmp_path: Path) -> None:
    """B4: an ack that meets a new generation's epoch is not taken for another owner's;
    nor is a subscriber that leaves then."""

    async def go() -> None:
        ownership = await opened(tmp_path)
        old = await ownership.acquire()
        before = asyncio.ensure_future(ownership.save(old, ME))
        taking = asyncio.ensure_future(ownership.acquire())
        behind = asyncio.ensure_future(ownership.save(old, SubscriberMeta(2, "a", None)))
        start = StartRecord("orders", SourceConfig(start="earliest", address="a:3306"))
        noted = asyncio.ensure_future(ownership.keep(old, start.save, ME.cursor))
        loading = asyncio.ensure_future(ownership.load())
        await before
        new = await taking
        for late in (behind, noted):
            with pytest.raises(InstanceRestarted):
                await late
        assert await loading == {1: ME}
        with pytest.raises(InstanceRestarted):
            await ownership.confirm(old, time.monotonic())
        await ownership.save(new, ME)
        await ownership.close()

    asyncio.run(go())


def test_a_successor_in_another_process_fences_every_call(tmp_path: Path) -> None:
    async def go() -> None:
        ownership = await opened(tmp_path)
        epoch = await ownership.acquire()
        await ownership.save(epoch, ME)
        other = await opened(tmp_path)
        await other.acquire()
        for call in (
            ownership.save(epoch, ME),
            ownership.remove(epoch, 1),
            ownership.confirm(epoch, time.monotonic()),
            ownership.acquire(),
        ):
            with pytest.raises(Fenced):
                await call
        await ownership.close()
        await other.close()

    asyncio.run(go())


def test_a_write_confirms_and_those_who_ask_at_once_ask_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """b9: a get with an ack costs one round trip, not two."""
    asked = counted(monkeypatch, "refuse_fenced")
    monkeypatch.setattr(MetaManager, "is_newest", lambda *_: False)  # a server, not a file
    monkeypatch.setattr(ownership_module, "_FRESH_S", 60.0)

    async def go() -> None:
        ownership = await opened(tmp_path)
        epoch = await ownership.acquire()
        came_s = time.monotonic()
        await ownership.save(epoch, ME)
        await ownership.confirm(epoch, came_s)
        assert not asked
        await ownership.confirm(epoch, time.monotonic())
        assert len(asked) == 1
        now_s = time.monotonic()
        await asyncio.gather(*(ownership.confirm(epoch, now_s) for _ in range(20)))
        assert len(asked) == 2
        assert asked[-1] >= now_s
        monkeypatch.setattr(ownership_module, "_FRESH_S", 0.0)  # what was known counts no more
        await ownership.confirm(epoch, came_s)
        assert len(asked) == 3
        await ownership.close()

    asyncio.run(go())


def test_a_file_is_asked_beside_a_write_that_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> None:
        ownership = await opened(tmp_path)
        epoch = await ownership.acquire()
        disk = saves_that_wait(monkeypatch)
        saving = asyncio.create_task(ownership.save(epoch, ME))
        await asyncio.sleep(0.05)
        await ownership.confirm(epoch, time.monotonic())
        assert not saving.done()
        other = await opened(tmp_path)  # in its place
        await other.acquire()
        late = asyncio.create_task(ownership.confirm(epoch, time.monotonic()))
        await asyncio.sleep(0.05)
        assert not late.done()  # what is not as it was is told in the calls' order
        disk.set()
        for call in (saving, late):
            with pytest.raises(Fenced):
                await call
        await ownership.close()
        await other.close()

    asyncio.run(go())


def test_the_log_says_once_that_cursors_are_away_and_that_they_are_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What is read goes on, so no metric shows it; clients alone would see it."""

    async def go() -> None:
        ownership = await opened(tmp_path)
        epoch = await ownership.acquire()
        with meta_away("save"):
            for _ in range(3):
                with pytest.raises(MetaUnavailable):
                    await ownership.save(epoch, ME)
        await ownership.save(epoch, ME)
        await ownership.save(epoch, ME)
        await ownership.close()

    asyncio.run(go())
    away, back = (record.getMessage() for record in caplog.records)
    assert "destination orders: its cursors can be neither read nor written, and acks wait" in away
    assert "destination orders: its cursors are back" in back


def test_an_epoch_whose_answer_was_lost_is_nobody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B4: the server took the new epoch, and the answer did not come: calls wait, none gives up."""
    acquire = MetaManager.acquire

    def lost(*arguments: Any) -> int:
        acquire(*arguments)
        raise MetaUnavailable("the answer was lost")

    async def go() -> None:
        ownership = await opened(tmp_path)
        old = await ownership.acquire()
        monkeypatch.setattr(MetaManager, "acquire", lost)
        with pytest.raises(MetaUnavailable):
            await ownership.acquire()
        monkeypatch.undo()
        with pytest.raises(MetaUnavailable, match="not known"):
            await ownership.save(old, ME)
        new = await ownership.acquire()
        await ownership.save(new, ME)
        assert open_backend(MetaConfig(path=str(tmp_path / "meta.db"))).epoch("orders") == new
        await ownership.close()

    asyncio.run(go())


def test_a_restarted_owner_takes_back_nothing(tmp_path: Path) -> None:
    """B3: its claim outlives it; whoever starts again has another one."""

    async def go() -> None:
        mine, theirs = Claim("mine"), Claim("theirs")
        first = await opened(tmp_path, mine)
        await first.acquire()
        again = await opened(tmp_path, mine)  # as an actor that was restarted
        epoch = await again.acquire()
        other = await opened(tmp_path, theirs)
        taken = await other.acquire()
        assert taken > epoch
        restarted = await opened(tmp_path, mine)
        with pytest.raises(Fenced, match="stop it here and start it again"):
            await restarted.acquire()
        assert await (await opened(tmp_path, theirs)).acquire() > taken
        assert await (await opened(tmp_path, Claim("started again"))).acquire() > taken

    asyncio.run(go())


def test_who_dies_in_a_takeover_replaces_nothing_newer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B3: noted before it is taken, so that no moment is left in which a restart could not know."""

    async def go() -> None:
        claim = Claim("mine")
        dying = await opened(tmp_path, claim)

        def die(*_: Any) -> int:
            raise KeyboardInterrupt

        monkeypatch.setattr(MetaManager, "acquire", die)
        with pytest.raises(KeyboardInterrupt):
            await dying.acquire()
        monkeypatch.undo()
        assert claim.epoch() == 0
        other = await opened(tmp_path)
        await other.acquire()
        with pytest.raises(Fenced):
            await (await opened(tmp_path, claim)).acquire()

    asyncio.run(go())
