"""The fetcher: one per upstream, at the socket (or the files).

Split mode hands out raw chunks; fused mode (`decoders = 0`) parses and decodes in the same process,
which saves a trip of the raw bytes between processes. It answers calls, one chunk a call: who calls
owns what is returned, and the socket is read no faster than chunks are called for.
"""

from __future__ import annotations

import dataclasses
import gc
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ray_canal.binlog.chunk import DecodedChunk, RawChunk
from ray_canal.binlog.decode import decode
from ray_canal.binlog.parsed import ParsedChunk
from ray_canal.config import InstanceConfig
from ray_canal.destination.ports import Fetched
from ray_canal.destination.status.stages import FetchReport
from ray_canal.model.position import EntryPosition, LogPosition, SourceIdentity
from ray_canal.model.schema_record import Records
from ray_canal.model.start import ALL_CURSORS, Start, StartOptions, begun
from ray_canal.source.lag import LagMeter
from ray_canal.source.open_source import open_source
from ray_canal.source.port import SourceStatus

if TYPE_CHECKING:
    from ray_canal.schema.event_parser import EventParser

_BINLOG = Path(__file__).parents[1] / "demo" / "mysql-bin.000001"
WAIT_S = 10.0
"""How long a call waits for an event before it answers that there is none."""
SMALL_CHUNK_BYTES = 64 << 10
"""Size of an arena below which Ray sends it within an answer, rather than by shared memory. Such a
chunk travels with its info, and nobody asks its owner for it."""


class Fetcher:
    """Reads one source. Every method but `status` and `interrupt` runs on one thread, in call
    order."""

    def __init__(self, config: InstanceConfig, fused: bool) -> None:
        self._linger_s = config.linger_ms / 1000
        self._config = config
        self._fused = fused
        self._source = open_source(config)
        self._lag = LagMeter(config.source)
        self._parser: EventParser | None = None  # of fused mode
        self._busy_s = self._waiting_s = 0.0  # since the last `FetchReport`

    def open(
        self,
        cursors: tuple[LogPosition, ...],
        delivered: str,
        records: Records,
        options: StartOptions = ALL_CURSORS,
    ) -> tuple[Start, SourceIdentity, Records]:
        """Connect and stand where the first cursor is (none: where the configuration says), in
        fused mode with the parser, of whose schemas `records` are known. Returns where, in which
        log, and new records. See Source.resume, EventParser.begin.

        Raises SourceError: unreachable, refused, position unknown or purged; ConfigError.
        """
        new: Records = ()

        def decided(start: Start, identity: SourceIdentity) -> None:
            nonlocal new
            config = self._config.at(identity.address)  # which of several servers it is
            self._lag = LagMeter(config.source)
            if self._fused:
                from ray_canal.destination.parsing import begin, event_parser

                self._parser = event_parser(config)
                at = cursors or begun(options)
                new = begin(self._parser, at, records, start, identity)

        start = self._source.resume(cursors, delivered, decided, options)
        return start, self._source.identity, new

    def next_raw(self, wait_s: float = WAIT_S) -> tuple[Fetched, RawChunk | None]:
        """Return the next raw chunk, which its caller keeps; None after `wait_s` without events."""
        chunk = self._read(wait_s)
        return Fetched(report=self._report(chunk is not None)), chunk

    def next_decoded(self, wait_s: float = WAIT_S) -> tuple[Fetched, DecodedChunk | None]:
        """Return the next decoded chunk: its info, and the chunk, which its caller keeps.

        A small chunk is the payload of the first, and the second is None."""
        report, chunk = self.next_parsed(wait_s)
        return (Fetched(report=report), None) if chunk is None else decoded(report, *chunk)

    def next_parsed(
        self, wait_s: float = WAIT_S
    ) -> tuple[FetchReport, tuple[RawChunk, ParsedChunk] | None]:
        """Return the first half of `next_decoded`; `decoded` is the second, on any thread."""
        raw = self._read(wait_s)
        if raw is None:
            return self._report(False), None
        assert self._parser is not None
        parsed = self._parser.parse(raw)
        return self._report(True), (raw, parsed)

    def _read(self, wait_s: float) -> RawChunk | None:
        # Not by the thread's CPU time: one that gets no CPU, as by a container's limit, has no less
        # to do.
        began_s, waited_s = time.perf_counter(), self._source.waited_s
        try:
            return self._source.read(self._linger_s, wait_s)
        finally:
            waited_s = self._source.waited_s - waited_s
            self._waiting_s += waited_s
            self._busy_s += max(time.perf_counter() - began_s - waited_s, 0.0)

    def _report(self, has_chunk: bool) -> FetchReport:
        report = FetchReport(has_chunk, self._source.finished, self._busy_s, self._waiting_s)
        self._busy_s = self._waiting_s = 0.0
        return report

    def status(self, oldest: EntryPosition | None = None) -> SourceStatus:
        """Position, lag and heartbeat times of the source, and how safe the oldest cursor is from a
        purge. Runs during a waiting read. While the source is away neither is known."""
        status = self._source.status()
        if not status.connected:
            return status
        lag_bytes = self._lag.bytes_behind(status.journal_name, status.position)
        purge = None if oldest is None else self._lag.purge_distance(oldest)
        gtid_set = self._lag.server_gtid_set
        return dataclasses.replace(
            status,
            lag_bytes=lag_bytes,
            end=self._lag.end(),
            end_age_s=self._lag.age_s(),
            purge=purge,
            server_gtid_set=gtid_set,
        )

    def hurry(self) -> None:
        """Have the source hand out what it has, for a subscriber waits; from any thread."""
        self._source.hurry()

    def interrupt(self) -> None:
        """End a waiting read and close the source."""
        self._source.interrupt()

    def close(self) -> None:
        """Close the source and the connection that measures the lag; a fetcher's own process would
        free them with its end."""
        self._source.close()
        self._lag.close()


def decoded(
    report: FetchReport, raw: RawChunk, parsed: ParsedChunk
) -> tuple[Fetched, DecodedChunk | None]:
    """Decode what `next_parsed` returned; the second half of `next_decoded`."""
    info, chunk = decode(raw, parsed)
    info.stage_seconds.update(fetch=report.busy_s, fetch_wait=report.waiting_s)
    if chunk.arena.size <= SMALL_CHUNK_BYTES:
        return Fetched(info=info, payload=chunk), None
    return Fetched(info=info), chunk


def load_everything() -> None:
    """Import and compile (or load) all that a fetcher uses, by decoding a bundled binlog file."""
    from ray_canal.destination.parsing import event_parser
    from ray_canal.source.dump import load_kernels

    given = {"destination": "spare", "source": {"files": [str(_BINLOG)]}}
    config = InstanceConfig.model_validate(given)
    parser, source = event_parser(config), open_source(config)
    try:
        source.open(None)
        while (raw := source.read(0.0, 0.0)) is not None:
            parser.decode_chunk(raw)
    finally:
        source.close()
    load_kernels()
    # What is loaded stays; looking through it for garbage would hold up rows for 50 to 100 ms.
    # (And a start, for what little there is: 3,000 of 200,000 objects.)
    gc.freeze()
