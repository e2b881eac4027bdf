"""Read a live server: a dump, and a new one from where it stopped when the connection is lost.

A reconnect continues at the end of the last whole event that was received, in the same file of the
same server, so that chunks neither repeat nor miss anything, even inside a transaction or a
statement. If the address then belongs to another server (server_uuid), offsets mean nothing: that
is an error, as is a server that fails its health check; a restart of the source moves the cursors
to the server that can be used (start/failover.py, start/decision.py). Host names are resolved again
at each connect.
"""

from __future__ import annotations

import logging
import os
import random
import select
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ray_canal.binlog.chunk import RawChunk
from ray_canal.binlog.cutter import ChunkCutter
from ray_canal.config import InstanceConfig, SourceConfig
from ray_canal.errors import (
    UNUSABLE_CURSOR,
    CanalError,
    ConnectionLost,
    LogRenamed,
    SourceError,
)
from ray_canal.logs import tell
from ray_canal.model.position import (
    EntryPosition,
    LogPosition,
    SourceIdentity,
    journal_key,
)
from ray_canal.model.start import ALL_CURSORS, Start, StartOptions
from ray_canal.source.catalog import Catalog
from ray_canal.source.checks import refuse_settings
from ray_canal.source.chunk_pace import ChunkPace
from ray_canal.source.connection import translated
from ray_canal.source.crossing import Crossing
from ray_canal.source.dump import BinlogDump, ReplicaIdentity
from ray_canal.source.health import HealthCheck, probe
from ray_canal.source.port import Decided, SourceStatus, nothing
from ray_canal.source.same_log import SameLog
from ray_canal.source.start.decision import decide
from ray_canal.source.start.failover import choose
from ray_canal.source.start.log_file import WIDE_OFFSET
from ray_canal.source.start.server_log import ServerLog

log = logging.getLogger(__name__)

_RETRY_FIRST_S = 0.2
_FIRST_CHUNK_BYTES = 4 << 20
"""Size of a stream's first chunk; each next one may be twice as large, up to the configured size,
and half as large after each pause (as a server makes between two files). So a burst goes through
the stages in parallel."""
_BULK_RECEIVE_BYTES = 1 << 20
"""Bytes that are awaited at once while transactions are gathered: a server writes 16 KiB at a time,
or each transaction. (Semi-synchronous ones are acknowledged one by one.)"""

_HELD_S = 0.05
"""How long a chunk is late at most where it would part a statement's text from its rows."""
_RENAMED_S = 5.0
"""Time that the last chunks before a change of the files' name have on their way to the log."""


class LiveSource:
    """A source that reads one server; port.py has its methods."""

    def __init__(self, config: InstanceConfig) -> None:
        """Raises ConnectionLost."""
        self._all = config.source
        self._config = config.source  # of the server that is read
        self._health: HealthCheck | None = None
        self._chunk_bytes = config.chunk_bytes
        self._first_chunk_bytes = min(_FIRST_CHUNK_BYTES, config.chunk_bytes)
        self._cutter = self._new_cutter()
        self._dump: BinlogDump | None = None
        self._replica = ReplicaIdentity(str(uuid.uuid4()))
        self._identity = SourceIdentity(self._config.address)
        with translated(config.source):  # no more files may be open
            self._wake_out, self._wake_in = os.pipe()
        self._same_log = SameLog(self._config, self._wake_out)
        self._interrupted = False
        self._closed = False
        self._closing = threading.Lock()  # a descriptor that is closed is soon another file's
        self._retry_at = 0.0
        self._retries = 0
        self._reconnects = self._errors = 0
        self._received_bytes = 0
        self.waited_s = 0.0
        self._heartbeat_seen = 0
        self._heartbeat_time = 0.0
        self._last_error = ""
        self._failure: CanalError | None = None
        self._crossing = Crossing()
        self._base = ""  # of the files' names
        self._renamed_to, self._renamed_at = "", 0.0  # a file of another one, and when it came
        self._ready: deque[RawChunk] = deque()
        self._pace = ChunkPace(self._first_chunk_bytes, self._wake_in, self._wake_out)

    @property
    def finished(self) -> bool:
        return False

    @property
    def identity(self) -> SourceIdentity:
        return self._identity

    @property
    def encrypted(self) -> bool:
        """Return whether the present connection runs over TLS."""
        return self._dump is not None and self._dump.encrypted

    def open(self, start: EntryPosition | None) -> EntryPosition:
        if start is None:
            return self.resume(()).position
        return self._open(self._all, lambda log: Start(start), nothing, given=True).position

    def resume(
        self,
        cursors: Sequence[LogPosition],
        delivered: str = "",
        decided: Decided = nothing,
        options: StartOptions = ALL_CURSORS,
    ) -> Start:
        def open_with(options: StartOptions, config: SourceConfig) -> Start:
            return self._open(
                config, lambda log: decide(config, cursors, log, delivered, options), decided
            )

        whole = partial(open_with, replace(options, partial=False))
        partly = partial(open_with, options) if options.partial else None
        pause = partial(_readable, self._wake_out)
        return choose(self._all, cursors, probe, whole, partly, pause)

    def _end_health_check(self) -> None:
        if self._health is not None:
            self._health.close()
            self._health = None
            while not self._interrupted and _readable(self._wake_out):
                os.read(self._wake_out, 64)  # it woke us

    def _open(
        self,
        config: SourceConfig,
        decision: Callable[[ServerLog], Start],
        decided: Decided,
        *,
        given: bool = False,
    ) -> Start:
        """Connect and begin the dump. `given`: the decision did not look at the log."""
        self._drop_dump()
        self._end_health_check()
        self._config = config
        self._same_log = SameLog(config, self._wake_out)
        catalog = Catalog(self._config)
        try:
            refuse_settings(self._config, catalog)
            log = ServerLog(self._config, catalog, self._wake_out)
            start = decision(log)
            self._identity = log.identity
        finally:
            catalog.close()
        has_place = bool(start.position.journal_name)
        if has_place:
            decided(start, self._identity)
        try:
            start = replace(start, position=self._stand(start.position, by_gtid=start.by_gtid))
        except UNUSABLE_CURSOR as error:
            if given:
                raise
            raise self._purged_meanwhile(start.position.journal_name, error) from error
        if not has_place:  # only the dump says where its GTIDs lie
            decided(start, self._identity)
        if self._all.standby or self._all.detect:
            self._health = HealthCheck(config, self._wake_reader)
        return start

    def _purged_meanwhile(self, journal_name: str, error: SourceError) -> SourceError:
        """Return the error for a dump that the server refused: ConnectionLost, so that a new
        decision is made, if the file where it was to begin has been purged since the decision."""
        if not journal_name or self._same_log.created_s(journal_name):
            return error
        return ConnectionLost(
            f"{error}; {journal_name} was purged just now, so the start is decided again"
        )

    def _new_cutter(self) -> ChunkCutter:
        return ChunkCutter(
            self._first_chunk_bytes,
            self._config.event_bytes_max,
            skips=self._config.skipped_places,
            on_undecodable=self._config.on_undecodable,
        )

    def _stand(self, position: EntryPosition, *, by_gtid: bool) -> EntryPosition:
        """Dump from a position on; return it with the file that the server found, if by GTID."""
        self._cutter = self._new_cutter()
        self._cutter.begin_file(position.journal_name, position.position)
        self._cutter.created_s = position.created_s
        self._failure = None
        self._ready.clear()
        self._renamed_to = ""
        self._connect(position, by_gtid=by_gtid or _by_gtid(self._config.gtid, position))
        # The server first names the file, or says what is wrong with the position.
        deadline = time.monotonic() + self._config.connect_timeout_s
        dump = self._dump
        assert dump is not None
        while True:
            left_s = deadline - time.monotonic()
            if self._interrupted or left_s <= 0:
                raise ConnectionLost(f"MySQL at {self._config.address}: the dump does not start")
            if dump.receive(left_s, self._wake_out):
                chunk = self._cutter.next()
                if chunk is not None:
                    self._ready.append(chunk)
                if self._cutter.journal_name and self._cutter.created_s:
                    break
        self._crossing.stand(self._cutter.journal_name, self._cutter.created_s)
        self._base = journal_key(position.journal_name or self._cutter.journal_name)[0]
        if position.journal_name:
            return position
        # Started by GTID alone: the first event comes from where the server found it.
        name, offset = self._cutter.journal_name, self._cutter.head_position
        if self._ready:
            name, offset = self._ready[0].head.journal_name, self._ready[0].head.position
        created_s = self._cutter.created_s
        return replace(position, journal_name=name, position=offset, created_s=created_s)

    def _connect(self, position: EntryPosition, *, by_gtid: bool) -> None:
        dump = BinlogDump(self._config, self._cutter)
        try:
            self._replica = dump.start(position, self._replica, by_gtid=by_gtid)
            self._refuse_other_server(dump.server_uuid)
        except BaseException:
            dump.close()
            raise
        self._dump = dump

    def read(self, linger_s: float, wait_s: float) -> RawChunk | None:
        if not self._renamed_to:
            chunk = self._read(linger_s, wait_s)
            if chunk is None or self._base == journal_key(chunk.head.journal_name)[0]:
                return chunk
            # The error comes when what was read before is in the log.
            self._renamed_to, self._renamed_at = chunk.head.journal_name, time.monotonic()
        left_s = self._renamed_at + _RENAMED_S - time.monotonic()
        if left_s > 0:
            began_s = time.monotonic()
            _readable(self._wake_out, min(wait_s, left_s))
            self.waited_s += time.monotonic() - began_s
            return None
        raise LogRenamed(
            f"the log of {self._config.address} goes on in files of another name, from "
            f"{self._renamed_to} on; reading goes on there when everything before is acked"
        ).at(self._renamed_to)

    def _read(self, linger_s: float, wait_s: float) -> RawChunk | None:
        chunk = self._next(linger_s, wait_s)
        if chunk is not None:
            left = self._crossing.left_unsure(chunk)
            if left is not None and journal_key(chunk.head.journal_name)[0] == self._base:
                self._same_log.refuse_other(*left)
        return chunk

    def _next(self, linger_s: float, wait_s: float) -> RawChunk | None:
        deadline = time.monotonic() + wait_s
        while not self._interrupted:
            if self._health is not None and self._health.failure is not None:
                raise ConnectionLost(
                    f"MySQL at {self._config.address} is taken for dead after "
                    f"{self._config.detect_failures} failed checks: {self._health.failure}"
                )
            chunk = self._ready.popleft() if self._ready else self._cutter.next()
            if chunk is not None:
                self._pace.streams = True
                self._pace.handed_out(time.monotonic())
                self._cutter.chunk_bytes = min(2 * self._cutter.chunk_bytes, self._chunk_bytes)
                return chunk
            if self._failure is not None:  # the good events before it come first
                chunk = self._cutter.flush()
                if chunk is None:
                    raise self._failure
                return chunk
            now = time.monotonic()
            due_s = self._pace.due_s(self._cutter, linger_s, now)
            end = min(deadline, due_s + _HELD_S * self._cutter.is_held)
            arrived = self._advance(max(0.0, end - now))
            if self._pace.waited() or arrived:
                continue
            self._pace.streams = False
            if time.monotonic() >= end:
                self._pace.handed_out(time.monotonic())
                if self._dump is not None:
                    self._same_log.check_silent(self._cutter)
                half = self._cutter.chunk_bytes // 2
                self._cutter.chunk_bytes = max(half, self._first_chunk_bytes)
                return self._cutter.flush()
        return None

    def _advance(self, wait_s: float) -> bool:
        """Receive, or reconnect; return whether there may be more to cut."""
        dump = self._dump
        if dump is None:
            began_s = time.monotonic()
            try:
                return self._reconnect(wait_s)
            finally:
                self.waited_s += time.monotonic() - began_s
        waited_s = dump.waited_s
        try:
            dump.acknowledge(self._cutter.journal_name, self._cutter.position)
            least = _BULK_RECEIVE_BYTES if self._pace.gathers and not dump.semi_sync else 1
            arrived = dump.receive(wait_s, self._wake_out, least)
        except SourceError as error:
            self._lost(error)
            return True
        finally:
            self.waited_s += dump.waited_s - waited_s
        if arrived:
            self._note_progress(dump)
        return arrived

    def _note_progress(self, dump: BinlogDump) -> None:
        self._received_bytes += dump.take_received_bytes()
        self._retries = 0
        if self._cutter.heartbeat_position != self._heartbeat_seen:
            self._heartbeat_seen = self._cutter.heartbeat_position
            self._heartbeat_time = dump.last_received_at

    def _lost(self, error: SourceError) -> None:
        """End the dump: try again later, or fail when what has been received is handed out."""
        self._drop_dump()
        self._errors += 1
        self._last_error = str(error)
        if error.retryable:
            tell(log, "source", "%s; reconnecting", error, level=logging.WARNING, action="lost")
            self._schedule_retry()
        else:
            self._failure = error

    def _schedule_retry(self) -> None:
        pause_s = min(self._config.reconnect_max_s, _RETRY_FIRST_S * 2 ** min(self._retries, 16))
        self._retry_at = time.monotonic() + pause_s * random.uniform(0.5, 1.0)
        self._retries += 1

    def _reconnect(self, wait_s: float) -> bool:
        """Try once more, when its time has come; return True if it was tried and succeeded."""
        pause_s = self._retry_at - time.monotonic()
        if pause_s > 0:
            _readable(self._wake_out, min(pause_s, wait_s))
            return False
        # All chunks of the received bytes are handed out: what remains is a part of an event.
        self._cutter.discard_partial()
        try:
            position = EntryPosition(self._cutter.journal_name, self._cutter.position)
            if position.position >= WIDE_OFFSET and not self._cutter.is_between:
                raise SourceError(  # a dump by GTID, as it has to be, might leave out the rest
                    f"{self._last_error}; it was inside a transaction beyond 4 GiB of its file, "
                    "so reading begins again at the cursors"
                ).at(position.journal_name, position.position)
            self._connect(position, by_gtid=False)
        except SourceError as error:
            if not error.retryable:
                raise
            self._errors += 1
            self._last_error = str(error)
            log.warning("%s; next try in at most %g s", error, self._config.reconnect_max_s)
            self._schedule_retry()
            return False
        self._reconnects += 1
        tell(log, "source", "connected again to %s", self._config.address, action="connected")
        return True

    def _refuse_other_server(self, found: str) -> None:
        """An address may lead to another server at each connect."""
        if found != self._identity.server_uuid:
            raise SourceError(
                f"MySQL at {self._config.address} is now another server ({found}, was "
                f"{self._identity.server_uuid}): its file positions differ; reading starts "
                "again where the cursors lie there. An address has to lead to one server at a "
                "time; name others in source.standby"
            )

    def status(self) -> SourceStatus:
        cutter = self._cutter
        return SourceStatus(
            journal_name=cutter.journal_name,
            position=cutter.position,
            master_position=max(cutter.heartbeat_position, cutter.position) or None,
            last_event_time=cutter.last_timestamp,
            received_bytes=self._received_bytes,
            last_heartbeat_time=self._heartbeat_time,
            connected=self._dump is not None,
            reconnects=self._reconnects,
            errors=self._errors,
            failed_checks=0 if self._health is None else self._health.failures,
            last_error=self._last_error,
        )

    def hurry(self) -> None:
        with self._closing:
            if not self._closed:
                self._pace.hurry()

    def interrupt(self) -> None:
        self._interrupted = True
        self._wake_reader()

    def _wake_reader(self) -> None:
        with self._closing:
            if not self._closed:
                os.write(self._wake_in, b"x")

    def _drop_dump(self) -> None:
        if self._dump is not None:
            self._dump.close()
            self._dump = None

    def close(self) -> None:
        self._interrupted = True
        self._drop_dump()
        self._end_health_check()
        with self._closing:
            if not self._closed:
                self._closed = True
                os.close(self._wake_in)
                os.close(self._wake_out)


def _by_gtid(preferred: bool, position: EntryPosition) -> bool:
    return bool(position.gtid) and (preferred or not position.journal_name)


def _readable(wake: int, seconds: float = 0.0) -> bool:
    """Sleep until `interrupt`; return whether it came."""
    poller = select.poll()
    poller.register(wake, select.POLLIN)
    return bool(poller.poll(max(0.0, seconds) * 1000))
