"""A subscriber in its own process that journals what it receives and never gives up.

    python -m tests.fault.subscriber ADDRESS_FILE DESTINATION CLIENT_ID FILTER BATCH_SIZE POLICY
        JOURNAL

Every message is written and fsync'd before its ack, every ack after it. "start" stands where what
was not acked may come again.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import IO, Any

from tests.consumer import to_ipc, write


def main(
    address_file: str,
    destination: str,
    client_id: str,
    tables: str,
    batch_size: str,
    policy: str,
    journal: str,
) -> None:
    import ray

    address = Path(address_file)
    while not address.exists():
        time.sleep(0.05)
    ray.init(address=address.read_text(), log_to_driver=False, configure_logging=False)
    with Path(journal).open("ab") as out:
        while True:
            write(out, ("start", None))
            try:
                follow(out, destination, int(client_id), tables, int(batch_size), policy)
            except _retryable() as error:
                print(f"{time.time():.1f} {type(error).__name__}: {error}", flush=True)
                time.sleep(0.1)


def _retryable() -> tuple[type[Exception], ...]:
    from ray_canal.errors import (
        ConnectionLost,
        InstanceNotFound,
        InstanceNotRunning,
        InstanceRestarted,
    )

    return InstanceNotFound, InstanceNotRunning, InstanceRestarted, ConnectionLost


def follow(
    out: IO[bytes], destination: str, client_id: int, tables: str, batch_size: int, policy: Any
) -> None:
    import ray_canal as canal
    from ray_canal.errors import InstanceRestarted

    with canal.connect(destination, client_id) as connector:
        connector.subscribe(tables, policy=policy)
        write(out, ("subscribed", None))
        while True:
            message = connector.get_without_ack(batch_size, timeout=0.2)
            if not message:
                continue
            try:
                parts: Any = [[to_ipc(b) for b in part] for part in message.batches_by_part()]
                write(out, ("message", parts))
                connector.ack(message.id)
                write(out, ("ack", message.id))
            except InstanceRestarted:
                write(out, ("start", None))


if __name__ == "__main__":
    main(*sys.argv[1:])
