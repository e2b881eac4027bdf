"""A subscriber's messages as streams of one table's record batches, which Flight carries."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ray_canal.client.connector import Connector
from ray_canal.client.message import Message
from ray_canal.errors import BatchNotFound, CanalError, ConsumerError, InstanceRestarted

_FIRST_UNITS = 1


ID_COLUMN = "batch_id"
_ID_FIELD = pa.field(ID_COLUMN, pa.int64(), nullable=False)


class StreamBatch(NamedTuple):
    """At most `batch_rows` rows of one message. `is_last`: of the message."""

    batch: pa.RecordBatch
    batch_id: int
    is_last: bool


class TableStream:
    """The rows of one table for one subscriber, in log order.

    Flight's streams have one schema, so a stream ends where the table's columns change; the next
    one goes on from there. Each row has the id of its message in the column `batch_id`. A message
    is acked whole, so that is refused while rows of it wait to be read. Messages without a row of
    the table need no ack of the client's; they go with the ack before them.

    Calls may come from several threads; one stream is read at a time.
    """

    def __init__(self, connector: Connector, batch_rows: int, batch_size: int) -> None:
        """`batch_size`: of one get, in memory units (Connector.get_without_ack)."""
        self._connector = connector
        self._batch_rows = batch_rows
        self._batch_size = batch_size
        self._reading = threading.Lock()
        self._state = threading.RLock()  # of what follows; held for no call that waits for rows
        self._pieces: deque[StreamBatch] = deque()
        self._outstanding: dict[int, bool] = {}  # id: whether it has rows, so the client acks it
        self._rollbacks = 0
        self.schema: pa.Schema | None = None

    @property
    def outstanding(self) -> list[int]:
        """Ids that the client may ack, smallest first."""
        with self._state:
            return [batch_id for batch_id, has_rows in self._outstanding.items() if has_rows]

    def pieces(self, wait_s: float, rows_max: int = 0) -> Iterator[StreamBatch]:
        """Yield what follows, until nothing new comes for `wait_s` seconds, the table's columns
        change, or the message ends that reaches `rows_max` rows (0: no limit). What was yielded by
        one that ends in another way comes again with the next: its client has lost some of it.

        Raises ConsumerError: another stream of this subscriber is being read.
        """
        if not self._reading.acquire(blocking=False):
            # pyarrow 25, the last one for Python 3.10, leaves a stream whose client went away to
            # the collector of cycles.
            gc.collect()
            if not self._reading.acquire(blocking=False):
                raise ConsumerError("a stream of this subscriber is being read; end it first")
        rollbacks, is_whole = self._rollbacks, False
        try:
            yield from self._read_for(wait_s, rows_max, rollbacks)
            is_whole = True
        finally:
            # Where that fails, the ack of a later batch is refused.
            with contextlib.suppress(CanalError):
                if not is_whole and self._rollbacks == rollbacks:
                    self.rollback()
            self._reading.release()

    def _read_for(self, wait_s: float, rows_max: int, rollbacks: int) -> Iterator[StreamBatch]:
        rows, schema = 0, None
        while self._fill(wait_s):
            with self._state:
                if self._rollbacks != rollbacks or not self._pieces:
                    return
                piece = self._pieces[0]
                if schema is not None and piece.batch.schema != schema:
                    return
                self._pieces.popleft()
                schema = self.schema = piece.batch.schema
            yield piece
            rows += piece.batch.num_rows
            if rows_max and rows >= rows_max and piece.is_last:
                return

    def _fill(self, wait_s: float) -> bool:
        """Have a piece ready; return False if nothing came for so long, or the log has ended."""
        units, timeout = self._batch_size, None  # first, whatever is there now
        while not self._pieces:
            try:
                message = self._connector.get_without_ack(units, timeout)
            except InstanceRestarted:
                self._forget()
                raise
            if message:
                self._take(message)
            elif message.finished or timeout is not None or not wait_s:
                return False
            else:
                units, timeout = _FIRST_UNITS, wait_s  # the first of what comes
        return True

    def _take(self, message: Message) -> None:
        found = [
            StreamBatch(_with_id(batch.slice(at, self._batch_rows), message.id), message.id, False)
            for batch in message.batches
            for at in range(0, batch.num_rows, self._batch_rows)
        ]
        with self._state:
            self._outstanding[message.id] = bool(found)
            if found:
                self._pieces.extend((*found[:-1], found[-1]._replace(is_last=True)))
            else:
                self._ack_empty()

    def ack(self, batch_id: int) -> None:
        """Confirm everything up to this batch. Raises BatchNotFound."""
        with self._state:
            if not self._outstanding.get(batch_id):
                raise BatchNotFound(
                    f"batch {batch_id} is not outstanding; these can be acked: {self.outstanding}. "
                    "A rollback, a new subscription or a restart makes earlier ids void"
                )
            if self._pieces and self._pieces[0].batch_id <= batch_id:
                raise ConsumerError(
                    f"batch {batch_id} has rows that were not read yet: its table's columns change "
                    "within it, so they come with the next stream; ack it after that"
                )
            try:
                for each in [each for each in self._outstanding if each <= batch_id]:
                    self._connector.ack(each)
                    del self._outstanding[each]
                self._ack_empty()
            except InstanceRestarted:
                self._forget()
                raise

    def _ack_empty(self) -> None:
        """Ack the messages at the front that had nothing for the client."""
        for each in list(self._outstanding):
            if self._outstanding[each]:
                return
            self._connector.ack(each)
            del self._outstanding[each]

    def rollback(self) -> None:
        """Give back whatever is not acked; it comes again with the next stream."""
        with self._state:
            self._forget()
            self._connector.rollback()

    def _forget(self) -> None:
        """Drop what was handed out: it comes again, and a stream that is being read ends."""
        with self._state:
            self._rollbacks += 1
            self._pieces.clear()
            self._outstanding.clear()

    def unsubscribe(self) -> None:
        """Stop being a subscriber: the cursor is forgotten."""
        self._forget()
        self._connector.unsubscribe()

    def close(self) -> None:
        """Leave; the subscription and its cursor stay."""
        self._forget()
        self._connector.close()


def _with_id(batch: pa.RecordBatch, batch_id: int) -> pa.RecordBatch:
    ids = pa.array(np.full(batch.num_rows, batch_id, np.int64))
    return batch.append_column(_ID_FIELD, ids)
