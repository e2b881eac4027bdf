"""`python -m benchmarks.tcp`: one subscriber of a cluster, by Ray handle and by Canal's TCP port.

W1's binlog files are the source; each subscriber receives the whole of it in batches of about 16 MB
of entries, in turns, so that a busy minute of the machine hits all:

    arrow     Ray handle, Arrow batches (views over shared memory)
    entries   Ray handle, entries rendered in the client's process
    tcp       a socket that reads MESSAGES, acks and asks again, as a client in C would

Seconds run from the first get to the last ack; the destination starts before, and its log of 64 MiB
is full by then, for all alike. The goal: tcp at 500 k rows/s or more.
"""

from __future__ import annotations

import contextlib
import os
import socket
import statistics
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

import ray_canal as canal
from benchmarks import workloads as work
from ray_canal.canal import packet as packets
from ray_canal.canal.generated import CanalProtocol_pb2 as pb

BATCH_UNITS = 4800
"""Memory units of a get: 16 MB of entries, which are 3.4 times as long as their binlog."""
GOAL_KROWS = 500

_DESTINATION = "bench-tcp"
_CLIENT = "1001"
_CHUNK = 1 << 20

console = Console()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def by_handle(view: str) -> Callable[[work.Made, int], tuple[float, int, int]]:
    """(seconds, rows, bytes) of a subscriber with a Ray handle."""

    def receive(made: work.Made, port: int) -> tuple[float, int, int]:
        rows = size = 0
        with canal.connect(_DESTINATION) as connector:
            connector.subscribe()
            began = time.perf_counter()
            while rows < made.rows:
                message = connector.get_without_ack(BATCH_UNITS, timeout=5.0)
                if view == "arrow":
                    rows += sum(batch.num_rows for batch in message.batches)
                else:
                    size += len(message.entry_bytes)
                    rows += message.row_count
                connector.ack(message.id)
            return time.perf_counter() - began, rows, size

    return receive


class _Socket:
    """Reads packets and throws their entries away."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._buffer = memoryview(bytearray(_CHUNK))

    def send(self, *frames: bytes) -> None:
        self._socket.sendall(b"".join(frames))

    def _exactly(self, size: int) -> bytes:
        at = 0
        while at < size:
            at += self._socket.recv_into(self._buffer[at:size])
        return bytes(self._buffer[:size])

    def packet(self) -> bytes:
        """A small packet, or the first 32 bytes of a large one, whose rest is read over."""
        (size,) = struct.unpack(">i", self._exactly(4))
        head = self._exactly(min(size, 32))
        left = size - len(head)
        while left:
            count = self._socket.recv_into(self._buffer[: min(left, _CHUNK)])
            if not count:
                raise EOFError
            left -= count
        self.size = size
        return head

    def close(self) -> None:
        self._socket.close()


def _named(kind: Any, **fields: Any) -> Any:
    return kind(destination=_DESTINATION, client_id=_CLIENT, **fields)


def by_tcp(made: work.Made, port: int) -> tuple[float, int, int]:
    """(seconds, rows, bytes) of a subscriber with a socket."""
    client = _Socket(port)
    with contextlib.closing(client):
        client.packet()
        client.send(packets.framed(pb.CLIENTAUTHENTICATION, pb.ClientAuth()))
        client.packet()
        client.send(packets.framed(pb.SUBSCRIPTION, _named(pb.Sub)))
        client.packet()
        get = packets.framed(pb.GET, _named(pb.Get, fetch_size=BATCH_UNITS, timeout=1000, unit=2))
        size = 0
        began = ended = time.perf_counter()
        client.send(get)
        while (batch_id := _batch_id(client.packet())) > 0:
            size += client.size
            ended = time.perf_counter()
            client.send(packets.framed(pb.CLIENTACK, _named(pb.ClientAck, batch_id=batch_id)), get)
        return ended - began, made.rows, size


def _batch_id(head: bytes) -> int:
    """The batch id in the head of a MESSAGES packet; -1: it is empty."""
    if head[0] == 0x10:  # a version stands in empty ones alone
        return -1
    at = 3
    while head[at] & 0x80:
        at += 1
    at += 2  # the body's length, then the field of the id
    value = shift = 0
    while True:
        value |= (head[at] & 0x7F) << shift
        if not head[at] & 0x80:
            return value
        at, shift = at + 1, shift + 7


SUBSCRIBERS: dict[str, Callable[[work.Made, int], tuple[float, int, int]]] = {
    "arrow": by_handle("arrow"),
    "entries": by_handle("entries"),
    "tcp": by_tcp,
}


def _measured(name: str, made: work.Made) -> tuple[float, int, int]:
    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="ray_canal_bench_") as folder:
        canal.start(
            {
                "meta": {"path": str(Path(folder) / "meta.db")},
                "server": {"host": "127.0.0.1", "port": port},
                "instance": [
                    {
                        "destination": _DESTINATION,
                        "source": {"files": list(made.files), "start": "earliest"},
                    }
                ],
            }
        )
        try:
            _until_full()
            seconds, rows, size = SUBSCRIBERS[name](made, port)
        finally:
            canal.stop_serving()
            canal.stop(_DESTINATION)
    if rows != made.rows:
        raise SystemExit(f"{name}: {rows} rows of {made.rows}")
    return seconds, rows, size


def _until_full() -> None:
    deadline, filled = time.monotonic() + 60, -1.0
    while time.monotonic() < deadline:
        status = canal.status(_DESTINATION)[_DESTINATION]["store"]
        if status and status["fill"] == filled > 0:
            return
        filled = status["fill"] if status else -1.0
        time.sleep(1.0)


def main(
    runs: Annotated[int, typer.Option(min=1)] = 3,
    scale: Annotated[float, typer.Option(min=0.001)] = 0.25,
    only: Annotated[list[str] | None, typer.Option()] = None,
) -> None:
    """Measure and print."""
    import ray

    made = work.make(work.WORKLOADS["W1"], scale, lambda count: None)
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
    found: dict[str, list[tuple[float, int, int]]] = {n: [] for n in only or SUBSCRIBERS}
    for _ in range(runs):
        for name, results in found.items():
            results.append(_measured(name, made))
    ray.shutdown()
    table = Table(title=f"W1, {made.rows:,} rows, load {os.getloadavg()[0]:.1f}, {runs} runs")
    for column in ("subscriber", "median k rows/s", "best", "MB of entries", "MB/s"):
        table.add_column(column, justify="left" if column == "subscriber" else "right")
    for name, results in found.items():
        rates = [rows / seconds / 1000 for seconds, rows, _ in results]
        size = results[0][2] / 1e6
        median_s = statistics.median(seconds for seconds, _, _ in results)
        table.add_row(
            name,
            f"{statistics.median(rates):,.0f}",
            f"{max(rates):,.0f}",
            f"{size:,.0f}" if size else "-",
            f"{size / median_s:,.0f}" if size else "-",
        )
    console.print(table)
    console.print(f"goal: tcp at {GOAL_KROWS} k rows/s or more")


if __name__ == "__main__":
    typer.run(main)
