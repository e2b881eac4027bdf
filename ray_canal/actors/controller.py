"""The controller actor: keeps the configured destinations running.

What should run is what was applied and not stopped. It is kept in Ray's own key-value store, so the
controller's restart is no event for destinations; the head's is, and there the configuration says
it anew. If `apply` returns, every destination of the configuration has a store actor; whether that
store has reached its source is the store's answer, not ours.

An actor whose process ends is restarted by Ray. One whose process is there but does not answer
(stopped, or its machine thrashes) is killed from here, so that Ray restarts it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from typing import Any

import ray
from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_put

from ray_canal.actors import spawn
from ray_canal.actors.reserve import keep_one
from ray_canal.config import CanalConfig
from ray_canal.errors import InstanceNotFound

logger = logging.getLogger(__name__)

_CHECK_PERIOD_S = 2.0
_STALL_S = 15.0
"""An actor that answered before and does not for so long is replaced."""


class Controller:
    """Starts, stops and lists destinations; re-creates a store actor that is gone."""

    # Ray awaits an async constructor of an async actor.
    async def __init__(self, config_json: str, namespace: str) -> None:  # type: ignore[misc]
        self._namespace = namespace
        self._key = f"ray_canal:controller:{namespace}"
        self._wanted: dict[str, tuple[str, str]] = {}
        self._answered: dict[str, str] = {}
        kept = _internal_kv_get(self._key)
        if kept:
            self._wanted = {name: tuple(pair) for name, pair in json.loads(kept).items()}
        else:
            self._want(CanalConfig.model_validate_json(config_json))
        self._watch = asyncio.create_task(self._keep_running())
        if CanalConfig.model_validate_json(config_json).ray.spare:
            self._spare = asyncio.create_task(keep_one())

    def _want(self, config: CanalConfig) -> list[str]:
        for instance in config.instance:
            self._wanted[instance.destination] = (
                instance.model_dump_json(),
                config.meta.model_dump_json(),
            )
        self._keep()
        return [instance.destination for instance in config.instance]

    def _keep(self) -> None:
        _internal_kv_put(self._key, json.dumps(self._wanted), overwrite=True)

    def _ensure(self, destination: str) -> Any:
        instance_json, meta_json = self._wanted[destination]
        return spawn.store(instance_json, meta_json, destination, self._namespace)

    async def apply(self, config_json: str) -> list[str]:
        """Make sure that every destination of the configuration has its store. Returns their
        names."""
        names = self._want(CanalConfig.model_validate_json(config_json))
        for name in names:
            self._ensure(name)
        return names

    async def stop(self, destination: str) -> None:
        """Stop a destination: its pipeline is closed, its cursors stay. Raises InstanceNotFound."""
        self._wanted.pop(destination, None)
        self._keep()
        handle = spawn.find_store(destination, self._namespace)
        with contextlib.suppress(ray.exceptions.RayActorError, asyncio.TimeoutError):
            reply = handle.stop.remote()
            await asyncio.wait_for(asyncio.wrap_future(reply.future()), _STALL_S)
        ray.kill(handle, no_restart=True)

    async def destinations(self) -> list[str]:
        """Every destination that is wanted or running."""
        return sorted({*self._wanted, *spawn.destinations(self._namespace)})

    async def _keep_running(self) -> None:
        while True:
            try:
                await self._check()
            except Exception as error:
                # Whatever happened to one look, the next one comes.
                logger.warning("the destinations could not be looked after: %s", error)
            await asyncio.sleep(_CHECK_PERIOD_S)

    async def _check(self) -> None:
        for destination in list(self._wanted):
            try:
                spawn.find_store(destination, self._namespace)
            except InstanceNotFound:
                if destination in self._wanted:
                    self._ensure(destination)
        handles = {f"store of {d}": self._handle_of(d) for d in self._wanted}
        for number, server in enumerate(spawn.find_servers(self._namespace)):
            handles[f"TCP server {number}"] = server
        await asyncio.gather(
            *(self._replace_if_stalled(n, h) for n, h in handles.items() if h is not None)
        )

    def _handle_of(self, destination: str) -> Any:
        with contextlib.suppress(InstanceNotFound):
            return spawn.find_store(destination, self._namespace)
        return None

    async def _replace_if_stalled(self, name: str, handle: Any) -> None:
        """Kill an actor that answered once and does not now. One that starts may take its time."""
        which = handle._actor_id.hex()
        reply = handle.alive.remote()
        try:
            await asyncio.wait_for(asyncio.wrap_future(reply.future()), _STALL_S)
            self._answered[name] = which
        except ray.exceptions.RayError:
            self._answered.pop(name, None)  # it is restarting
        except asyncio.TimeoutError:
            if self._answered.pop(name, None) == which:
                logger.warning("the %s has not answered for %.0f s; it is replaced", name, _STALL_S)
                ray.kill(handle, no_restart=False)
