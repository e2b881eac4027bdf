"""The reserve: one spare process (spare.py) is kept ready, and who needs a fetcher takes it.

Its name in Ray's key-value store says that it is free; who deletes the name has it. This module is
imported by stores, so it imports nothing that fetchers need.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable
from typing import Any

import ray
from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_get, _internal_kv_put

from ray_canal.actors import spawn

logger = logging.getLogger(__name__)

_KEY = "ray_canal:spare"
_CHECK_PERIOD_S = 2.0
_SETTLE_S = 3.0
"""So long is waited before a new one is made: its start takes the CPU that a recovery needs."""
_START_LIMIT_S = 120.0
_ADOPTION_LIMIT_S = 3.0


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


async def keep_one(wanted: Callable[[], bool]) -> None:
    """See to it for ever that there is a spare while one is `wanted`."""
    while True:
        try:
            if wanted() and await asyncio.to_thread(find) is None:
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


def free_name() -> str:
    """Of the spare that is free; "": there is none."""
    return (_internal_kv_get(_KEY) or b"").decode()


def find() -> Any:
    """The spare that is free, if there is one."""
    name = free_name()
    if not name:
        return None
    with contextlib.suppress(ValueError):
        return ray.get_actor(name, namespace=spawn.NAMESPACE)
    _internal_kv_del(_KEY)  # its process has ended
    return None


def _take() -> Any:
    """The same; from now on nobody else finds it."""
    spare = find()
    # Who deletes the key has it.
    return spare if spare is not None and _internal_kv_del(_KEY) else None
