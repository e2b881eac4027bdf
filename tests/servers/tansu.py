"""One Tansu 0.6, a broker that speaks Kafka's protocol, from PyPI: in memory, on loopback.

It refuses producers that were replaced and ends transactions by markers, as Kafka does;
tests/servers/aborted_transactions.py adds what it lacks. It knows no limit for a topic's messages,
and its high watermark is the first message of the last batch. It is no proof of Kafka's own broker.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.servers.aborted_transactions import Completed
from tests.servers.fetch import fetch_tansu
from tests.servers.run import free_port


@contextlib.contextmanager
def start_tansu(
    folder: Path, *, tls: ssl.SSLContext | None = None, timeout_s: float = 60.0
) -> Iterator[str]:
    """The address of a running broker, whose log is in `folder`. `tls`: it is reached by TLS alone.
    Raises FetchError."""
    program, port = fetch_tansu(), free_port()
    completed = Completed(port, tls)
    address = f"127.0.0.1:{completed.port}"
    command = [
        str(program), "--storage-engine", "memory://tansu/",
        "--listener-url", f"tcp://127.0.0.1:{port}", "--advertised-listener-url", f"tcp://{address}",
    ]  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "tansu.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + timeout_s
        while not _answers(port):
            if process.poll() is not None or time.monotonic() > deadline:
                text = (folder / "tansu.log").read_text(errors="replace")
                raise RuntimeError(f"Tansu did not start\n{text[-1500:]}")
            time.sleep(0.05)
        yield address
    finally:
        process.kill()
        process.wait()
        completed.close()


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
