"""A head's part in the lease of its deployment (meta/lease.py): it waits, or it is active.

While it waits, nothing of the deployment runs in its cluster. When it becomes active it starts what
its configuration has, and what was applied at another head, but what was stopped. When another head
has taken over, it ends all of that and waits again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import platform
import uuid
from typing import Any, Protocol

from ray_canal.actors.ray_internals import kv_delete, kv_get, kv_put
from ray_canal.config import CanalConfig, InstanceConfig, kept_secrets
from ray_canal.destination.backend_thread import BackendThread
from ray_canal.errors import CanalError, ConfigError, InstanceNotRunning, MetaDamaged
from ray_canal.meta.lease import Lease
from ray_canal.meta.open import open_backend

logger = logging.getLogger(__name__)

_TURNS = 5
"""So many beats in the time that one lasts."""
STOPPED = ""
"""Kept in place of the configuration of a destination that somebody has stopped."""


class ActiveHead(Protocol):
    """The things that a head does when it becomes active, and when it is replaced."""

    async def begin(self, config: CanalConfig) -> None:
        """Start everything. Raises CanalError."""

    async def end(self) -> None:
        """End everything; nothing is forgotten."""


class Succession:
    """The succession of heads. It goes on after a restart of the controller, by a record in Ray's
    key-value store."""

    def __init__(self, namespace: str, deployment: ActiveHead) -> None:
        self._key = f"ray_canal:succession:{namespace}"
        self._namespace = namespace
        self._deployment = deployment
        self._thread = BackendThread(f"lease of {namespace}")
        self._lease: Lease | None = None
        self._life: asyncio.Task[None] | None = None
        self._config: CanalConfig | None = None
        # All is begun; some of it may run; it is to be ended, whoever is active.
        self._begun = self._runs = self._ends = False
        self._beginning: asyncio.Task[None] | None = None
        self._failure = ""
        record = kv_get(self._key)
        if record is not None:
            tree = json.loads(record)
            self._begun = bool(tree["begun"])
            self._runs, self._ends = bool(tree.get("runs", self._begun)), bool(tree.get("ends"))
            self._join(CanalConfig.model_validate_json(tree["config"]), tree["owner"])

    @property
    def takes_part(self) -> bool:
        """Return whether this head shares its deployment with others."""
        return self._config is not None

    def join(self, config: CanalConfig) -> None:
        """Take part from now on, or go on with another configuration."""
        record = kv_get(self._key)
        owner = json.loads(record)["owner"] if record else uuid.uuid4().hex
        if self._config is not None:
            kept_secrets.drop(self.secrets)
        self._join(kept_secrets.with_references(config), owner)
        self._remember()

    @property
    def secrets(self) -> list[str]:
        """Return references to what was put into files for it."""
        return [] if self._config is None else kept_secrets.references(self._config)

    def _remember(self) -> None:
        assert self._config is not None
        record = {
            "owner": self._owner,
            "config": self._config.model_dump_json(),
            "begun": self._begun,
            "runs": self._runs,
            "ends": self._ends,
        }
        kv_put(self._key, json.dumps(record))

    def _join(self, config: CanalConfig, owner: str) -> None:
        """Take part from now on. `config`: with references in place of secrets."""
        self._config, self._owner = config, owner
        if self._life is None:
            self._life = asyncio.create_task(self._live())

    def refuse_waiting(self) -> None:
        """Raises ConfigError: another head is active."""
        if self.takes_part and not self._begun:
            raise ConfigError(
                f"this head waits as a standby, and {self._called()} is active: say it there; or "
                "end that head, and this one takes over"
            )

    def _called(self) -> str:
        holder = None if self._lease is None else self._lease.holder
        return "another head" if holder is None else holder.called or holder.owner

    def state(self) -> dict[str, Any]:
        """Return whether this head is `active`, or may be in a moment (`begins`), which `head` is,
        and what failed at the last turn."""
        holder = None if self._lease is None else self._lease.holder
        begins = not self._begun and (holder is None or holder.owner == self._owner)
        return {
            "active": self._begun,
            "begins": begins,
            "head": self._called(),
            "error": self._failure,
        }

    async def keep(self, changes: dict[str, str]) -> None:
        """Keep what was applied (its configuration) or stopped (STOPPED). Raises MetaUnavailable;
        Fenced: another head has taken over; InstanceNotRunning: not yet."""
        lease = self._lease
        if not self.takes_part:
            return
        if lease is None:
            raise InstanceNotRunning("the lease is not open yet, so this is not kept; do it again")

        def keep() -> None:
            lease.keep({**lease.wanted(), **changes})

        await self._thread.run(keep)

    async def _live(self) -> None:
        while True:
            assert self._config is not None
            try:
                await self._turn(kept_secrets.revealed(self._config))
                self._failure = ""
            except MetaDamaged as error:  # another file is there: it is opened
                self._failure, lease, self._lease = str(error), self._lease, None
                if lease is not None:
                    await self._thread.run(lease.close)
            except Exception as error:  # whatever it was, the next turn comes
                if str(error) != self._failure:
                    logger.warning("the lease of %s: %s", self._namespace, error)
                self._failure = str(error)
            await asyncio.sleep(self._config.ray.lease_s / _TURNS)

    async def _turn(self, config: CanalConfig) -> None:
        if self._lease is None:
            self._lease = await self._thread.run(lambda: self._open(config))
        lease = self._lease
        held = await self._thread.run(lease.turn)
        if self._ends or (self._runs and not held):
            if self._begun:
                logger.warning(
                    "%s: %s has taken over; what runs here ends", self._namespace, self._called()
                )
            await self._end()
        elif held and not self._begun:
            beginning, self._beginning = self._beginning, None
            if beginning is None:  # beats go on meanwhile
                beginning = asyncio.create_task(self._begin(config, lease))
            if beginning.done():
                beginning.result()
            else:
                self._beginning = beginning

    async def _begin(self, config: CanalConfig, lease: Lease) -> None:
        logger.warning("%s: this head is active now", self._namespace)
        self._runs = True
        self._remember()
        merged = merge(config, await self._thread.run(lease.wanted))
        await self._deployment.begin(merged)
        await self.keep(kept_texts(merged))
        self._begun, self._beginning = True, None
        self._remember()

    async def _end(self) -> None:
        """End everything. What fails or is interrupted on the way is made at the next turn, also of
        the next controller: what was left would be fenced, and not run when this head is active
        again."""
        beginning, self._beginning = self._beginning, None
        if beginning is not None:
            beginning.cancel()
            await asyncio.gather(beginning, return_exceptions=True)
        self._begun, self._ends = False, True
        self._remember()
        await self._deployment.end()
        self._runs = self._ends = False
        self._remember()

    def _open(self, config: CanalConfig) -> Lease:
        backend = open_backend(config.meta)
        called, lasts_s = platform.node(), config.ray.lease_s
        return Lease(backend, self._namespace, self._owner, called, lasts_s)

    async def leave(self) -> None:
        """End everything here, and let another head begin at once."""
        if self._life is not None:
            self._life.cancel()
            await asyncio.gather(self._life, return_exceptions=True)
            self._life = None
        if self._runs:
            await self._end()
        kept_secrets.drop(self.secrets)
        kv_delete(self._key)
        lease, self._lease, self._config = self._lease, None, None
        if lease is not None:
            with contextlib.suppress(CanalError):
                await self._thread.run(lease.release)
            await self._thread.run(lease.close)


def kept_texts(config: CanalConfig) -> dict[str, str]:
    """Return what is kept of a configuration, by destination: without secrets in clear text."""
    return {
        each.destination: kept_secrets.with_references(each, lambda _: "kept:").model_dump_json(
            exclude_defaults=True
        )
        for each in config.instance
    }


def merge(config: CanalConfig, wanted: dict[str, str]) -> CanalConfig:
    """Return what should run here: what the configuration has, and what was applied elsewhere, but
    what was stopped."""
    own = {each.destination: each for each in config.instance}
    found = [each for name, each in own.items() if wanted.get(name) != STOPPED]
    for name, text in wanted.items():
        if text == STOPPED or name in own:
            continue
        instance = InstanceConfig.model_validate_json(text)
        if kept_secrets.references(instance):
            logger.warning(
                "destination %s was started at another head with a password in clear text, which "
                "is not kept: it does not run here; start it, or give env:NAME or file:PATH",
                name,
            )
            continue
        found.append(instance)
    return config.model_copy(update={"instance": tuple(found)})
