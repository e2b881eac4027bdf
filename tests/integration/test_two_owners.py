"""Two deployments that both believe they own a destination: one has it, the other one waits or has
ended, and neither tries again and again. Cursors and lease in real servers; no Ray."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from ray_canal.actors.control.succession import Succession
from ray_canal.config import CanalConfig, InstanceConfig, MetaConfig, load
from ray_canal.errors import Fenced
from ray_canal.meta.open import open_backend
from ray_canal.model.message import EMPTY_BATCH
from tests.local_destination import LocalDestination
from tests.servers import Server
from tests.servers.redis import RedisServer
from tests.unit.actors.control.test_succession import LEASE_S, Made, kv, until

__all__ = ["kv"]  # a fixture: Ray's key-value store

NAME = "owned"
WATCHED_S = 2.0
pytestmark = pytest.mark.usefixtures("kv")


@pytest.fixture(params=["mysql97", "redis_server"])
def meta(request: pytest.FixtureRequest) -> MetaConfig:
    """A database, or prefix, of this test alone."""
    server = request.getfixturevalue(request.param)
    name = f"owners_{uuid.uuid4().hex[:12]}"
    if isinstance(server, RedisServer):
        return MetaConfig(backend="redis", address=server.address, database=name)
    return MetaConfig(backend="mysql", address=server.address, username="root", database=name)


def instance(server: Server) -> InstanceConfig:
    name, position = server.position()
    source = {
        "address": server.address,
        "username": "root",
        "start": "position",
        "journal_name": name,
        "position": position,
    }
    tables = {"tables": rf"{NAME}\..*"}
    return InstanceConfig.model_validate(
        {"destination": NAME, "decoders": 0, "source": source, "filter": tables}
    )


def epoch_of(meta: MetaConfig) -> int:
    backend = open_backend(meta)
    try:
        return backend.epoch(NAME)
    finally:
        backend.close()


async def state_of(destination: LocalDestination) -> tuple[str, int, Any]:
    status = await destination.status()
    return status["state"], status["generations"], status["error"]


def test_of_two_destinations_one_delivers_and_the_other_has_ended(
    meta: MetaConfig, mysql97: Server
) -> None:
    """P2: the later one has it; the first one says so and does not take it back."""
    mysql97.execute(
        f"drop database if exists {NAME}",
        f"create database {NAME}",
        f"create table {NAME}.t (id int primary key)",
    )
    config = instance(mysql97)

    async def go() -> None:
        one = LocalDestination(config, meta)
        await one.wait_running(60)
        await one.subscribe(1, r".*\..*")
        two = LocalDestination(config, meta)
        await two.wait_running(60)
        await two.subscribe(1, r".*\..*")
        won = await asyncio.to_thread(epoch_of, meta)
        mysql97.execute(f"insert into {NAME}.t values (1)")
        assert (await two.poll(1, 4, 20.0)).id != EMPTY_BATCH
        with pytest.raises(Fenced):
            await one.get_without_ack(1, 1, 0.2)
        seen = await state_of(one)
        assert seen[0] == "failed"
        assert "another owner has taken over" in str(seen[2])
        await asyncio.sleep(WATCHED_S)
        assert await state_of(one) == seen
        assert (await state_of(two))[:2] == ("running", 1)
        assert await asyncio.to_thread(epoch_of, meta) == won
        await one.stop()
        await two.stop()

    asyncio.run(go())


def deployment(meta: MetaConfig) -> CanalConfig:
    return load(
        {
            "meta": meta.model_dump(exclude_defaults=True),
            "ray": {"standby": True, "lease_s": LEASE_S},
            "instance": [{"destination": NAME, "source": {"address": "127.0.0.1:3306"}}],
        }
    )


@pytest.mark.timed  # leases of half a second: on a busy machine one may end early
def test_of_two_heads_one_is_active_and_the_other_waits(meta: MetaConfig) -> None:
    """P2: both are started at once; the active one sleeps, and wakes when the other one has it."""

    async def go() -> None:
        made = Made(), Made()
        heads = Succession("one", made[0]), Succession("two", made[1])
        for each in heads:
            each._namespace = "shared"  # two clusters, so two key-value stores, of one name
            each.join(deployment(meta))
        await until(lambda: any(each.state()["active"] for each in heads))
        await asyncio.sleep(WATCHED_S)
        assert sorted(each.lives for each in made) == [0, 1]
        first = 0 if made[0].lives else 1
        sleeper, next_one = heads[first], heads[1 - first]
        assert sleeper._life is not None
        sleeper._life.cancel()
        await until(lambda: next_one.state()["active"])
        sleeper._life = asyncio.create_task(sleeper._live())
        await until(lambda: made[first].running is None)
        await asyncio.sleep(WATCHED_S)
        assert [each.lives for each in made] == [1, 1]
        assert next_one.state()["active"]
        assert not sleeper.state()["active"]
        for each in heads:
            await each.leave()

    asyncio.run(go())
