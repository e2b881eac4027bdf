"""The spare: a process that has everything loaded and waits to become some destination's fetcher.

The start of a fetcher's process is most of a recovery: the interpreter, Ray, libraries and kernels
from their cache, seconds of CPU one after the other. So the controller keeps one such process
ready, for the whole cluster; who needs a fetcher takes it, or starts one if there is none.

A spare is owned by nobody, so that it outlives the controller, and who took it must not be survived
by it: a free one lives as long as its name is in Ray's key-value store, one that was taken as long
as somebody asks whether it is alive (pump.py does, each second).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import ray
from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_get, _internal_kv_put

from ray_canal.actors import fetcher, spawn
from ray_canal.config import InstanceConfig

logger = logging.getLogger(__name__)

_BINLOG = Path(__file__).parents[1] / "demo" / "mysql-bin.000001"
_KEY = "ray_canal:spare"
_LEASE_S = 60.0
_CHECK_PERIOD_S = 1.0
_SETTLE_S = 3.0
"""So long is waited before a new one is made: its start takes the CPU that a recovery needs."""
_START_LIMIT_S = 120.0
_ADOPTION_LIMIT_S = 3.0


class Fetcher(fetcher.Fetcher):
    """Named so that the process is called what it becomes."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._taken = False
        self._asked_at = time.monotonic()
        type(self).__name__ = "Spare"  # the process's title between calls
        load_everything()
        threading.Thread(target=self._watch, daemon=True).start()

    def adopt(self, instance_json: str, fused: bool) -> None:
        """Be the fetcher of this destination from now on."""
        self._taken = True
        type(self).__name__ = "Fetcher"
        super().__init__(instance_json, fused)

    def alive(self) -> None:
        """Answer, and live on."""
        self._asked_at = time.monotonic()

    def _watch(self) -> None:
        while True:
            time.sleep(_CHECK_PERIOD_S)
            if not self._taken and _free() == self._name:
                self._asked_at = time.monotonic()
            if time.monotonic() - self._asked_at > _LEASE_S:
                ray.kill(ray.get_runtime_context().current_actor)
                return


def load_everything() -> None:
    """Import and compile (or load) all that a fetcher uses, by decoding a bundled binlog file."""
    from ray_canal.actors.parser import event_parser
    from ray_canal.driver.source import open_source

    given = {"destination": "spare", "source": {"files": [str(_BINLOG)]}}
    config = InstanceConfig.model_validate(given)
    parser, source = event_parser(config), open_source(config)
    try:
        source.open(None)
        while (raw := source.read(0.0, 0.0)) is not None:
            parser.decode_chunk(raw)
    finally:
        source.close()


async def fetcher_of(instance_json: str, fused: bool) -> Any:
    """The spare, as this destination's fetcher; a new process if none is ready."""
    spare = await asyncio.to_thread(_take)
    if spare is not None:
        adopted = spare.adopt.remote(instance_json, fused)
        try:
            await asyncio.wait_for(asyncio.wrap_future(adopted.future()), _ADOPTION_LIMIT_S)
            return spare
        except (asyncio.TimeoutError, ray.exceptions.RayError) as error:
            logger.warning("the spare process cannot be used: %s", error)
            ray.kill(spare)
    return spawn.fetcher(instance_json, fused)


async def keep_one() -> None:
    """See to it for ever that there is a spare."""
    while True:
        try:
            if await asyncio.to_thread(_find) is None:
                await asyncio.sleep(_SETTLE_S)
                await _make()
        except Exception as error:
            # Destinations do without it; the next look comes.
            logger.warning("no spare process could be started: %s", error)
        await asyncio.sleep(_CHECK_PERIOD_S)


async def _make() -> None:
    name = f"canal-spare:{uuid.uuid4().hex}"
    spare = spawn.spare(name)
    asked = spare.alive.remote()
    await asyncio.wait_for(asyncio.wrap_future(asked.future()), _START_LIMIT_S)
    if await asyncio.to_thread(_internal_kv_put, _KEY, name, overwrite=False):
        ray.kill(spare)  # another controller was faster


def _free() -> str:
    return (_internal_kv_get(_KEY) or b"").decode()


def _find() -> Any:
    """The spare that is free, if there is one."""
    name = _free()
    if not name:
        return None
    with contextlib.suppress(ValueError):
        return ray.get_actor(name, namespace=spawn.NAMESPACE)
    _internal_kv_del(_KEY)  # its process has ended
    return None


def _take() -> Any:
    """The same; from now on nobody else finds it."""
    spare = _find()
    # Who deletes the key has it.
    return spare if spare is not None and _internal_kv_del(_KEY) else None
