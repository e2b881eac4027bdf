"""A node's one spare: who takes it, what happens to one that cannot be used."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from ray.exceptions import RayTaskError

from ray_canal.actors import log_settings
from ray_canal.actors.upstream import spare_pool, spare_record
from ray_canal.actors.upstream.spare_pool import fetcher_of, keep_ready, start_one
from ray_canal.config import InstanceConfig
from ray_canal.errors import InstanceRestarted
from tests.unit.actors.small_cluster import NODE, SILENT, Handle, SmallCluster, until

CONFIG = InstanceConfig.model_validate(
    {"destination": "x", "source": {"address": "db:3306", "password": "s3cret"}}
)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> SmallCluster:
    monkeypatch.setattr(log_settings, "_taken", None)
    for name in ("_ADOPTION_LIMIT_S", "_SETTLE_S", "_CHECK_PERIOD_S", "_FAILED_PAUSE_S"):
        monkeypatch.setattr(spare_pool, name, 0.05)
    return SmallCluster(monkeypatch)


def ready(node: str = NODE) -> Handle:
    """A spare that has started."""
    spare: Handle = start_one(node)
    spare_record.announce(node, spare.name)
    return spare


def test_one_is_started_and_no_second_one(cluster: SmallCluster) -> None:
    first = start_one(NODE)
    assert start_one(NODE) is first
    assert len(cluster.made) == 1
    cluster.actors.clear()  # its process has ended
    assert start_one(NODE) is not first


def test_who_was_slower_ends_their_own(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs: list[Handle] = []

    def slow(name: str, node: str) -> Handle:
        made = really(name, node)
        if not theirs:
            theirs.append(made)
            theirs.append(start_one(node))
        return made

    really: Any = spare_pool.stages.spare
    monkeypatch.setattr(spare_pool.stages, "spare", slow)
    assert start_one(NODE) is theirs[1]
    assert cluster.killed == [(theirs[0].name, True)]


def test_a_fetcher_is_the_standby_and_is_told_the_password(cluster: SmallCluster) -> None:
    spare = ready()
    assert asyncio.run(fetcher_of(CONFIG, True)) is spare
    [[given, fused, told]] = spare.called("adopt")
    assert fused
    assert "s3cret" not in given
    assert list(told.values()) == ["s3cret"]
    assert spare_record.find(NODE) is None, "nobody else takes it"


@pytest.mark.parametrize("answer", [SILENT])
def test_one_that_does_not_answer_is_ended_and_a_process_begun(
    cluster: SmallCluster, answer: object
) -> None:
    spare = ready()
    spare.answers["adopt"] = answer
    found: Handle = asyncio.run(fetcher_of(CONFIG, False))
    assert cluster.killed == [(spare.name, True)]
    assert found.made[0].__module__ == "ray_canal.actors.upstream.fetcher"


def test_one_that_another_destination_has_is_left_to_it(cluster: SmallCluster) -> None:
    """Found, then this process stood still; meanwhile another one took it, and the next spare was
    offered, whose name is the one that is deleted."""
    spare = ready()
    taken = InstanceRestarted("the fetcher of another destination")
    spare.answers["adopt"] = RayTaskError("adopt", "", taken)
    found: Handle = asyncio.run(fetcher_of(CONFIG, False))
    assert cluster.killed == []
    assert found.made[0].__module__ == "ray_canal.actors.upstream.fetcher"


def test_one_that_still_starts_is_waited_for(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float] = []

    async def answered(limit_s: float, reply: Any) -> None:
        limits.append(limit_s)

    monkeypatch.setattr(spare_pool, "answered", answered)
    start_one(NODE)
    asyncio.run(fetcher_of(CONFIG, False))
    ready()
    asyncio.run(fetcher_of(CONFIG, False))
    assert limits == [spare_pool._START_LIMIT_S, spare_pool._ADOPTION_LIMIT_S]


def test_without_one_a_process_is_begun(cluster: SmallCluster) -> None:
    found: Handle = asyncio.run(fetcher_of(CONFIG, False))
    assert found.made[0].__module__ == "ray_canal.actors.upstream.fetcher"


def test_each_wanted_node_has_one_also_behind_a_failure(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [RuntimeError("Ray's head is away")]
    really = spare_pool.start_one

    def sometimes(node: str) -> Any:
        if failures:
            raise failures.pop()
        return really(node)

    monkeypatch.setattr(spare_pool, "start_one", sometimes)

    async def story() -> None:
        nodes = [NODE]
        keeping = asyncio.create_task(keep_ready(lambda: nodes))
        await until(lambda: spare_record.find(NODE))
        nodes.append("b" * 56)
        await until(lambda: spare_record.find("b" * 56))
        await asyncio.sleep(0.2)
        keeping.cancel()
        assert len(cluster.made) == 2

    asyncio.run(story())
