"""Runs a sink: subscribes, hands batches to the target, commits, acks.

The order of steps makes it safe to end anywhere: the target's own place decides what is skipped, an
ack follows the commit, and what was not acked comes again. A failure that may pass closes the
target and begins again after a pause.
"""

from __future__ import annotations

import contextlib
import json
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ray_canal.client.connector import Connector
from ray_canal.client.message import Message
from ray_canal.config import SinkConfig
from ray_canal.errors import CanalError
from ray_canal.sinks.dead_letters import DeadLetterFile, TablesAside
from ray_canal.sinks.in_doubt import InDoubt, in_doubt
from ray_canal.sinks.port import (
    Changes,
    Cursor,
    PreparedRows,
    Sink,
    SinkError,
    Transform,
    refuse_later_timeline,
)

logger = logging.getLogger(__name__)

State = Literal["starting", "running", "paused", "waiting", "stopped", "failed"]
_PAUSE_S = 0.2
_HEIR_S = 5.0
"""How long an heir may take from opening the target to subscribing."""


Connect = Callable[[], Connector]


@dataclass
class SinkStatus:
    """Counters since the runner began, and where it is. `snapshot_error`: why the snapshot of its
    subscriber has failed, so that the target lacks rows."""

    state: State = "starting"
    rows: int = 0
    skipped_entries: int = 0
    commits: int = 0
    commit_seconds: float = 0.0
    retries: int = 0
    dead_letters: int = 0
    error: str = ""
    snapshot_error: str = ""
    cursor: str = ""
    tables_aside: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


class Runner:
    """One sink. `run` blocks; the other calls come from any thread."""

    def __init__(
        self,
        config: SinkConfig,
        connect: Connect,
        sink: Sink,
        transform: Transform | None = None,
        committed: Cursor | None = None,
    ) -> None:
        """`committed`: a place that this target had before, if one is known."""
        self._config = config
        self._connect = connect
        self._sink = sink
        self._transform = transform
        self._going = threading.Event()
        self._going.set()
        self._stopped = threading.Event()
        self._failing_since: float | None = None
        self._dead: DeadLetterFile | None = None
        self._aside: TablesAside | None = None
        if config.dead_letters:
            self._dead = DeadLetterFile(Path(config.dead_letters))
            self._aside = TablesAside(Path(f"{config.dead_letters}.tables.json"))
        self.committed = committed
        self.status = SinkStatus()

    def pause(self) -> None:
        """Write nothing after the batch in hand; the subscription stays."""
        self._going.clear()
        if self.status.state == "running":
            self.status.state = "paused"

    def resume(self) -> None:
        self._going.set()
        if self.status.state == "paused":
            self.status.state = "running"

    def run(self, stopped: threading.Event) -> None:
        """Run until `stopped` is set, or a source of binlog files is at its end. Raises SinkError,
        CanalError: what does not pass by itself."""
        self._stopped, pause_s = stopped, _PAUSE_S
        while not stopped.is_set():
            commits = self.status.commits
            try:
                self._session()
                break
            except CanalError as error:
                if self.status.commits > commits:
                    pause_s = _PAUSE_S
                self._wait_or_raise(error, pause_s, stopped)
                pause_s = min(2 * pause_s, self._config.retry_max_s)
        self.status.state = "stopped"

    def _wait_or_raise(self, error: CanalError, pause_s: float, stopped: threading.Event) -> None:
        self._note_or_raise(error)
        self.status.retries += 1
        logger.warning("sink %s: again in %.1f s: %s", self._config.name, pause_s, error)
        stopped.wait(pause_s * random.uniform(0.75, 1.25))

    def _note_or_raise(self, error: CanalError) -> None:
        """Tell what keeps the sink; raise it if it does not pass, or has lasted too long."""
        status, config = self.status, self._config
        now = time.monotonic()
        self._failing_since = self._failing_since or now
        given_up = config.give_up_after_s and now - self._failing_since > config.give_up_after_s
        is_failed = given_up or not error.retryable
        status.error, status.state = str(error), "failed" if is_failed else "waiting"
        if is_failed:
            raise error

    def _session(self) -> None:
        """Open the target, read and write until the end. Raises what goes wrong."""
        config = self._config
        try:
            place = self._sink.open()
            self._refuse_a_target_set_back(place)
            self._refuse_rows_that_would_never_count()
            with self._connect() as subscriber:
                subscriber.subscribe(
                    config.tables,
                    policy=config.policy or None,
                    transactions=config.whole_transactions,
                    start=config.start if place is None else place.log_position,
                )
                self.status.state = "running" if self._going.is_set() else "paused"
                with self._still_subscribed(subscriber):
                    self._take_all(subscriber, place)
        finally:
            self._sink.close()

    def _take_all(self, subscriber: Connector, place: Cursor | None) -> None:
        config, stopped = self._config, self._stopped
        for message in subscriber.messages(config.commit_units, stopped=stopped):
            while not self._going.wait(0.2) and not stopped.is_set():
                pass
            if not self._going.is_set():
                return  # it is stopped, and the message comes again
            began = time.monotonic()
            place = self._take(message, place)
            stopped.wait(max(0.0, began + config.commit_interval_s - time.monotonic()))

    @contextlib.contextmanager
    def _still_subscribed(self, subscriber: Connector) -> Iterator[None]:
        """Ask who has the subscription where the target may have ended a transaction because it was
        open too long. Raises SubscriberReplaced: another runner has it, and the target; SinkError
        "retry": nobody else."""
        try:
            yield
        except SinkError as error:
            if error.kind != "expired":
                raise
            self._stopped.wait(_HEIR_S)
            subscriber.rollback()
            raise SinkError(str(error), "retry") from None

    def _refuse_a_target_set_back(self, place: Cursor | None) -> None:
        """Raises SinkError: the target had more once, which was acked and does not come again."""
        committed = self.committed
        if committed is None or not hasattr(self._sink, "forget_place"):
            return
        if place is None or place.is_before(committed):
            has, to = (f"is at {place}", place) if place else ("has no place", "earliest")
            name = self._config.name
            raise SinkError(
                f"sink {name}: the target was set back: it {has}, and had been at {committed}. "
                "What lies between does not come by itself. "
                f"`ray-canal sink seek {name} {to}` writes it again from there, as "
                "far as the log or the server has it"
            )

    def _refuse_rows_that_would_never_count(self) -> None:
        """Raises SinkError: the target keeps rows for an XA COMMIT, for which nobody looks with
        `transactions = false`."""
        kept = () if self._kept is None else self._kept.xa_ids
        if kept and not self._config.whole_transactions:
            name, ids = self._config.name, ", ".join(kept[:3])
            raise SinkError(
                f"sink {name}: the target keeps rows of {len(kept)} XA transactions that are "
                f"prepared (xid {ids}), and with transactions = false their XA COMMIT would not "
                "bring them: leave it true until they have ended (XA RECOVER lists those that have "
                f"not), or delete the sink's rows in its table canal_prepared if they all have"
            )

    def _take(self, message: Message, place: Cursor | None) -> Cursor | None:
        """Write what the target does not have yet of a message, and commit it. Raises SinkError,
        also if another deployment writes there."""
        refuse_later_timeline(message.timeline, place)
        run: list[Changes] = []
        doubts = self._in_doubt(message)
        for part, chunk in message.chunks_by_part():
            whole = Changes(
                message, part, chunk, self._transform, self._tables_aside, doubts, self._kept
            )
            changes = whole.after(place)
            self.status.skipped_entries += len(whole) - len(changes)
            if not len(changes):
                continue
            for piece in changes.pieces():
                if run and piece.begins_commit:
                    place = self._write(run)
                    run = []
                run.append(piece)
        if run:
            place = self._write(run)
        self._failing_since, self.status.error = None, ""
        return place

    def _in_doubt(self, message: Message) -> InDoubt | None:
        """Return the transactions whose rows may not count, for a target that shows tables."""
        if not self._config.whole_transactions or not hasattr(self._sink, "prepared"):
            return None
        kept = self._kept
        if kept is None:
            return in_doubt(message, None)
        return in_doubt(message, kept.has, kept.moves_all)

    @property
    def _kept(self) -> PreparedRows | None:
        found: PreparedRows | None = getattr(self._sink, "prepared", None)
        return found

    @property
    def _tables_aside(self) -> frozenset[tuple[str, str]]:
        tables = frozenset() if self._aside is None else self._aside.tables
        self.status.tables_aside = [".".join(table) for table in sorted(tables)]
        return tables

    def _write(self, run: Sequence[Changes], told: bool = False) -> Cursor:
        """Write and commit, if need be in smaller pieces. Returns the place reached. `told`: what
        is set aside of it is among the dead letters."""
        upto = run[-1].cursor
        try:
            for changes in run:
                self._sink.write(changes)
                changes.keep_prepared()
            if not told:
                self._tell_aside(run)
                told = True
            self._commit(upto)
        except SinkError as error:
            if error.kind == "schema" and error.source_table and self._aside is not None:
                return self._write(self._without(error.source_table, error, run))
            if error.kind != "poison":
                raise
            self._sink.abort()
            halves = _halves(run)
            if not halves:
                self._set_aside(run[0], error)
                run[0].keep_prepared()
                self._commit(upto)
            for half in halves:
                self._write(half, told)
            return upto
        self.status.rows += sum(changes.row_count for changes in run)
        return upto

    def _without(
        self, table: tuple[str, str], error: SinkError, run: Sequence[Changes]
    ) -> Sequence[Changes]:
        """Set a table aside; return the run without it."""
        self._sink.abort()
        if self._aside is not None:
            with _on_disk():
                self._aside.add(table, str(error), str(run[0].cursor))
        name = ".".join(table)
        logger.error("sink %s: table %s is set aside: %s", self._config.name, name, error)
        aside = self._tables_aside
        return [replace(changes, aside=aside) for changes in run]

    def _tell_aside(self, run: Sequence[Changes]) -> None:
        if self._dead is not None and self._aside is not None and self._aside.reasons:
            with _on_disk():
                for changes in run:
                    self.status.dead_letters += self._dead.add_aside(
                        self._config.name, changes, self._aside.reasons
                    )

    def _commit(self, upto: Cursor) -> None:
        began = time.monotonic()
        while True:
            try:
                self._sink.commit(upto)
                break
            except SinkError as error:
                if error.kind != "wait" or self._stopped.is_set():
                    raise
                if self.status.error != str(error):
                    logger.warning("sink %s waits: %s", self._config.name, error)
                self._note_or_raise(error)
        if self.status.state == "waiting":
            self.status.state = "running" if self._going.is_set() else "paused"
        self.status.commit_seconds += time.monotonic() - began
        self.status.commits += 1
        self.status.cursor = str(upto)
        self.committed = upto

    def _set_aside(self, changes: Changes, error: SinkError) -> None:
        """Write an entry that the target cannot take to the dead letters. Raises SinkError: there
        is no file for them."""
        if self._dead is None:
            raise SinkError(
                f"sink {self._config.name}: the target cannot take the entry at {changes.cursor}: "
                f"{error}. Correct the target and start again, or give `dead_letters` a file for "
                "such entries"
            )
        with _on_disk():
            self._dead.add(self._config.name, changes, str(error))
        self.status.dead_letters += 1
        logger.error("sink %s: set aside %s: %s", self._config.name, changes.cursor, error)


@contextlib.contextmanager
def _on_disk() -> Iterator[None]:
    """Raises SinkError, to begin again: the block could not write dead letters."""
    try:
        yield
    except OSError as error:
        raise SinkError(f"the dead letters cannot be written: {error}", "retry") from None


def _halves(run: Sequence[Changes]) -> Sequence[Sequence[Changes]]:
    """Return two halves; nothing where all is of one event, whose entries stay together."""
    if len(run) > 1:
        middle = len(run) // 2
        return run[:middle], run[middle:]
    part, events = run[0].part, run[0].chunk.events[["position", "inner"]]
    same = events[part.first : part.last]
    cuts = part.first + 1 + np.flatnonzero(same[1:] != same[:-1])
    if not len(cuts):
        return ()
    middle = int(cuts[np.abs(cuts - (part.first + part.last) // 2).argmin()])
    return [run[0].between(part.first, middle)], [run[0].between(middle, part.last)]


def status_text(name: str, status: SinkStatus) -> str:
    """Return one line of JSON for people and programs that watch."""
    return json.dumps({"sink": name, **status.as_dict()})
