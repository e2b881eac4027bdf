"""The controller actor: keeps the configured destinations running.

Hard state: none. What should run is what was applied; after its own restart the controller takes
what its constructor was given and what it finds running. If `apply` returns, every destination of
the configuration has a store actor; whether that store has reached its source is the store's
answer, not ours.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import ray

from ray_canal.actors import spawn
from ray_canal.config import CanalConfig
from ray_canal.errors import InstanceNotFound

_CHECK_PERIOD_S = 2.0


class Controller:
    """Starts, stops and lists destinations; re-creates a store actor that is gone."""

    def __init__(self, config_json: str, namespace: str) -> None:
        self._namespace = namespace
        self._wanted: dict[str, tuple[str, str]] = {}
        self._watch: asyncio.Task[None] | None = None
        self._want(CanalConfig.model_validate_json(config_json))

    def _want(self, config: CanalConfig) -> list[str]:
        for instance in config.instance:
            self._wanted[instance.destination] = (
                instance.model_dump_json(),
                config.meta.model_dump_json(),
            )
        return [instance.destination for instance in config.instance]

    def _ensure(self, destination: str) -> Any:
        instance_json, meta_json = self._wanted[destination]
        return spawn.store(instance_json, meta_json, destination, self._namespace)

    async def apply(self, config_json: str) -> list[str]:
        """Make sure that every destination of the configuration has its store. Returns their
        names."""
        names = self._want(CanalConfig.model_validate_json(config_json))
        for name in names:
            self._ensure(name)
        if self._watch is None:
            self._watch = asyncio.create_task(self._keep_running())
        return names

    async def stop(self, destination: str) -> None:
        """Stop a destination: its pipeline is closed, its cursors stay. Raises InstanceNotFound."""
        self._wanted.pop(destination, None)
        handle = spawn.find_store(destination, self._namespace)
        with contextlib.suppress(ray.exceptions.RayActorError):
            await handle.stop.remote()
        ray.kill(handle, no_restart=True)

    async def destinations(self) -> list[str]:
        """Every destination that is wanted or running."""
        return sorted({*self._wanted, *spawn.destinations(self._namespace)})

    async def _keep_running(self) -> None:
        while True:
            for destination in list(self._wanted):
                try:
                    spawn.find_store(destination, self._namespace)
                except InstanceNotFound:
                    if destination in self._wanted:
                        self._ensure(destination)
            await asyncio.sleep(_CHECK_PERIOD_S)
