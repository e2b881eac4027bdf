"""Kinds of faults where the source is two servers: they change places, their logs begin again or
are purged; and the server of the cursors is not to be reached."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from tests.fault.faults import FAULTS, Deployment, Kinds, stall
from tests.fault.pair import Pair
from tests.proxy import Proxy


class PairDeployment(Deployment, Protocol):
    """What these faults are done to."""

    rng: random.Random
    pair: Pair
    proxies: list[Proxy]
    cursors: Proxy

    def quiet(self, acked: bool = False) -> AbstractContextManager[None]:
        """Nobody writes inside the block. `acked`: and all has been received and acked."""
        ...


def fail_over(run: PairDeployment) -> None:
    """The server that is written to dies when its standby has all; it returns as a standby."""
    with run.quiet():
        old = run.pair.switch()
        run.pair.servers[old].kill()
    time.sleep(run.rng.uniform(0.0, 6.0))
    run.pair.servers[old].start()
    run.pair.follow()


def switch_over(run: PairDeployment) -> None:
    """They change places; the old one is not to be reached for a moment, and goes on."""
    proxy = run.proxies[run.pair.writer]
    with run.quiet():
        run.pair.switch()
        run.pair.follow()
        proxy.refuse(True)
    time.sleep(run.rng.uniform(0.0, 5.0))
    proxy.refuse(False)


class away:
    """The destination reaches no server."""

    def __init__(self, run: PairDeployment) -> None:
        self._proxies = run.proxies

    def __enter__(self) -> None:
        for proxy in self._proxies:
            proxy.refuse(True)

    def __exit__(self, *failure: object) -> None:
        for proxy in self._proxies:
            proxy.refuse(False)


def reset_away(run: PairDeployment) -> None:
    """Both logs begin again while the destination is away; then more or less is written."""
    with run.quiet(acked=True), away(run):
        run.pair.reset()
    with away(run):
        time.sleep(run.rng.choice((0.0, 1.0, 4.0)))


def reset_connected(run: PairDeployment) -> None:
    """Both logs begin again under their dumps. A dump goes on with the next file, if there is one,
    and leaves out the first."""
    with run.quiet(acked=True):
        run.pair.reset()
    for _ in range(run.rng.choice((0, 0, 1, 3))):
        time.sleep(run.rng.uniform(0.0, 1.0))
        for server in run.pair.servers:
            server.execute("FLUSH BINARY LOGS")


def purge_acked(run: PairDeployment) -> None:
    """Both purge the cursors' files, of which all is acked, while the destination is away."""
    with run.quiet(acked=True), away(run):
        for number in (0, 1):
            run.pair.purge(number)


def purge_acked_stopped(run: PairDeployment) -> None:
    """The same, while the whole deployment is down."""
    with run.quiet(acked=True):
        run.kill_head()
        for number in (0, 1):
            run.pair.purge(number)


def purge_one(how: Callable[[PairDeployment], AbstractContextManager[None]]) -> Callable[..., None]:
    """One purges what is not acked while the destination is away; the other one has it."""

    def fault(run: PairDeployment) -> None:
        with how(run):
            time.sleep(run.rng.uniform(0.5, 2.0))
            with run.quiet():
                run.pair.catch_up()
                run.pair.purge(run.rng.choice((0, 1)))

    return fault


class down:
    """The whole deployment is down at the beginning of the block; it takes some seconds to stand
    again."""

    def __init__(self, run: PairDeployment) -> None:
        self._run = run

    def __enter__(self) -> None:
        self._run.kill_head()

    def __exit__(self, *failure: object) -> None:
        pass


def refuse_cursors(run: PairDeployment) -> None:
    run.cursors.refuse(True)
    time.sleep(run.rng.uniform(0.5, 6.0))
    run.cursors.refuse(False)


DROPPED_S = 2.0, 6.0, 20.0
PAIR_FAULTS: Kinds = {
    **FAULTS,
    "fail over": ("failover", 4, fail_over),
    "switch over": ("failover", 3, switch_over),
    "reset": ("reset", 3, reset_away),
    "reset connected": ("reset", 3, reset_connected),
    "purge": ("purge", 2, purge_acked),
    "purge stopped": ("purge", 2, purge_acked_stopped),
    "purge one": ("purge", 2, purge_one(away)),
    "purge one stopped": ("purge", 2, purge_one(down)),
    "drop cursors": ("cursors", 3, lambda run: stall(run.cursors, run.rng.choice(DROPPED_S))),
    "refuse cursors": ("cursors", 2, refuse_cursors),
    "cut cursors": ("cursors", 2, lambda run: run.cursors.cut()),
}
