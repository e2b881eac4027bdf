"""Choose which of several servers to read. Pure over functions that ask and open.

The servers are tried in this order: the one that the cursors belong to, if it is well, as nothing
moves then; else the master and the standbys as they are configured. A server that cannot be used
(away, purged, without transactions that were delivered) is passed over while there is another one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from ray_canal.config import SourceConfig
from ray_canal.errors import ConnectionLost, PositionPurged, SourceError
from ray_canal.model.position import LogPosition

log = logging.getLogger(__name__)

Opened = TypeVar("Opened")


def choose(
    source: SourceConfig,
    cursors: Sequence[LogPosition],
    probe: Callable[[SourceConfig], str],
    open_at: Callable[[SourceConfig], Opened],
    open_partly: Callable[[SourceConfig], Opened] | None = None,
) -> Opened:
    """Return what `open_at` gives for the first server that can be used. `probe` gives a server's
    uuid.

    `source.on_purged` and `on_reset` count only where no server has what is needed; so does
    `open_partly`, which leaves out cursors that a server cannot serve. Raises what kept the first
    server from being used; of one that answered rather than of one that is away.
    """
    configs = [source.at(address) for address in source.addresses]
    if len(configs) == 1:
        return (open_partly or open_at)(configs[0])
    failures: list[SourceError] = []
    well: list[tuple[str, SourceConfig]] = []
    for config in configs:
        try:
            well.append((probe(config), config))
        except SourceError as error:
            log.warning("%s", error)
            failures.append(error)
    own = {cursor.identity.server_uuid for cursor in cursors}
    well.sort(key=lambda found: found[0] not in own)  # stable: else as configured
    for _, config in well:
        try:
            return open_at(config.model_copy(update={"on_purged": "fail", "on_reset": "fail"}))
        except SourceError as error:
            log.warning("%s", error)
            failures.append(error)
    purged = any(isinstance(error, PositionPurged) for error in failures)
    reset = any(error.other_log for error in failures)
    goes_on = source.on_purged in ("earliest", "latest")
    if (purged and goes_on) or (reset and source.on_reset != "fail"):
        return (open_partly or open_at)(well[0][1])
    if open_partly is not None and len(cursors) > 1:
        for _, config in well:
            try:
                return open_partly(config)
            except SourceError as error:
                failures.append(error)
    answered = [error for error in failures if not isinstance(error, ConnectionLost)]
    raise (answered or failures)[0]
