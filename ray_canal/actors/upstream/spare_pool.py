"""The pool of spares: one spare (spare.py) waits on each node that has destinations whose
fetchers are processes; whoever needs a fetcher takes it.

This module is imported by stores, so it imports nothing that fetchers need.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Collection
from typing import Any

import ray

from ray_canal.actors.answers import answered, raised_by_actor
from ray_canal.actors.placement import this_node
from ray_canal.actors.upstream import spare_record, stages
from ray_canal.config import InstanceConfig
from ray_canal.config.kept_secrets import handed_over
from ray_canal.errors import InstanceRestarted

logger = logging.getLogger(__name__)

_CHECK_PERIOD_S = 2.0
_SETTLE_S = 3.0
"""So long is waited before a new one is made: its start takes the CPU that a recovery needs."""
_START_LIMIT_S = 60.0
_FAILED_PAUSE_S = 60.0
_ADOPTION_LIMIT_S = 3.0


async def fetcher_of(config: InstanceConfig, fused: bool) -> Any:
    """Return this node's spare, as the destination's fetcher; a new process if there is none. One
    that is still starting is waited for: it has begun before a new one would. Raises ConfigError: a
    password is not kept any more."""
    given, told = handed_over(config)
    spare, is_ready = await asyncio.to_thread(spare_record.take, this_node())
    if spare is not None:
        limit_s = _ADOPTION_LIMIT_S if is_ready else _START_LIMIT_S
        adopted = spare.adopt.remote(given.model_dump_json(), fused, told)
        try:
            await answered(limit_s, adopted)
            stages.let_log(spare, "fetcher")
            return spare
        except (asyncio.TimeoutError, ray.exceptions.RayError) as error:
            cause = raised_by_actor(error)
            logger.warning("the spare process cannot be used: %s", cause)
            if not isinstance(cause, InstanceRestarted):
                ray.kill(spare)
    return stages.fetcher(config, fused)


def start_one(node: str) -> Any:
    """Begin to start a spare on a node, if there is none. Return it."""
    found = spare_record.find(node)
    if found is not None:
        return found
    name = f"canal-spare:{uuid.uuid4().hex}"
    spare = stages.spare(name, node)
    if not spare_record.offer(node, name):
        ray.kill(spare)  # somebody else was faster
        return spare_record.find(node)
    return spare


async def keep_ready(wanted: Callable[[], Collection[str]]) -> None:
    """Keep a spare ready on each node where one is `wanted`, indefinitely."""
    while True:
        try:
            for node in wanted():
                if await asyncio.to_thread(spare_record.find, node) is None:
                    await asyncio.sleep(_SETTLE_S)
                    spare = await asyncio.to_thread(start_one, node)
                    await answered(_START_LIMIT_S, spare.alive.remote())
        except Exception as error:
            # Destinations do without it; the next look comes.
            logger.warning("no spare process could be started: %s", error)
            await asyncio.sleep(_FAILED_PAUSE_S)
        await asyncio.sleep(_CHECK_PERIOD_S)
