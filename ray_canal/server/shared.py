"""State that all connections of one server share."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from dataclasses import dataclass, field

from ray_canal.config import ServerConfig
from ray_canal.server.access import Access
from ray_canal.server.limits import MemoryBudget, Places
from ray_canal.server.ports import OpenStore, Store
from ray_canal.server.turns import Turns

_BATCHES_RENDERED_AT_ONCE = 4


@dataclass(slots=True)
class Shared:
    """The state that all connections of one server share."""

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
    requests: int = 0
    sent_bytes: int = 0
