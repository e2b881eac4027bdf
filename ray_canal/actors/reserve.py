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
from ray_canal.config import InstanceConfig
from ray_canal.config.kept_secrets import handed_over
from ray_canal.destination.signal import answered

logger = logging.getLogger(__name__)

_KEY, _READY_KEY = "ray_canal:spare", "ray_canal:spare:started"
_CHECK_PERIOD_S = 2.0
_SETTLE_S = 3.0
"""So long is waited before a new one is made: its start takes the CPU that a recovery needs."""
_START_LIMIT_S = 60.0
_FAILED_PAUSE_S = 60.0
_ADOPTION_LIMIT_S = 3.0


async def fetcher_of(config: InstanceConfig, fused: bool) -> Any:
    """The spare, as this destination's fetcher; a new process if there is none. One that is still
    starting is waited for: it has begun before a new one would. Raises ConfigError: a password is
    not kept any more."""
    given, told = handed_over(config)
    spare, is_ready = await asyncio.to_thread(_take)
    if spare is not None:
        limit_s = _ADOPTION_LIMIT_S if is_ready else _START_LIMIT_S
        adopted = spare.adopt.remote(given.model_dump_json(), fused, told)
        try:
            await answered(limit_s, adopted)
            return spare
        except (asyncio.TimeoutError, ray.exceptions.RayError) as error:
            logger.warning("the spare process cannot be used: %s", error)
            ray.kill(spare)
    return spawn.fetcher(config, fused)


def start_one() -> Any:
    """Begin to start a spare, if there is none. Returns it."""
    found = find()
    if found is not None:
        return found
    name = f"canal-spare:{uuid.uuid4().hex}"
    spare = spawn.spare(name)
    if _internal_kv_put(_KEY, name, overwrite=False):
        ray.kill(spare)  # somebody else was faster
        return find()
    return spare


async def keep_one(wanted: Callable[[], bool]) -> None:
    """See to it for ever that there is a spare while one is `wanted`."""
    while True:
        try:
            if wanted() and await asyncio.to_thread(find) is None:
                await asyncio.sleep(_SETTLE_S)
                spare = await asyncio.to_thread(start_one)
                reply = spare.alive.remote()
                await answered(_START_LIMIT_S, reply)
        except Exception as error:
            # Destinations do without it; the next look comes.
            logger.warning("no spare process could be started: %s", error)
            await asyncio.sleep(_FAILED_PAUSE_S)
        await asyncio.sleep(_CHECK_PERIOD_S)


def free_name() -> str:
    """Of the spare that is free, or will be when it has started; "": there is none."""
    return (_internal_kv_get(_KEY) or b"").decode()


def announce(name: str) -> None:
    """The spare of this name has started."""
    _internal_kv_put(_READY_KEY, name, overwrite=True)


def find() -> Any:
    """The spare that is free, if there is one."""
    name = free_name()
    if not name:
        return None
    with contextlib.suppress(ValueError):
        return ray.get_actor(name, namespace=spawn.NAMESPACE)
    _internal_kv_del(_KEY)  # its process has ended
    return None


def is_ready() -> bool:
    """Whether the spare that is free has started."""
    name = free_name()
    return bool(name) and (_internal_kv_get(_READY_KEY) or b"").decode() == name


def _take() -> tuple[Any, bool]:
    """The spare, which from now on nobody else finds, and whether it has started."""
    spare, ready = find(), is_ready()
    # Who deletes the key has it.
    return (spare, ready) if spare is not None and _internal_kv_del(_KEY) else (None, False)
