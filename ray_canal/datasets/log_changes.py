"""The changes in a destination's log, as a Ray Dataset that is acked when it was worked through.

The messages are fetched as references: read tasks map the decoded chunks where they are. On the
store's node that copies nothing; on another one Ray fetches the chunk once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ray.data import Dataset

from ray_canal.actors.calls import map_chunks
from ray_canal.client.connector import Connector
from ray_canal.client.message import Message
from ray_canal.datasets.batch_source import BatchSource, dataset_of
from ray_canal.errors import CanalError, ConfigError

_log = logging.getLogger(__name__)


@contextmanager
def changes(
    connector: Connector,
    *,
    batch_size: int = 24576,
    timeout: float = 1.0,
    messages: int = 16,
) -> Iterator[Dataset]:
    """The next changes of a subscribed connector as a Ray Dataset, a read task for each message.

        with canal.changes(connector) as dataset:
            dataset.write_parquet("/lake/orders")

    When the block has ended they are acked; when it raises, they come again: at least once, in
    order. They are those of up to `messages` messages, each as by
    `get_without_ack(batch_size, timeout)`: the log keeps them until they are acked, so all of them
    should fit into it (store.buffer_size). Fewer, where no more came within `timeout`; the Dataset
    may be empty. It is to be read within the block. Rows have the table's name as a first column,
    `table`.
    """
    taken: list[Message] = []
    try:
        while len(taken) < messages:
            message = connector.get_without_ack(batch_size, timeout)
            if not message:
                break
            _refuse_remote(message)
            taken.append(message)
        parts = [_Part(message.head, message.transform) for message in taken]
        yield dataset_of(BatchSource("Changes", parts), len(parts))
    except BaseException:
        _give_back(connector)
        raise
    for message in taken:
        connector.ack(message.id)


class _Part:
    """A message, read in another process."""

    def __init__(self, head: Any, transform: Any) -> None:
        self._head = head
        self._transform = transform

    def __call__(self) -> Iterator[list[Any]]:
        return Message(self._head, map_chunks, transform=self._transform).batches_by_part()


def _refuse_remote(message: Message) -> None:
    """Raises ConfigError: it came over TCP or Flight, so other processes cannot read its chunks."""
    is_message = isinstance(message, Message)
    if not is_message or any(isinstance(part.payload, str) for part in message.head.parts):
        raise ConfigError("a Dataset needs a connector by Ray: connect without an address")


def _give_back(connector: Connector) -> None:
    """Roll back without hiding the error that is on its way."""
    try:
        connector.rollback()
    except CanalError as error:
        _log.warning("no rollback now (what was not acked comes again): %s", error)
