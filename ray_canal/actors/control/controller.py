"""The controller actor: keeps the configured destinations running.

What should run is what was applied and not stopped: what has a place (placement_table.py). The
controller's restart is no event for destinations; the head's is, and there the configuration says
it again, or another head has it from where the cursors are (succession.py). If `apply` returns,
every destination of the configuration has a store actor; whether that store has reached its source
is the store's answer, not ours.

An actor whose process ends is restarted by Ray; one whose node ends begins on another one, if its
`node` allows that (homes.py). One whose process is there but does not answer
(stopped, or its machine thrashes) is killed from here, so that Ray restarts it. Destinations whose
common process ends again and again get one each (process_starts.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Sequence
from typing import Any

import ray
from ray.actor import ActorHandle

from ray_canal.actors import launch, registry
from ray_canal.actors.answers import ACTOR_AWAY, answered
from ray_canal.actors.control.changes import changes, plan, refused
from ray_canal.actors.control.homes import Homes, cluster_nodes, head_of
from ray_canal.actors.control.process_starts import ENDS_MAX, Starts
from ray_canal.actors.control.stall_limit import keep_stall_limit, stall_limit
from ray_canal.actors.control.succession import STOPPED, Succession, kept_texts
from ray_canal.actors.log_settings import keep_log_settings, take_up_log_settings
from ray_canal.actors.placement import ON_HEAD, outliving
from ray_canal.actors.placement_table import PlacementRecord, PlacementTable, home_for, share_here
from ray_canal.actors.priority import as_ray_itself
from ray_canal.actors.ray_internals import actor_id
from ray_canal.actors.upstream.spare_pool import keep_ready
from ray_canal.config import CanalConfig, config_of, kept_secrets
from ray_canal.errors import InstanceNotFound
from ray_canal.logs import tell

logger = logging.getLogger(__name__)

_CHECK_PERIOD_S = 4.0
_NODES_PERIOD_S = 1.0
"""So often it looks whether nodes have come, ended, or begun to drain."""
_ANSWER_S = 1.0
"""So long a look waits for answers; later ones count at the next look."""
_TOUCH_PERIOD_S = 3600.0
_STRAY_S = 60.0


def controller(namespace: str, spare: bool) -> ActorHandle[Any]:
    """Return the cluster's one controller; made if there is none. `spare`: whether to keep spares
    ready."""
    options = outliving(registry.CONTROLLER_NAME, namespace, ON_HEAD)
    handle: ActorHandle[Any] = ray.remote(Controller).options(**options).remote(namespace, spare)
    return handle


class Controller:
    """Starts, stops and lists destinations; re-creates a store actor that is gone."""

    # Ray awaits an async constructor of an async actor.
    async def __init__(self, namespace: str, spare: bool) -> None:  # type: ignore[misc]
        as_ray_itself()
        take_up_log_settings(namespace)
        tell(logger, "process", "the controller has begun", process="controller", pid=os.getpid())
        self._namespace = namespace
        self._places = PlacementTable(namespace)
        self._starts = Starts(namespace)
        self._succession = Succession(namespace, self)
        self._homes = Homes(namespace, self._places, self._ensure)
        self._stall_s = stall_limit(namespace)
        self._answered: dict[str, str] = {}
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._spares: set[str] = set()
        self._strays: dict[str, float] = {}
        self._touched_s = 0.0
        # A machine that slept for a week, or whose clock was put right, has secrets that look old.
        self._touch_secrets(self._places.all())
        kept_secrets.sweep()
        self._watch = asyncio.create_task(self._keep_running())
        if spare:
            self._spare = asyncio.create_task(keep_ready(lambda: self._spares))

    def _want(self, config: CanalConfig) -> list[str]:
        """Give each destination a place, but those that have one."""
        places = self._places.all()
        names = [instance.destination for instance in config.instance]
        share = share_here(config.ray.destinations_per_process, names, places)
        new = [each for each in config.instance if each.destination not in places]
        homes = self._homes.choose(new, places, share)
        for instance in new:
            name = instance.destination
            self._places.put(name, PlacementRecord.of(homes[name], instance, config.meta))
        return names

    def _ensure(self, place: PlacementRecord) -> Any:
        return launch.ensure_store_process(place.home, self._namespace)

    async def apply(self, config_json: str, replace: bool = True) -> dict[str, list[str]]:
        """Make sure that every destination of the configuration has its store, with that
        configuration: one that runs with another is started over. Returns the keys that differed,
        of those. Secrets that it has in clear text are kept in files from here on. Raises
        ConfigError: with `replace` false, one would be; its cursors would not be found; this head
        waits as a standby."""
        self._succession.refuse_waiting()
        config = config_of(config_json)
        changed = await self._apply(config, replace)
        there = self._places.names()
        texts = kept_texts(config)
        await self._succession.keep({name: texts[name] for name in texts if name in there})
        return changed

    async def _apply(self, config: CanalConfig, replace: bool) -> dict[str, list[str]]:
        changed = changes(config, self._places.all())
        if changed and not replace:
            raise refused(changed)
        keep_log_settings(self._namespace, config.log)
        take_up_log_settings(self._namespace)
        keep_stall_limit(self._namespace, config.ray.stall_s)
        self._stall_s = config.ray.stall_s
        names = self._want(config)
        for name in changed:
            await self._renew(config, name)
        places = self._places.all()
        here = [places[name] for name in names if name in places]  # none that was stopped meanwhile
        for place in {place.process: place for place in here}.values():
            self._ensure(place)
        if changed:
            await self._homes.look()  # another `node` may be among it
        return changed

    async def plan(self, config_json: str) -> dict[str, Any]:
        """Return what `apply` would do; see changes.py. Raises ConfigError as `apply`."""
        return plan(config_of(config_json), self._places.all())

    async def _renew(self, config: CanalConfig, name: str) -> None:
        """Start a destination over, in its process, with the configuration that is given now."""
        place = self._places.get(name)
        if place is None:
            return
        self._places.put(
            name, PlacementRecord.of(place.home, config.destination(name), config.meta)
        )
        kept_secrets.drop(place.secrets)
        actor = self._ensure(place)
        try:
            await answered(self._stall_s, actor.renew.remote(name))
        except ACTOR_AWAY:
            return  # it is restarting, and finds the new configuration
        except asyncio.TimeoutError:
            ray.kill(actor, no_restart=False)

    async def stop(self, destination: str) -> None:
        """Stop a destination: its pipeline is closed, its cursors stay. Raises InstanceNotFound."""
        await self._stop(destination, for_good=True)
        if self._places.get(destination) is None:  # else somebody has started it meanwhile
            await self._succession.keep({destination: STOPPED})

    async def _stop(self, destination: str, *, for_good: bool) -> None:
        place = self._places.get(destination)
        self._places.remove(destination)
        self._homes.loads.forget(destination)
        if place is None:
            raise InstanceNotFound(f"no destination {destination!r} is running in this cluster")
        kept_secrets.drop(place.secrets)
        actor = registry.find_actor(place.process, self._namespace)
        if actor is None:  # its node has ended, and no other one fits: nothing runs that could stop
            return
        dropped = False
        with contextlib.suppress(*ACTOR_AWAY, asyncio.TimeoutError):
            reply = actor.drop.remote(destination, for_good)
            await answered(self._stall_s, reply)
            dropped = True
        alone = not any(each.process == place.process for each in self._places.all().values())
        if alone:
            self._starts.forget(place.process)
        if alone or not dropped:
            # Others that it holds are taken up again.
            ray.kill(actor, no_restart=alone)

    async def destinations(self) -> list[str]:
        """Every destination that is wanted."""
        return self._places.names()

    async def stand_by(self, config_json: str) -> None:
        """Share the deployment with other heads that have this configuration: see succession.py."""
        self._succession.join(config_of(config_json))

    async def standing(self) -> dict[str, Any] | None:
        """Return whether this head is active (`Succession.state`); None: it shares nothing."""
        return self._succession.state() if self._succession.takes_part else None

    async def leave(self) -> None:
        """End what runs here, so that another head begins at once. Nothing counts as stopped."""
        await self._succession.leave()

    async def begin(self, config: CanalConfig) -> None:
        """See Deployment."""
        await self._apply(config, True)
        if config.server is not None:
            launch.servers(config.server, self._namespace)
        if config.notify is not None:
            launch.notifier(config.notify, self._namespace)

    async def end(self) -> None:
        """See Deployment."""
        notifier = registry.find_notifier(self._namespace)
        for actor in (*registry.find_servers(self._namespace), notifier):
            if actor is not None:
                ray.kill(actor, no_restart=True)
        for name in self._places.names():
            with contextlib.suppress(InstanceNotFound):
                await self._stop(name, for_good=False)

    async def nodes(self) -> list[dict[str, Any]]:
        """Return each node of the cluster, with its destinations and what they take."""
        return await asyncio.to_thread(self._homes.report)

    async def secrets(self, references: Sequence[str]) -> dict[str, str]:
        """Return what is kept on this machine, for a process on another one. Raises ConfigError."""
        return {reference: kept_secrets.read(reference) for reference in references}

    async def _keep_running(self) -> None:
        while True:
            try:
                await self._check()
            except Exception as error:
                # Whatever happened to one look, the next one comes.
                logger.warning("the destinations could not be looked after: %s", error)
            await self._pause()

    async def _pause(self) -> None:
        """Return after the check period, or as soon as the cluster has other nodes."""
        end_s = time.monotonic() + _CHECK_PERIOD_S
        while time.monotonic() < end_s:
            await asyncio.sleep(_NODES_PERIOD_S)
            with contextlib.suppress(Exception):  # Ray's own, of several kinds: the check tells
                if await self._homes.changed():
                    return

    async def _check(self) -> None:
        await self._homes.look()
        places = self._places.all()
        self._touch_secrets(places)
        # Where fetchers have processes of their own.
        spares = {place.node for place in places.values() if not place.shared}
        if "" in spares:
            spares = spares - {""} | {head_of(cluster_nodes())}
        self._spares = spares - {""}
        held: dict[str, list[str]] = {}
        for destination, place in places.items():
            held.setdefault(place.process, []).append(destination)
        for process, destinations in list(held.items()):
            if len(destinations) > 1 and self._starts.are_often(process):
                del held[process]
                held |= self._separate(process, places, destinations)
        for process, destinations in held.items():
            actor = self._ensure(places[destinations[0]])
            owners = {name: places[name].owner for name in destinations}
            self._ask(process, actor, actor.reconcile, owners)
        self._end_strays({place.process for place in places.values()})
        served = (registry.SERVER_PREFIX, registry.SINK_PREFIX)
        for name, actor in registry.find_by_prefix(served, self._namespace).items():
            self._ask(name, actor, actor.alive)
        if self._asked:
            await asyncio.wait(self._asked.values(), timeout=_ANSWER_S)
        answers = [task for task in self._asked.values() if task.done()]
        self._asked = {name: task for name, task in self._asked.items() if not task.done()}
        await asyncio.gather(*answers)

    def _end_strays(self, wanted: set[str]) -> None:
        """End store processes in which no destination has had its place for a while: a controller
        has ended in the midst of a stop or a hand-over. (A start makes them a moment before.)"""
        now_s = time.monotonic()
        found = registry.names(registry.STORE_PREFIX, self._namespace)
        strays = found - wanted - self._homes.coming()
        self._strays = {name: self._strays.get(name, now_s) for name in strays}
        for name in [name for name, since_s in self._strays.items() if now_s - since_s > _STRAY_S]:
            logger.warning("%s holds no destination; it ends", name)
            actor = registry.find_actor(name, self._namespace)
            if actor is not None:
                ray.kill(actor, no_restart=True)

    def _ask(self, name: str, handle: Any, ask: Any, *arguments: Any) -> None:
        """Ask an actor whether it is there, unless it still owes an answer: the others, and nodes
        that end, do not wait for one that is silent."""
        if name not in self._asked:
            asking = self._replace_if_stalled(name, handle, ask, *arguments)
            self._asked[name] = asyncio.create_task(asking)

    def _separate(
        self, process: str, places: dict[str, PlacementRecord], destinations: Sequence[str]
    ) -> dict[str, list[str]]:
        """Give each destination of a process its own, and end that one. Returns who is where."""
        logger.warning(
            "the process that %s share has ended %d times in a few minutes; each gets a process of "
            "its own, so that the one whose fault it is ends alone",
            ", ".join(destinations),
            ENDS_MAX,
        )
        held = {}
        for name in destinations:
            alone = home_for(name, {}, 1, registry.STORE_PREFIX, places[name].node)
            places[name] = places[name].at(alone)
            self._places.put(name, places[name])
            held[places[name].process] = [name]
        self._starts.forget(process)
        actor = registry.find_actor(process, self._namespace)
        if actor is not None:
            ray.kill(actor, no_restart=True)
        return held

    def _touch_secrets(self, places: dict[str, PlacementRecord]) -> None:
        if time.monotonic() > self._touched_s + _TOUCH_PERIOD_S or not self._touched_s:
            self._touched_s = time.monotonic()
            for place in places.values():
                kept_secrets.touch(place.secrets)
            kept_secrets.touch(self._succession.secrets)

    async def _replace_if_stalled(self, name: str, handle: Any, ask: Any, *arguments: Any) -> None:
        """Kill an actor that answered once and does not now. One that starts may take its time."""
        which = actor_id(handle)
        reply = ask.remote(*arguments)
        try:
            self._homes.loads.note(await answered(self._stall_s, reply) or {})
            self._answered[name] = which
        except ray.exceptions.RayError:
            self._answered.pop(name, None)  # it is restarting
        except asyncio.TimeoutError:
            if self._answered.pop(name, None) == which:
                logger.warning(
                    "%s has not answered for %.0f s; it is replaced", name, self._stall_s
                )
                ray.kill(handle, no_restart=False)
