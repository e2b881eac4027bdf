"""Choose which of several servers to read. Pure over functions that ask and open.

The servers are tried in this order: the one that the cursors belong to, if it is well, as nothing
moves then; else the master and the standbys as they are configured. A server that cannot be used
(away, purged, without transactions that were delivered) is passed over while there is another one.

That one is away says nothing about what it has: where the others lack what is needed, nothing is
given up while it may be back. Its network, or a busy machine, may have cost a second.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from ray_canal.config import SourceConfig
from ray_canal.errors import ConnectionLost, PositionPurged, SourceError, TransactionsMissing
from ray_canal.model.position import LogPosition

log = logging.getLogger(__name__)

_ASKED_AGAIN_S = 1.0, 2.0, 4.0
"""Pauses before those that are away are asked again, where going on would lose something."""

Opened = TypeVar("Opened")


def choose(
    source: SourceConfig,
    cursors: Sequence[LogPosition],
    probe: Callable[[SourceConfig], str],
    open_at: Callable[[SourceConfig], Opened],
    open_partly: Callable[[SourceConfig], Opened] | None = None,
    pause: Callable[[float], object] = time.sleep,
) -> Opened:
    """Return what `open_at` gives for the first server that can be used. `probe` gives a server's
    uuid.

    `source.on_purged` and `on_reset` count only where no server has what is needed, and those that
    are away were asked again; so does `open_partly`, which leaves out cursors that a server cannot
    serve. Raises what kept the first server from being used; of one that answered rather than of
    one that is away. It is retryable where one that is away may have what the others lack.
    """
    if len(source.addresses) == 1:
        return (open_partly or open_at)(source.at(source.address))
    own = {cursor.identity.server_uuid for cursor in cursors}
    for pause_s in (*_ASKED_AGAIN_S, 0.0):
        tried = _Tried(source, own, probe)
        for config in tried.well:
            try:
                return open_at(config.model_copy(update={"on_purged": "fail", "on_reset": "fail"}))
            except SourceError as error:
                tried.failed(config, error)
        if not (tried.away and tried.is_answered_by("earliest", "latest", "snapshot")):
            break
        pause(pause_s)
    if tried.is_answered_by("earliest", "latest"):
        return (open_partly or open_at)(tried.well[0])
    if open_partly is not None and len(cursors) > 1:
        for config in tried.well:
            try:
                return open_partly(config)
            except SourceError as error:
                tried.failed(config, error)
    raise tried.failure()


class _Tried:
    """The servers, asked once, those that the cursors belong to first, and what kept them from
    being used."""

    def __init__(
        self, source: SourceConfig, own: set[str], probe: Callable[[SourceConfig], str]
    ) -> None:
        self._source = source
        self._failures: list[SourceError] = []
        self.away: list[str] = []
        found: list[tuple[str, SourceConfig]] = []
        for config in map(source.at, source.addresses):
            try:
                found.append((probe(config), config))
            except SourceError as error:
                self.failed(config, error)
        found.sort(key=lambda one: one[0] not in own)  # stable: else as configured
        self.well = [config for _, config in found]

    def failed(self, config: SourceConfig, error: SourceError) -> None:
        log.warning("%s", error)
        self._failures.append(error)
        if isinstance(error, ConnectionLost):
            self.away.append(config.address)

    def is_answered_by(self, *policies: str) -> bool:
        """Return whether a server lacks what is needed, and the configuration says by one of these
        policies how to go on without it."""
        purged = any(isinstance(error, PositionPurged) for error in self._failures)
        reset = any(error.other_log for error in self._failures)
        return (purged and self._source.on_purged in policies) or (
            reset and self._source.on_reset in policies
        )

    def failure(self) -> SourceError:
        """Return what to raise if no server can be used."""
        answered = [e for e in self._failures if not isinstance(e, ConnectionLost)]
        error = (answered or self._failures)[0]
        lacks = isinstance(error, PositionPurged | TransactionsMissing) or error.other_log
        if self.away and lacks:
            away = ", ".join(dict.fromkeys(self.away))
            error.args = (
                f"{error.args[0]}. {away}, which may have it, cannot be reached, and is asked "
                "again; if it never comes back, take it out of the configuration",
            )
            error.retryable = True
        return error
