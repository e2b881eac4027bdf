"""What is done to a running deployment: processes killed and stopped, connections cut and stalled.

A fault returns when the disturbance is over (the signal is sent, the stall has ended, the server is
up again); how long the recovery takes is measured from there.
"""

from __future__ import annotations

import contextlib
import random
import resource
import signal
import time
from collections.abc import Callable
from typing import Any, Protocol

from tests.fault.second_node import kill_second_node
from tests.fault.sinks import DatabaseMirror
from tests.processes import (
    BUFFER,
    CONTROLLER,
    FETCHER,
    GCS,
    PARSER,
    RAYLET,
    SERVER,
    SINK,
    SPARE,
    SPILLER,
    STORE,
    running,
    send,
)
from tests.proxy import Proxy
from tests.servers import Server


class Deployment(Protocol):
    """What faults are done to."""

    rng: random.Random

    @property
    def server(self) -> Server:
        """The one that is written to."""
        ...

    @property
    def proxy(self) -> Proxy:
        """Between the destination and a server."""
        ...

    @property
    def mirror(self) -> DatabaseMirror:
        """The sink of that kind; there is none where no sinks run."""
        ...

    @property
    def head_pid(self) -> int: ...

    def kill_head(self) -> None:
        """SIGKILL of Ray and all its processes at once; and start it again."""
        ...

    def kill_everything(self) -> None:
        """SIGKILL of Ray, all its processes and all subscribers, at once; and start them again."""
        ...

    def kill_subscriber(self) -> None:
        """SIGKILL of one of them; and start it again."""
        ...

    def subscriber_pid(self) -> int:
        """One of them."""
        ...

    def run_beside(self, module: str, *arguments: object) -> None:
        """Run a program to its end; its first argument is the cluster's address."""
        ...

    def spilling_pid(self) -> int:
        """The one whose part of the log goes to disk."""
        ...

    def asyncio_pid(self) -> int:
        """The one that goes by asyncio; SIGUSR1: its gets are cancelled for a while."""
        ...


Kinds = dict[str, tuple[str, int, Callable[[Any], None]]]
"""Name: group (its recoveries are summed up together), weight, what is done to a Deployment."""

_SPILL_LIMIT_S = 30.0


def _pid(run: Deployment, *roles: str) -> int | None:
    found = [pid for role in roles for pid in running(role, run.head_pid)]
    return run.rng.choice(found) if found else None


def kill(*roles: str) -> Callable[[Deployment], None]:
    def fault(run: Deployment) -> None:
        for role in roles:
            pid = _pid(run, role)
            if pid is not None:
                send(pid, signal.SIGKILL)

    return fault


def stop(role: str, *seconds: float) -> Callable[[Deployment], None]:
    """SIGSTOP, and SIGCONT after one of `seconds`, if it was not replaced meanwhile."""

    def fault(run: Deployment) -> None:
        pid = run.subscriber_pid() if role == "subscriber" else _pid(run, role)
        if pid is not None:
            send(pid, signal.SIGSTOP)
            time.sleep(run.rng.choice(seconds))
            send(pid, signal.SIGCONT)

    return fault


def while_spilling(fault: Callable[[Deployment], None]) -> Callable[[Deployment], None]:
    """The fault, while a subscriber stands still so that the log goes to disk."""

    def both(run: Deployment) -> None:
        pid = run.spilling_pid()
        send(pid, signal.SIGSTOP)
        try:
            end = time.monotonic() + _SPILL_LIMIT_S
            while not running(SPILLER, run.head_pid) and time.monotonic() < end:
                time.sleep(0.1)
            if not running(SPILLER, run.head_pid):
                print(f"(the log was not full in {_SPILL_LIMIT_S:.0f} s)", flush=True)
            fault(run)
        finally:
            send(pid, signal.SIGCONT)

    return both


def end_of_ray(role: str) -> Callable[[Deployment], None]:
    """A process without which Ray ends; who supervises the head then starts it again."""

    def fault(run: Deployment) -> None:
        kill(role)(run)
        run.kill_head()

    return fault


def restart(server: Server, down_s: float) -> None:
    """SIGKILL of a server, which comes back after so many seconds."""
    server.kill()
    time.sleep(down_s)
    server.start()


def cut(run: Deployment) -> None:
    run.proxy.cut()


def refuse(run: Deployment) -> None:
    proxy = run.proxy
    proxy.refuse(True)
    time.sleep(run.rng.uniform(0.5, 4.0))
    proxy.refuse(False)


def stall(proxy: Proxy, stalled_s: float) -> None:
    """Packets in both directions are dropped for so many seconds; connections stay."""
    proxy.stall(True)
    time.sleep(stalled_s)
    proxy.stall(False)


def fill_disk(run: Deployment) -> None:
    """No file of the process that writes the log's part on disk may grow, for some seconds."""
    pid = _pid(run, SPILLER)
    if pid is None:
        return
    with contextlib.suppress(ProcessLookupError):
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, before[1]))
        time.sleep(run.rng.choice((1.0, 3.0, 6.0)))
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


def cancel_gets(run: Deployment) -> None:
    send(run.asyncio_pid(), signal.SIGUSR1)
    time.sleep(run.rng.uniform(1.0, 3.0))


STALLED_S = 1.0, 3.0, 8.0
WORKER = "ray::decode_chunk"
ANY_WORKER = "ray::IDLE"

FAULTS: Kinds = {
    "kill store": ("actor", 4, kill(STORE)),
    "kill fetcher": ("actor", 4, kill(FETCHER)),
    "kill parser": ("actor", 2, kill(PARSER)),
    "kill buffer": ("actor", 2, kill(BUFFER)),
    "kill workers": ("actor", 2, kill(WORKER, ANY_WORKER)),
    "kill controller": ("actor", 2, kill(CONTROLLER)),
    "kill server": ("actor", 2, kill(SERVER)),
    "kill spiller": ("actor", 2, while_spilling(kill(SPILLER))),
    "kill fetcher and spare": ("actor", 1, kill(FETCHER, SPARE)),
    "kill store and controller": ("actor", 2, kill(STORE, CONTROLLER)),
    "kill store and fetcher": ("actor", 2, kill(STORE, FETCHER)),
    "kill subscriber": ("subscriber", 3, lambda run: run.kill_subscriber()),
    "kill head": ("head", 1, lambda run: run.kill_head()),
    "kill everything": ("everything", 2, lambda run: run.kill_everything()),
    "kill raylet": ("head", 1, end_of_ray(RAYLET)),
    "kill gcs": ("head", 1, end_of_ray(GCS)),
    "kill mysqld": ("mysqld", 2, lambda run: restart(run.server, run.rng.uniform(0.0, 2.0))),
    "cut": ("network", 3, cut),
    "refuse": ("network", 2, refuse),
    "stall": ("network", 2, lambda run: stall(run.proxy, run.rng.choice(STALLED_S))),
    "fill disk": ("disk", 2, while_spilling(fill_disk)),
    "cancel gets": ("subscriber", 2, cancel_gets),
    "kill second node": ("node", 2, kill_second_node),
    "stop store": ("stopped", 2, stop(STORE, 1.0, 4.0, 24.0)),
    "stop fetcher": ("stopped", 3, stop(FETCHER, 1.0, 4.0, 12.0)),
    "stop parser": ("stopped", 1, stop(PARSER, 1.0, 12.0)),
    "stop server": ("stopped", 1, stop(SERVER, 1.0, 4.0)),
    "stop spiller": ("stopped", 2, while_spilling(stop(SPILLER, 1.0, 4.0))),
    "stop controller": ("stopped", 1, stop(CONTROLLER, 4.0)),
    "stop raylet": ("stopped", 1, stop(RAYLET, 1.0, 4.0)),
    "stop subscriber": ("stopped", 2, stop("subscriber", 1.0, 4.0)),
}

SINK_FAULTS: Kinds = {
    "kill sink": ("sink", 4, kill(SINK)),
    "stop sink": ("sink", 3, stop(SINK, 1.0, 4.0, 24.0)),
    "kill target": ("sink", 2, lambda run: restart(run.mirror.target, run.rng.uniform(0.0, 6.0))),
    "cut target": ("sink", 3, lambda run: run.mirror.proxy.cut()),
    "stall target": ("sink", 2, lambda run: stall(run.mirror.proxy, run.rng.choice(STALLED_S))),
}
"""Where sinks run, too."""
