"""The last known state of every destination: its last status, and an hour of samples.

Each destination is asked in a thread of its own, so that one that does not answer keeps no other
from being shown. Readers take what was answered last and never wait.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from ray_canal.errors import CanalError, InstanceNotFound, InstanceNotRunning

logger = logging.getLogger(__name__)

SAMPLE_S = 30.0
SAMPLES_MAX = 120
"""An hour."""
_ASKED_PER_S = 25.0
"""Destinations that are asked in a second, at most: each takes the console 8 ms of CPU, and Ray's
head 3."""
_SILENT_AFTER_S = 5.0
"""Beyond the pause between two questions: a destination that takes longer does not answer."""
_REFRESH_LIMIT_S = 2.0
_RESTARTING = "restarting"
"""A status that says no more than this."""


class Asked(Protocol):
    """Calls that the collector needs; a Cluster has them."""

    def destinations(self) -> list[str]:
        """Return the names of the destinations that run."""

    def status(self, destination: str) -> dict[str, Any]:
        """Return a destination's status."""

    def subscribers(self, destination: str) -> list[dict[str, Any]]:
        """Return a destination's subscribers."""

    def sinks(self) -> dict[str, dict[str, Any]]:
        """Return the sinks that run, by name."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A destination at a moment (seconds since the epoch); None: not known."""

    at: float
    lag_seconds: float | None
    lag_bytes: float | None
    rows_per_s: float | None
    fill: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDestination:
    """State of a destination as last seen. `status` is its last answer, empty before the first one;
    `silent_since`: when it was asked what it has not answered yet, if that is too long ago; `error`
    is the last call's failure."""

    name: str
    status: dict[str, Any] = field(default_factory=dict)
    subscribers: list[dict[str, Any]] = field(default_factory=list)
    answered_at: float | None = None
    silent_since: float | None = None
    error: str = ""
    samples: tuple[Sample, ...] = ()

    @property
    def state(self) -> str:
        """Return the destination's state; "no answer" where it gives none."""
        if self.silent_since is not None:
            return "no answer"
        return str(self.status.get("state", "asked")) if not self.error else "no answer"


class Collector:
    """Asks all destinations again and again."""

    def __init__(
        self, cluster: Asked, every_s: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._cluster = cluster
        self._every_s = every_s
        self._clock = clock
        self._watches: dict[str, _Watch] = {}
        self._stopped = threading.Event()
        self._updating = threading.Lock()
        self._sinks: dict[str, dict[str, Any]] = {}
        self.error = ""

    def start(self) -> None:
        """Begin to ask."""
        threading.Thread(target=self._ask_sinks, name="console: sinks", daemon=True).start()
        threading.Thread(target=self._list, name="console: destinations", daemon=True).start()

    def stop(self) -> None:
        """End asking; calls that wait are left alone."""
        self._stopped.set()
        for watch in list(self._watches.values()):
            watch.stop()

    def all(self) -> list[KnownDestination]:
        """Return what is known of each destination, by name."""
        watches = dict(self._watches)
        return [watches[name].known() for name in sorted(watches)]

    def one(self, destination: str) -> KnownDestination:
        """Return what is known of a destination. Raises InstanceNotFound."""
        watch = self._watches.get(destination)
        if watch is None:
            raise InstanceNotFound(
                f"no destination {destination!r} is running in this cluster; "
                "start it with `ray-canal start CONFIG`"
            )
        return watch.known()

    def sinks_of(self, destination: str) -> dict[str, dict[str, Any]]:
        """Return what the sinks of a destination said last, by name."""
        every = self._sinks
        return {name: each for name, each in every.items() if each["destination"] == destination}

    def _ask_sinks(self) -> None:
        """Ask the sinks again and again, in a thread of its own: one that does not answer holds up
        the others for a while, and no destination."""
        while not self._stopped.is_set():
            try:
                self._sinks = self._cluster.sinks()
            except Exception as error:  # Ray's own, say: the next answer may be there again
                logger.info("sinks cannot be listed: %s", error)
            self._stopped.wait(self._every_s)

    def refresh(self, destination: str = "") -> None:
        """Ask again now, and wait a little for the answer: something was changed."""
        self._update()
        watch = self._watches.get(destination)
        if watch is not None:
            watch.ask_now(_REFRESH_LIMIT_S)

    def _list(self) -> None:
        while not self._stopped.is_set():
            self._update()
            self._stopped.wait(self._every_s)

    def _update(self) -> None:
        try:
            names = set(self._cluster.destinations())
        except Exception as error:
            if str(error) != self.error:
                logger.warning("destinations cannot be listed: %s", error)
            self.error = str(error) or type(error).__name__
            return
        self.error = ""
        with self._updating:
            for name in set(self._watches) - names:
                self._watches.pop(name).stop()
            for name in names - set(self._watches):
                self._watches[name] = _Watch(self._cluster, name, self._pause_s, self._clock)

    def _pause_s(self) -> float:
        return max(self._every_s, len(self._watches) / _ASKED_PER_S)


class _Watch:
    """One destination, asked in its own thread."""

    def __init__(
        self, cluster: Asked, name: str, pause_s: Callable[[], float], clock: Callable[[], float]
    ) -> None:
        """`pause_s`: seconds until it is asked again."""
        self._cluster = cluster
        self._name = name
        self._pause_s = pause_s
        self._clock = clock
        self._status: dict[str, Any] = {}
        self._subscribers: list[dict[str, Any]] = []
        self._answered_at: float | None = None
        self._asked_at: float | None = None
        self._error = ""
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self._stopped = False
        self._wake = threading.Event()
        self._answered = threading.Condition()
        self._answers = 0
        threading.Thread(target=self._ask, name=f"console: {name}", daemon=True).start()

    def stop(self) -> None:
        self._stopped = True
        self._wake.set()

    def ask_now(self, timeout_s: float) -> None:
        with self._answered:
            before = self._answers
            wanted = before + (2 if self._asked_at is not None else 1)
            self._wake.set()
            deadline = time.monotonic() + timeout_s
            while self._answers < wanted and time.monotonic() < deadline:
                self._answered.wait(timeout_s)

    def known(self) -> KnownDestination:
        asked_at = self._asked_at
        late = asked_at is not None and self._clock() - asked_at > _SILENT_AFTER_S
        return KnownDestination(
            name=self._name,
            status=self._status,
            subscribers=self._subscribers,
            answered_at=self._answered_at,
            silent_since=asked_at if late else None,
            error=self._error,
            samples=tuple(self._samples),
        )

    def _ask(self) -> None:
        while not self._stopped:
            self._asked_at = self._clock()
            try:
                status = self._cluster.status(self._name)
                if status.get("state") == _RESTARTING:
                    raise InstanceNotRunning(f"its process is started again: {status['error']}")
                subscribers = self._cluster.subscribers(self._name)
                self._status, self._subscribers, self._error = status, subscribers, ""
                self._answered_at = self._clock()
                self._sample(status, self._answered_at)
            except CanalError as error:
                self._error = str(error)
            except Exception as error:  # Ray's own, say: the next answer may be there again
                logger.info("destination %s: status: %s", self._name, error)
                self._error = f"{type(error).__name__}: {error}"
            with self._answered:
                self._asked_at = None
                self._answers += 1
                self._answered.notify_all()
            self._wake.wait(self._pause_s())
            self._wake.clear()

    def _sample(self, status: dict[str, Any], now: float) -> None:
        if self._samples and now - self._samples[-1].at < SAMPLE_S:
            return
        store = status.get("store") or {}
        self._samples.append(
            Sample(
                at=now,
                lag_seconds=status.get("lag_seconds"),
                lag_bytes=status.get("lag_bytes"),
                rows_per_s=status.get("rows_per_second"),
                fill=store.get("fill"),
            )
        )
