"""The store actor: a process that holds the stores of one destination, or of several.

Its state is what its stores' is; which they are is in the placement table. The constructor takes up
all that have their place here, so it is recovery for each of them. Stores share the event loop and
nothing else: a failure of one is its own, the end of the process is a restart for all. One that
ends often is given up, and each of them gets a process of its own (process_starts.py).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ray_canal.actors import registry
from ray_canal.actors.answers import answered
from ray_canal.actors.control.process_starts import Starts
from ray_canal.actors.control.stand_in import StandIn
from ray_canal.actors.detached import made_store
from ray_canal.actors.local_server import LocalServer
from ray_canal.actors.log_settings import take_up_log_settings
from ray_canal.actors.placement import this_node
from ray_canal.actors.placement_table import PlacementRecord, PlacementTable
from ray_canal.actors.priority import as_ray_itself
from ray_canal.actors.runtime import RayRuntime
from ray_canal.actors.time_slice import shorten_time_slices
from ray_canal.config import InstanceConfig, MetaConfig, kept_secrets
from ray_canal.destination.api import DestinationApi
from ray_canal.destination.backend_thread import BackendThread
from ray_canal.destination.destination import Destination, start_destination
from ray_canal.errors import InstanceNotRunning, InstanceRestarted
from ray_canal.logs import tell, with_ids
from ray_canal.malloc import give_up_unused

logger = logging.getLogger(__name__)

_TELL_S = 15.0


class StoreActor:
    """Passes calls on to stores."""

    # Ray awaits an async constructor of an async actor.
    async def __init__(  # type: ignore[misc]
        self, process: str, namespace: str, shared: bool
    ) -> None:
        as_ray_itself()
        shorten_time_slices()
        self._process = process
        self._namespace = namespace
        take_up_log_settings(namespace)
        tell(logger, "process", "%s has begun", process, process=process, pid=os.getpid())
        self._places = PlacementTable(namespace)
        # As long as Ray's head is away, it does not answer, and what runs here goes on.
        self._head = BackendThread("control-store")
        self._destinations: dict[str, Destination] = {}
        self._owners: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        self._local = LocalServer(self.call)
        if shared:
            Starts(namespace).note(process)
            self._loading = asyncio.create_task(asyncio.to_thread(_load_everything))
        self._stand_in = StandIn(process, namespace, self._made)
        self._standing_in = asyncio.create_task(self._stand_in.run())
        mine = [name for name, place in self._places.all().items() if place.process == process]
        self._recovery = asyncio.gather(*map(self._take_up, mine), return_exceptions=True)

    async def _take_up(self, destination: str) -> Destination | None:
        """Begin a destination that has its place here; return it, or None. Raises ConfigError,
        asyncio.TimeoutError: its secrets cannot be had from the head."""
        place = await self._place_here(destination)
        if place and (
            unknown := [each for each in place.secrets if not kept_secrets.is_known(each)]
        ):
            await self._learn(unknown)
            place = await self._place_here(destination)
        if place is None:
            return None
        if destination in self._destinations:  # by somebody else, meanwhile
            return self._destinations[destination]
        with_ids(destination=destination)  # its tasks are begun here
        claim = self._places.claim(destination, place.owner)
        config = InstanceConfig.model_validate_json(place.instance_json)
        meta = MetaConfig.model_validate_json(place.meta_json)
        store = start_destination(config, meta, RayRuntime(place.shared), claim)
        self._destinations[destination] = store
        self._owners[destination] = place.owner
        return store

    async def _place_here(self, destination: str) -> PlacementRecord | None:
        """Return the destination's place, if it is here; then this process logs as its deployment
        says."""

        def look() -> PlacementRecord | None:
            place = self._places.get(destination)
            if place is None or place.process != self._process:
                return None
            take_up_log_settings(self._namespace)
            return place

        return await self._head.run(look)

    def _made(self, place: PlacementRecord) -> Any:
        return made_store(StoreActor, place.home, self._namespace)

    async def _learn(self, references: Sequence[str]) -> None:
        """Be told secrets that are kept on the head node."""
        controller = await self._head.run(
            registry.find_actor, registry.CONTROLLER_NAME, self._namespace
        )
        if controller is None:
            raise InstanceNotRunning("the controller, which has the secrets, is not there")
        kept_secrets.remember(await answered(_TELL_S, controller.secrets.remote(references)))

    async def call(self, destination: str, method: str, *arguments: Any, **named: Any) -> Any:
        """Make a call of DestinationApi. Raises InstanceRestarted: the destination is not here."""
        with_ids(destination=destination)
        store = self._destinations.get(destination)
        if store is None:
            store = await self._take_up(destination)
        if store is None:
            raise InstanceRestarted(
                f"{destination} is not held by {self._process} (any more); look it up again"
            ).at(destination=destination)
        if not hasattr(DestinationApi, method):
            raise AttributeError(f"DestinationApi has no {method}")
        return await getattr(store, method)(*arguments, **named)

    async def local_socket(self, node: str) -> str:
        """Return the name of the socket over which callers on this node reach `call`; empty: there
        is none, or the caller's `node` is another one. Of a process that stands still with its node
        Ray alone tells that it is given up."""
        return await self._local.name() if node == this_node() else ""

    async def collect(self, number: int) -> Any:
        """Return the answer to a call over the local socket that only Ray can carry."""
        return self._local.collect(number)

    async def reconcile(self, owners: Mapping[str, str]) -> dict[str, tuple[float, float]]:
        """Hold what has its place here, as it was started last: `owners` has the owner of each of
        these destinations. Called every few seconds, its answer shows that the process is alive.
        Return each one's bytes a second and of memory."""
        give_up_unused()
        self._stand_in.controller_spoke()
        # A controller that ended in the midst of a stop or a change has not told of it here.
        for destination, owner in tuple(self._owners.items()):
            if owners.get(destination) != owner:
                await self._look_again(destination, owner)
        for destination in owners:
            if destination not in self._destinations:
                await self._try_to_take_up(destination)
        return {name: store.load() for name, store in self._destinations.items()}

    async def _look_again(self, destination: str, owner: str) -> None:
        """Drop a destination that has no place here any more, or is to be another start."""
        place = await self._head.run(self._places.get, destination)
        here = place is not None and place.process == self._process
        if place is None or not here or place.owner != owner:
            logger.warning(
                "destination %s: what runs here was %s meanwhile", destination,
                "started again" if here else "stopped" if place is None else "moved",
            )  # fmt: skip
            await self.drop(destination, for_good=place is None)

    async def _try_to_take_up(self, destination: str) -> None:
        try:
            await self._take_up(destination)
            self._refused.pop(destination, None)
        except Exception as error:  # whatever it was: the others are served, and asked about
            if self._refused.get(destination) != str(error):
                logger.warning("destination %s cannot begin: %s", destination, error)
            self._refused[destination] = str(error)

    async def renew(self, destination: str) -> None:
        """Stop a destination and begin it again, as its place says now."""
        await self.drop(destination, for_good=False)
        await self._take_up(destination)

    async def drop(self, destination: str, for_good: bool = True) -> None:
        """Stop a destination and forget it; see DestinationApi.stop."""
        store = self._destinations.pop(destination, None)
        self._owners.pop(destination, None)
        if store is not None:
            await store.stop(for_good=for_good)

    async def stop(self) -> None:
        """Stop them all."""
        self._local.close()
        self._standing_in.cancel()
        await asyncio.gather(*(self.drop(destination) for destination in list(self._destinations)))


def _load_everything() -> None:
    """Load what an upstream needs: it takes as long as opening cursors and source, so it is done
    meanwhile."""
    # Where each fetcher has a process, this one does without what they need.
    from ray_canal.destination.fetcher import load_everything

    load_everything()
