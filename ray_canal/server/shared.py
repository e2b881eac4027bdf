"""State that all connections of one server share."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field

from ray_canal.config import ServerConfig
from ray_canal.server.access import Access
from ray_canal.server.limits import MemoryBudget, Places
from ray_canal.server.ports import OpenStore, Store
from ray_canal.server.turns import Turns

_BATCHES_RENDERED_AT_ONCE = 4


@dataclass(slots=True)
class Shared:
    """The state that all connections of one server share. `loading`: of the kernels that render."""

    config: ServerConfig
    access: Access
    open_store: OpenStore
    executor: Executor
    budget: MemoryBudget
    places: Places
    rendering: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(_BATCHES_RENDERED_AT_ONCE)
    )
    turns: Turns = field(default_factory=Turns)
    stores: dict[str, Store] = field(default_factory=dict)
    loading: Future[None] | None = None
    requests: int = 0
    sent_bytes: int = 0

    @property
    def renders_at_once(self) -> bool:
        """True once nothing has to be loaded, or compiled, before a batch is rendered."""
        return self.loading is not None and self.loading.done()
