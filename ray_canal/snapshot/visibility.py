"""Waiting until all that a log has up to a place shows in every SELECT.

A server writes a transaction into its log before anybody sees its rows. So what the log has before
a snapshot begins, and the rows do not show yet, would be nobody's.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ray_canal.config import InstanceConfig
from ray_canal.errors import ConnectionLost
from ray_canal.model.position import EntryPosition
from ray_canal.snapshot.log_watch import open_log_watch
from ray_canal.snapshot.marks import ExecutedLow, Marks, shown_now
from ray_canal.source.catalog import Catalog
from ray_canal.source.gtid_sets import missing_gtids, union

_PAUSE_S = 0.02
_LIMIT_S = 120.0


def wait_until_visible(
    config: InstanceConfig,
    catalog: Catalog,
    marks: Marks,
    place: EntryPosition,
    stopped: Callable[[], bool],
) -> None:
    """Return when everything in the log before `place` is visible. Raises SourceError kinds;
    ConnectionLost: something is not, and stays so."""
    deadline = time.monotonic() + _LIMIT_S
    low, needed = shown_now(marks), ""
    if isinstance(low, ExecutedLow):
        needed = _logged_up_to(config, catalog, str(low.executed), place)
    while not stopped():
        if isinstance(low, ExecutedLow):
            seen = not missing_gtids(needed, str(low.executed))
        else:
            seen = low.place >= place
        if seen:
            return
        if time.monotonic() > deadline:
            raise ConnectionLost(
                f"MySQL at {config.source.address}: transactions before {place} have been in its "
                f"log for {_LIMIT_S:.0f} s and do not show yet"
            )
        time.sleep(_PAUSE_S)
        low = shown_now(marks)


def _logged_up_to(
    config: InstanceConfig, catalog: Catalog, executed: str, place: EntryPosition
) -> str:
    watch = open_log_watch(config, executed, catalog)
    try:
        return union(executed, watch.up_to(place))
    finally:
        watch.close()
