"""A head's part in the lease: what it starts, keeps and ends; without Ray."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from ray_canal.actors.control import succession
from ray_canal.actors.control.succession import STOPPED, Succession, kept_texts, merge
from ray_canal.config import CanalConfig, load
from ray_canal.errors import ConfigError, InstanceNotRunning

LEASE_S = 0.5


@pytest.fixture(autouse=True)
def kv(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """Ray's key-value store, and a home for secrets."""
    values: dict[str, str] = {}
    monkeypatch.setattr(succession, "kv_get", values.get)
    monkeypatch.setattr(succession, "kv_put", values.__setitem__)
    monkeypatch.setattr(succession, "kv_delete", lambda key: values.pop(key, None) is not None)
    monkeypatch.setenv("HOME", str(tmp_path))
    return values


def config_of(folder: Path, *names: str, password: str = "env:SECRET") -> CanalConfig:
    source = {"address": "127.0.0.1:3306", "password": password}
    return load(
        {
            "meta": {"path": str(folder / "meta.db"), "shared": True},
            "ray": {"standby": True, "lease_s": LEASE_S},
            "instance": [{"destination": name, "source": source} for name in names],
        }
    )


class Made:
    """Notes what begins and ends."""

    def __init__(self) -> None:
        self.running: list[str] | None = None
        self.lives = 0

    async def begin(self, config: CanalConfig) -> None:
        self.running = [each.destination for each in config.instance]
        self.lives += 1

    async def end(self) -> None:
        self.running = None


async def until(condition: Any) -> None:
    async def turn() -> None:
        while not condition():
            await asyncio.sleep(0.02)

    await asyncio.wait_for(turn(), 20)


def test_one_is_active_and_the_next_goes_on_with_what_was_applied(tmp_path: Path) -> None:
    async def run() -> None:
        here, there = Made(), Made()
        one, two = Succession("one", here), Succession("two", there)
        # Two clusters, so two key-value stores, of the same namespace.
        for each in (one, two):
            each._namespace = "shared"
        one.join(config_of(tmp_path, "a", "b"))
        await until(lambda: here.running == ["a", "b"])
        await until(lambda: one.state()["active"])
        two.join(config_of(tmp_path, "b", "c"))
        await until(lambda: two.state()["head"] != "another head")
        assert there.running is None
        with pytest.raises(ConfigError, match="waits as a standby"):
            two.refuse_waiting()
        one.refuse_waiting()
        await one.keep(kept_texts(config_of(tmp_path, "d")))
        await one.keep({"b": STOPPED})
        await one.leave()
        assert here.running is None
        assert not one.takes_part
        await until(lambda: there.running is not None)
        assert there.running is not None
        assert sorted(there.running) == ["a", "c", "d"]
        await two.leave()

    asyncio.run(run())


def test_a_controller_that_restarts_goes_on_and_begins_nothing_again(tmp_path: Path) -> None:
    async def run() -> None:
        made = Made()
        one = Succession("ns", made)
        assert not one.takes_part
        one.refuse_waiting()
        one.join(config_of(tmp_path, "a", password="in clear text"))
        await until(lambda: one.state()["active"])
        assert one._life is not None
        one._life.cancel()
        again = Succession("ns", made)
        assert again.takes_part
        assert again.state()["active"]
        await until(lambda: again._lease is not None and again._lease.held)
        assert made.lives == 1
        await again.leave()
        assert not Succession("ns", made).takes_part

    asyncio.run(run())


def test_who_was_replaced_ends_what_it_has(tmp_path: Path) -> None:
    async def run() -> None:
        here = Made()
        one = Succession("ns", here)
        one.join(config_of(tmp_path, "a"))
        await until(lambda: one.state()["active"])
        assert one._lease is not None
        one._lease._backend.acquire("@ns", "somebody else")
        await until(lambda: here.running is None)
        await until(lambda: here.running == ["a"])  # nobody beats, so it is taken back
        assert here.lives == 2
        await one.leave()

    asyncio.run(run())


class Slow(Made):
    """Takes longer to begin than a beat lasts, and fails the first time."""

    async def begin(self, config: CanalConfig) -> None:
        await asyncio.sleep(3 * LEASE_S)
        if not self.lives:
            self.lives += 1
            raise ConfigError("no node fits yet")
        await super().begin(config)


def test_a_slow_beginning_keeps_the_lease(tmp_path: Path) -> None:
    """Another head does not take it meanwhile; a failure is shown, and tried again."""

    async def run() -> None:
        here, there = Slow(), Made()
        one, two = Succession("one", here), Succession("two", there)
        for each in (one, two):
            each._namespace = "shared"
        one.join(config_of(tmp_path, "a"))
        await until(lambda: one._beginning is not None)
        assert one.state()["begins"]
        two.join(config_of(tmp_path, "a"))
        await until(lambda: "no node fits yet" in one.state()["error"])
        await until(lambda: one.state()["active"])
        assert here.running == ["a"]
        assert there.lives == 0
        await one.leave()
        await two.leave()

    asyncio.run(run())


async def taken_from(here: Made, folder: Path) -> Succession:
    """Return an active head whose controller has restarted once, when another head takes over."""
    first = Succession("ns", here)
    first.join(config_of(folder, "a"))
    await until(lambda: first.state()["active"])
    assert first._life is not None
    first._life.cancel()
    one = Succession("ns", here)
    await until(lambda: one._lease is not None and one._lease.held)
    assert one._lease is not None
    taken = one._lease._backend.acquire("@ns", "somebody else")
    one._lease._backend.save("@ns", taken, 0, json.dumps({"owner": "somebody else"}))
    return one


class Stubborn(Made):
    """Is not ended by the first call: a process of it does not answer."""

    ends = 0

    async def end(self) -> None:
        self.ends += 1
        if self.ends == 1:
            raise InstanceNotRunning("a process does not answer")
        await super().end()


def test_what_could_not_be_ended_is_ended_later(tmp_path: Path) -> None:
    """It was refused its epochs, so it would not run, were this head active again."""

    async def run() -> None:
        here = Stubborn()
        one = await taken_from(here, tmp_path)
        await until(lambda: here.lives == 2)  # nobody beats, so it is taken back
        assert here.ends == 2
        await one.leave()
        assert here.ends == 3

    asyncio.run(run())


class Slowly(Made):
    """Takes its time to end."""

    def __init__(self) -> None:
        super().__init__()
        self.may_end = asyncio.Event()
        self.ends = self.ended = 0

    async def end(self) -> None:
        self.ends += 1
        await self.may_end.wait()
        await super().end()
        self.ended += 1


@pytest.mark.parametrize("how", ["the controller dies", "somebody stops the head"])
def test_an_end_that_was_interrupted_is_made(tmp_path: Path, how: str) -> None:
    async def run() -> None:
        here = Slowly()
        one = await taken_from(here, tmp_path)
        await until(lambda: here.ends == 1)
        if how == "the controller dies":
            assert one._life is not None
            one._life.cancel()
            one = Succession("ns", here)
        here.may_end.set()
        if how == "somebody stops the head":
            await one.leave()
        else:
            await until(lambda: here.ended)
            await one.leave()
        assert here.running is None

    asyncio.run(run())


class Partly(Made):
    """Begins some of it, and fails."""

    async def begin(self, config: CanalConfig) -> None:
        await super().begin(config)
        raise ConfigError("no node fits the rest")


@pytest.mark.parametrize("how", ["another head takes over", "somebody stops the head"])
def test_what_was_begun_in_part_is_ended(tmp_path: Path, how: str) -> None:
    async def run() -> None:
        here = Partly()
        one = Succession("ns", here)
        one.join(config_of(tmp_path, "a"))
        await until(lambda: one.state()["error"])
        assert one._life is not None
        assert one._lease is not None
        if how == "another head takes over":
            one._life.cancel()
            one._lease.turn = lambda: False  # type: ignore[method-assign]
            await one._turn(config_of(tmp_path, "a"))
            assert here.running is None
        await one.leave()
        assert here.running is None

    asyncio.run(run())


def test_what_runs_is_the_file_and_what_was_applied_elsewhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mine = config_of(tmp_path, "a", "b")
    other = kept_texts(config_of(tmp_path, "b", "c"))
    clear = kept_texts(config_of(tmp_path, "d", password="in clear text"))
    assert "in clear text" not in str(clear)
    merged = merge(mine, {**other, **clear, "a": STOPPED, "e": STOPPED})
    assert [each.destination for each in merged.instance] == ["b", "c"]
    assert merged.instance[1] == config_of(tmp_path, "c").instance[0]
    assert "destination d was started at another head" in caplog.text
