"""A subscriber in its own process that journals what it receives and never gives up.

    python -m tests.fault.subscriber ADDRESS_FILE DESTINATION CLIENT_ID FILTER BATCH_SIZE POLICY
        JOURNAL [HOST:PORT | asyncio:SEED]

With HOST:PORT it goes by Canal's TCP port, without Ray, and of each row it journals the key. With
asyncio it cancels its gets at random moments for some seconds after each SIGUSR1.
A head that dies and comes back is the client's business, not this program's. Every message is
written and fsync'd before its ack, every ack after it. "start" stands where what was not acked may
come again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from tests.fault.journal import to_ipc, write

CANCELLING_S = 3.0

_IMAGE = pa.struct([("id", pa.int64())])
ROWS = pa.schema(
    [
        ("timeline", pa.int64()),
        ("journal_name", pa.string()),
        ("position", pa.int64()),
        ("row", pa.int64()),
        ("before", _IMAGE),
        ("after", _IMAGE),
    ]
)
"""Of a batch of keys; its metadata names the table, as that of batches does."""


def main(
    address_file: str,
    destination: str,
    client_id: str,
    tables: str,
    batch_size: str,
    policy: str,
    journal: str,
    how: str = "",
) -> None:
    seed = int(how.removeprefix("asyncio:")) if how.startswith("asyncio:") else None
    tcp = "" if seed is not None else how
    address = Path(address_file)
    while not address.exists():
        time.sleep(0.05)
    os.environ["RAY_ADDRESS"] = address.read_text()
    if not tcp:
        threading.Thread(target=point_to, args=(address,), daemon=True).start()
    with Path(journal).open("ab") as out:
        while True:
            write(out, ("start", None))
            wishes: Any = out, destination, int(client_id), tables, int(batch_size), policy
            try:
                follow(*wishes, tcp) if seed is None else asyncio.run(Cancelling(seed).run(*wishes))
            except _retryable() as error:
                print(f"{time.time():.1f} {type(error).__name__}: {error}", flush=True)
                time.sleep(0.3)


def point_to(address: Path) -> None:
    """Each head has an address of its own; outside of tests a name would stand for all of them."""
    while True:
        time.sleep(0.1)
        with contextlib.suppress(FileNotFoundError):
            os.environ["RAY_ADDRESS"] = address.read_text()


def _retryable() -> tuple[type[Exception], ...]:
    from ray_canal.errors import (
        ConnectionLost,
        InstanceNotFound,
        InstanceNotRunning,
        InstanceRestarted,
    )

    return InstanceNotFound, InstanceNotRunning, InstanceRestarted, ConnectionLost


def follow(
    out: IO[bytes],
    destination: str,
    client_id: int,
    tables: str,
    batch_size: int,
    policy: Any,
    tcp: str,
) -> None:
    import ray_canal as canal
    from ray_canal.errors import InstanceRestarted

    with canal.connect(destination, client_id, address=tcp) as connector:
        connector.subscribe(tables, **({} if tcp else {"policy": policy}))
        write(out, ("subscribed", None))
        while True:
            message = connector.get_without_ack(batch_size, timeout=0.2)
            if not message:
                continue
            try:
                found = [keys_of(message)] if tcp else message.batches_by_part()
                parts: Any = [[to_ipc(b) for b in part] for part in found]
                write(out, ("message", parts))
                connector.ack(message.id)
                write(out, ("ack", message.id))
            except InstanceRestarted:
                write(out, ("start", None))


class Cancelling:
    """A subscriber by asyncio: at each SIGUSR1 its gets are cancelled for a while, each at a random
    moment, also as its answer arrives."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._until = 0.0
        self._cancelled = 0

    def _begin(self) -> None:
        self._until = time.monotonic() + CANCELLING_S

    async def run(
        self,
        out: IO[bytes],
        destination: str,
        client_id: int,
        tables: str,
        batch_size: int,
        policy: Any,
    ) -> None:
        import ray_canal as canal
        from ray_canal.errors import InstanceRestarted

        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self._begin)
        async with canal.connect_async(destination, client_id) as connector:
            await connector.subscribe(tables, policy=policy)
            write(out, ("subscribed", None))
            while True:
                message = await self._got(connector.get_without_ack(batch_size, timeout=0.2))
                if not message:
                    continue
                try:
                    parts = [[to_ipc(b) for b in part] for part in message.batches_by_part()]
                    write(out, ("message", parts))
                    await connector.ack(message.id)
                    write(out, ("ack", message.id))
                except InstanceRestarted:
                    write(out, ("start", None))

    async def _got(self, get: Any) -> Any:
        """The message, or None: it was cancelled."""
        getting = asyncio.ensure_future(get)
        if time.monotonic() < self._until:
            await asyncio.sleep(self._rng.choice((0.0, 0.001, 0.003, 0.01, 0.05)))
            if getting.cancel():
                self._cancelled += 1
        elif self._cancelled:
            print(f"{time.time():.1f} {self._cancelled} gets were cancelled", flush=True)
            self._cancelled = 0
        try:
            return await getting
        except asyncio.CancelledError:
            return None


def keys_of(message: Any) -> list[pa.RecordBatch]:
    """A batch for each entry of rows: the rows' ids, and of their images the key."""
    from ray_canal.canal.generated import EntryProtocol_pb2 as pb

    found = []
    for entry in message.entries:
        if entry.entryType != pb.ROWDATA:
            continue
        change = pb.RowChange.FromString(entry.storeValue)
        rows = [
            {
                "timeline": message.timeline,
                "journal_name": entry.header.logfileName,
                "position": entry.header.logfileOffset,
                "row": number,
                "before": key_of(row.beforeColumns),
                "after": key_of(row.afterColumns) or unchanged_key(row),
            }
            for number, row in enumerate(change.rowDatas)
        ]
        if rows:
            names = {"canal.schema": entry.header.schemaName, "canal.table": entry.header.tableName}
            found.append(pa.RecordBatch.from_pylist(rows, ROWS).replace_schema_metadata(names))
    return found


def key_of(columns: Any) -> dict[str, int] | None:
    return next(({"id": int(each.value)} for each in columns if each.name == "id"), None)


def unchanged_key(row: Any) -> dict[str, int] | None:
    """Return the key of an UPDATE whose after image lacks it (binlog_row_image)."""
    return key_of(row.beforeColumns) if row.afterColumns else None


if __name__ == "__main__":
    main(*sys.argv[1:])
