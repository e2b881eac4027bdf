"""Batches that one connection's client has got and not acked, and calls about them that failed."""

from __future__ import annotations

from dataclasses import dataclass, field

from ray_canal.errors import BatchNotFound, InstanceRestarted, NotSubscribed, SubscriberReplaced
from ray_canal.model.message import EMPTY_BATCH

VOID = BatchNotFound, InstanceRestarted, NotSubscribed, SubscriberReplaced
"""Errors of an ack or a rollback that say that the batch is outstanding no more."""


@dataclass(slots=True)
class Outstanding:
    """Batches of one subscriber that went over this connection, and their epoch. `to_ack`: one that
    was sent and whose automatic ack failed; `to_give_back`: one that was not sent, and its epoch,
    whose rollback failed."""

    epoch: int
    batches: set[int] = field(default_factory=set)
    acked_by_us: int = EMPTY_BATCH
    to_ack: int | None = None
    to_give_back: tuple[int, int] | None = None

    def rolled_back(self, batch_id: int) -> None:
        """Forget a batch and those after it."""
        self.batches = {kept for kept in self.batches if kept < batch_id}
        if self.to_ack is not None and self.to_ack >= batch_id:
            self.to_ack = None
        if self.to_give_back is not None and self.to_give_back[0] >= batch_id:
            self.to_give_back = None
