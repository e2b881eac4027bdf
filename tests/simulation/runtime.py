"""The program's code on simulated ground.

Only the outside is simulated. The life of the destination, its log, its catch-ups, where it starts,
its cursors and the client's connector are the program's own code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import ray

from ray_canal.config import InstanceConfig
from ray_canal.destination.ports import Upstream
from ray_canal.destination.pump import FusedUpstream
from ray_canal.errors import ConnectionLost, InstanceNotFound
from tests.local_runtime import LocalRuntime
from tests.simulation import tables
from tests.simulation.disk import OnDisk, SimulatedSpill
from tests.simulation.processes import OWNER, Handle, Outside, OwnersBackend, SimulatedThread
from tests.simulation.servers import SearchedLog
from tests.simulation.upstream import SimulatedFetcher


class SimulatedRuntime(LocalRuntime):
    """Makes what a simulated destination runs on."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside

    async def upstream(self, config: InstanceConfig) -> Upstream:
        return FusedUpstream(config, SimulatedFetcher(self._outside, config))

    def spill(self, folder: str) -> Any:
        return SimulatedSpill(self._outside)

    def moment_reader(self, config: InstanceConfig) -> Any:
        return None  # tables.Moment reads

    def row_reader(self, config: InstanceConfig) -> Any:
        return tables.RowReader(self._outside, config)

    async def load(self, payload: Any) -> Any:
        return payload.read() if isinstance(payload, OnDisk) else payload


@contextmanager
def in_place(outside: Outside) -> Iterator[None]:
    """The program's code finds these where it looks for Ray and for cursors."""
    outside.upstreams = []  # type: ignore[attr-defined]
    outside.runtime = SimulatedRuntime(outside)

    def open_backend(*_: Any, **__: Any) -> OwnersBackend:
        return OwnersBackend(outside, OWNER.get())

    def find_store(destination: str, namespace: str, limit_s: float = 0.0) -> Handle:
        if outside.owner is None:
            raise InstanceNotFound(f"no destination {destination!r} is running")
        return Handle(outside.owner)

    async def idle(*_: Any) -> None:
        await asyncio.Event().wait()

    @contextmanager
    def log_of(config: InstanceConfig) -> Iterator[SearchedLog]:
        servers = [outside.server(address) for address in config.source.addresses]
        alive = [server for server in servers if server.alive]
        if not alive:
            raise ConnectionLost("no server answers")
        yield SearchedLog(alive[0])

    replaced = {
        "ray_canal.source.start.lookup.log_of": log_of,
        "ray_canal.destination.ownership.open_backend": open_backend,
        "ray_canal.destination.ownership.BackendThread": SimulatedThread,
        "ray_canal.destination.records.schema_records.BackendThread": SimulatedThread,
        "ray_canal.destination.snapshot.snapshot_run.SnapshotPlan": tables.Plan,
        "ray_canal.destination.snapshot.snapshot_run.BackendThread": tables.PlanThread,
        "ray_canal.destination.snapshot.snapshot_moment.ConsistentSnapshot": tables.Moment,
        "ray_canal.destination.snapshot.snapshot_moment.BackendThread": tables.PlanThread,
        "ray_canal.destination.snapshot.snapshot_moment.SourceLoad": tables.Load,
        "ray_canal.destination.snapshot.snapshot_moment.emptied_at": tables.emptied_at,
        "ray_canal.snapshot.changes.touched_keys": tables.touched_keys,
        "ray_canal.snapshot.changes.outcomes": tables.outcomes,
        "ray_canal.destination.snapshot.snapshot_placer.refuse_altered": tables.refuse_altered,
        "ray_canal.destination.snapshot.snapshot_placer.mark_at": tables.mark_at,
        "ray_canal.destination.snapshot.snapshot_placer.replaced_by": tables.replaced_by,
        "ray_canal.destination.snapshot.replaced_tables.replaced_by": tables.replaced_by,
        "ray_canal.destination.snapshot.snapshot_pace.Pace.govern": idle,
        "ray_canal.actors.calls.find_store": find_store,
        "ray_canal.client.transport.keep_joined": lambda *_: None,
        "ray_canal.client.transport.times_joined": lambda: 0,
        "ray.is_initialized": lambda: True,
        "ray.util.get_node_ip_address": lambda *_: "127.0.0.1",  # errors of Ray ask each time
        "ray.cancel": lambda reply: reply.cancel(),
    }
    with mock.patch.object(ray, "init", side_effect=AssertionError("no Ray here")):
        patches = [mock.patch(name, new) for name, new in replaced.items()]
        for patch in patches:
            patch.start()
        try:
            yield
        finally:
            for patch in patches:
                patch.stop()
