"""Snapshots of one subscriber: the rows that tables hold, read into its log."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from ray_canal.client.api import call_once
from ray_canal.destination.api import DestinationApi
from ray_canal.errors import InstanceNotFound, InstanceNotRunning
from ray_canal.model.reports import SnapshotReport
from ray_canal.model.snapshot_ledger import ENDED
from ray_canal.model.snapshot_wish import SnapshotWish, wishes_of

_POLL_S = 0.5
_AWAY_S = 60.0


class SnapshotControl:
    """The snapshots of one subscriber: the rows that tables hold now, put between the changes of
    its log. Other subscribers see nothing of them.

    Each call is durable when it returns and gives how its newest one goes: state, rows, tables,
    rate, what it waits for. Raises NotSubscribed, ConfigError, InstanceNotFound, MetaUnavailable.
    """

    def __init__(self, destination: str, client_id: int, namespace: str) -> None:
        self._destination = destination
        self._client_id = client_id
        self._namespace = namespace

    def start(
        self,
        tables: str = "",
        *,
        where: str | Mapping[str, str] = "",
        columns: Sequence[str] | Mapping[str, Sequence[str]] = (),
        snapshot_id: str = "",
        mode: str = "",
    ) -> SnapshotReport:
        """Read tables into the subscriber's log. `tables`: Canal's regex list over `schema.table`,
        of what it subscribes to; empty: all. `where`: a condition in SQL; `columns`: names, besides
        the key's. Each is for all tables, or a dict by patterns. With the id of its newest snapshot
        nothing new is begun. `mode` "keyed": rows come between the changes; "consistent": all rows
        of one moment replace what the subscriber has, then the changes go on (empty: what the
        configuration says). Raises ConfigError: another one goes on."""
        wishes = wishes_of(tables, where, columns)
        return self._operate("start", wishes, snapshot_id, mode)

    def status(self) -> SnapshotReport:
        """Return how the newest one goes. Raises ConfigError: there is none."""
        return self._operate("status")

    def pause(self) -> SnapshotReport:
        """Read no more for now; what was acked stays done."""
        return self._operate("pause")

    def resume(self) -> SnapshotReport:
        """Go on where a paused or a failed one was."""
        return self._operate("resume")

    def cancel(self) -> SnapshotReport:
        """End it where it is: changes go on, rows that were not read do not come."""
        return self._operate("cancel")

    def wait(self, timeout: float | None = None) -> SnapshotReport:
        """Return when it has ended: done, failed or cancelled. Raises TimeoutError."""
        deadline = None if timeout is None else time.monotonic() + timeout
        away_since: float | None = None
        while True:
            try:
                found, away_since = self.status(), None
            except (InstanceNotFound, InstanceNotRunning):  # it starts again
                now_s = time.monotonic()
                away_since = away_since or now_s
                if now_s - away_since > _AWAY_S:
                    raise
            else:
                if found["state"] in ENDED:
                    return found
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"the snapshot has not ended in {timeout:g} s")
            time.sleep(_POLL_S)

    def _operate(
        self,
        action: str,
        wishes: Sequence[SnapshotWish] = (),
        snapshot_id: str = "",
        mode: str = "",
    ) -> SnapshotReport:
        method, rest = DestinationApi.snapshot, (wishes, snapshot_id, mode)
        return call_once(
            self._destination, self._namespace, method, self._client_id, action, *rest
        )
