"""One destination in this process: `DestinationApi`, answered by its parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ray_canal.config import InstanceConfig, MetaConfig
from ray_canal.destination.api import (
    AckRequest,
    ClientRequest,
    GetRequest,
    PollRequest,
    RollbackRequest,
    SubscribeRequest,
)
from ray_canal.destination.delivery import Store
from ray_canal.destination.ownership import Claim
from ray_canal.destination.ports import Runtime
from ray_canal.model.message import MessageHead


def start_destination(
    config: InstanceConfig, meta: MetaConfig, runtime: Runtime, claim: Claim | None = None
) -> Destination:
    """Return a destination that begins to start, inside a running event loop: that is its recovery,
    too. `claim`: what it knows of its ownership from its life before."""
    return Destination(Store(config, meta, runtime, claim))


class Destination:
    """See `DestinationApi`."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def subscribe(self, request: SubscribeRequest) -> int:
        return await self.store.subscribe(
            request.client_id, request.filter, request.rollback, request.wishes, request.holder
        )

    async def unsubscribe(self, request: ClientRequest) -> bool:
        return await self.store.unsubscribe(request.client_id, request.holder)

    async def get_without_ack(self, request: GetRequest) -> MessageHead:
        return await self.store.get_without_ack(
            request.client_id,
            request.batch_size,
            request.timeout,
            request.holder,
            request.caller,
        )

    async def get(self, request: GetRequest) -> MessageHead:
        return await self.store.get(
            request.client_id,
            request.batch_size,
            request.timeout,
            request.holder,
            request.caller,
        )

    async def poll(self, request: PollRequest) -> MessageHead:
        return await self.store.poll(
            request.client_id,
            request.batch_size,
            request.timeout or 0.0,
            request.done,
            request.untracked,
            request.holder,
            request.caller,
        )

    async def ack(self, request: AckRequest) -> None:
        await self.store.ack(
            request.client_id, request.batch_id, request.epoch, request.holder, keep=request.keep
        )

    async def rollback(self, request: RollbackRequest) -> None:
        await self.store.rollback(
            request.client_id, request.batch_id, request.epoch, request.holder
        )

    async def rollback_all(self, request: RollbackRequest) -> None:
        await self.rollback(request)

    async def list_batch_ids(self, request: ClientRequest) -> list[int]:
        return await self.store.list_batch_ids(request.client_id, request.holder)

    async def filter_of(self, request: ClientRequest) -> str | None:
        return await self.store.filter_of(request.client_id)

    async def touch(self, request: ClientRequest) -> None:
        await self.store.touch(request.client_id, request.holder)

    async def wait_running(self, timeout: float) -> None:
        await self.store.wait_running(timeout)

    async def status(self) -> dict[str, Any]:
        return await self.store.status()

    async def subscribers(self) -> list[dict[str, Any]]:
        return await self.store.subscribers()

    async def operate(
        self, client_id: int, action: str, argument: str | int | None = None
    ) -> dict[str, Any] | None:
        return await self.store.operate(client_id, action, argument)

    async def change_filter(self, client_id: int, filter_text: str) -> None:
        await self.store.change_filter(client_id, filter_text)

    async def change_instance_filter(self, changes: dict[str, Any]) -> dict[str, Any]:
        return await self.store.change_instance_filter(changes)

    async def check_chunks(self, references: Sequence[Any]) -> None:
        await self.store.check_chunks(references)

    async def stop(self) -> None:
        await self.store.stop()
