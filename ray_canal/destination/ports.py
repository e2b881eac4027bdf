"""Ports of a destination to what it runs on: `Runtime` and what that makes.

`actors/runtime.py` implements these with Ray's actors, tasks and objects, `tests/local_runtime.py`
with threads and memory. The life of a destination knows no other ground.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ray_canal.binlog.chunk import ChunkInfo, DecodedChunk
from ray_canal.config import InstanceConfig
from ray_canal.destination.status.stages import FetchReport
from ray_canal.log.segment import Segment
from ray_canal.log.transaction_buffer import LogChunk
from ray_canal.model.message import Payload
from ray_canal.model.position import EntryPosition, LogPosition, SourceIdentity
from ray_canal.model.schema_record import Records
from ray_canal.model.start import ALL_CURSORS, Start, StartOptions
from ray_canal.source.port import SourceStatus

if TYPE_CHECKING:
    from ray_canal.snapshot.key_numbers import Keys
    from ray_canal.snapshot.log_chunks import LogPlace
    from ray_canal.snapshot.moment_reader import MomentReading
    from ray_canal.snapshot.row_reader import RangeOrder, RangeRead


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The next chunk on its way into the log, or none (`has_chunk`).

    `report`: the fetcher's times, unless `info` has them. `info`: the decoded chunk's, or what
    brings it when it is decoded; None of a raw chunk. `payload`: the chunk itself or a reference.
    """

    report: FetchReport | None = None
    info: ChunkInfo | Awaitable[ChunkInfo] | None = None
    payload: Payload | None = None

    @property
    def has_chunk(self) -> bool:
        """Return whether there is a chunk, raw or decoded."""
        return self.info is not None or (self.report is not None and self.report.has_chunk)


Answer = Callable[[], Awaitable[Fetched]]
"""A call of a fetcher or an upstream that was made already; to be awaited later."""


class FetcherCalls(Protocol):
    """A handle of a destination/fetcher.py `Fetcher`, in this process or another.

    Calls begin in their order; `status` and `close` pass a waiting read."""

    @property
    def decoding(self) -> Sequence[int]:
        """Sizes in bytes of the chunks that are read and perhaps not in the log yet, oldest first;
        0 of a small one. Empty where only another process knows."""

    async def open(
        self,
        cursors: tuple[LogPosition, ...],
        delivered: str,
        records: Records,
        options: StartOptions = ALL_CURSORS,
    ) -> tuple[Start, SourceIdentity, Records]:
        """See Fetcher.open."""

    def next_raw(self) -> Answer:
        """See Fetcher.next_raw; the chunk as a reference."""

    def next_decoded(self) -> Answer:
        """See Fetcher.next_decoded; a small chunk itself, others as a reference."""

    def appended(self) -> None:
        """Note that the oldest of `decoding` is in the log."""

    def hurry(self) -> None:
        """See Fetcher.hurry; nothing where it would cost more than it gains."""

    async def status(self, oldest: EntryPosition | None) -> SourceStatus | None:
        """See Fetcher.status. None: it is being closed."""

    async def close(self) -> None:
        """End it, also in the middle of a read."""

    def processes(self) -> Mapping[str, Callable[[], Awaitable[object]]]:
        """See Upstream.processes."""


class Upstream(Protocol):
    """The stages before the log of one generation: fetcher, parser, decoders, transaction buffer.

    Any failure ends it; a new one is made."""

    calls_ahead: int
    """So many calls of `next` wait at a time, so that the fetcher is not idle between chunks."""

    async def open(
        self,
        cursors: tuple[LogPosition, ...],
        delivered: str,
        records: Records,
        options: StartOptions,
    ) -> tuple[Start, SourceIdentity, Records]:
        """Stand at the source. Return where, in which log, and new schema records."""

    def next(self) -> Answer:
        """Begin to fetch the next chunk; to be awaited later."""

    async def add(self, info: ChunkInfo | Awaitable[ChunkInfo]) -> LogChunk:
        """Pass a chunk's info through the transaction buffer, in order."""

    @property
    def decoding_bytes(self) -> int:
        """Size in bytes of the next large chunk being decoded; 0 if none or unknown."""

    def appended(self) -> None:
        """Note that the oldest chunk that was not in the log yet is there now."""

    def hurry(self) -> None:
        """Hand out what has come without a linger: a subscriber waits."""

    def processes(self) -> Mapping[str, Callable[[], Awaitable[object]]]:
        """Return, by the name that an error gives it, a call that each process of its own answers
        at once, unless it was stopped."""

    async def status(self, oldest: EntryPosition | None) -> SourceStatus | None:
        """State of the source; None if it is not known now."""

    async def close(self) -> None:
        """End every stage. What is in flight is dropped; it was not acked, so it comes again."""


class Spill(Protocol):
    """The part of one log that is on disk."""

    async def write(self, chunk: LogChunk, payload: Payload) -> Segment:
        """Move a chunk to disk. Raises OSError: the disk does not take it."""

    def read_log_chunk(self, segment: Segment) -> Awaitable[LogChunk]:
        """Read back what the log keeps of a chunk. Asked for when this is called, so also if the
        segment is dropped before it is awaited. Raises InstanceError."""

    def payload(self, segment: Segment) -> Payload:
        """Return what a message carries for a chunk on disk."""

    def drop(self, segments: Sequence[Segment]) -> None:
        """Free segments that nobody needs any more."""

    async def close(self) -> None:
        """Forget it; nothing is waited for longer than a few seconds."""


class ChunkWatch(Protocol):
    """Finds out which chunks of one log are gone with the machine that had them."""

    async def lost(self, payloads: Iterable[Payload]) -> bool:
        """Return whether some of the log's chunks can no longer be read."""

    async def unreadable(self, payloads: Iterable[Payload], told: Sequence[Payload]) -> bool:
        """Return whether some of `told`, which a client could not read, are the log's and lost."""


class MetricsPublisher(Protocol):
    """One destination's metrics."""

    def publish(self, status: Mapping[str, Any]) -> None:
        """Publish a status."""

    def gone(self) -> None:
        """The destination was stopped here."""


class RowReaderHandle(Protocol):
    """A handle of a snapshot/row_reader.py `RowReader`, in this process or another."""

    async def open(self) -> None:
        """Connect, before it is asked to read; that does so, too."""

    async def read(self, order: RangeOrder) -> RangeRead:
        """See RowReader.read; the reader keeps the rows. Orders are read one after the other."""

    async def place(
        self, number: int, touched: tuple[Keys, ...], doubted: tuple[Keys, ...], place: LogPlace
    ) -> tuple[list[tuple[ChunkInfo, Payload]], bool]:
        """See RowReader.place: the pieces, each chunk as what the log keeps, and whether those are
        all. It passes a read that goes on."""

    async def close(self) -> None:
        """End it. What it keeps is gone."""


class Runtime(Protocol):
    """Makes what a destination runs on."""

    def decoders(self, config: InstanceConfig) -> int:
        """Return the number of decode tasks that may run side by side; 0: the fetcher decodes."""

    async def upstream(self, config: InstanceConfig) -> Upstream:
        """Make the stages of a new generation. Raises ConfigError: a password is not kept any
        more."""

    def spill(self, folder: str) -> Spill:
        """Make the part of a log on disk, in a folder that nobody else uses."""

    def row_reader(self, config: InstanceConfig) -> RowReaderHandle:
        """Make a reader of tables' rows, which connects when it is first asked."""

    def moment_reader(self, config: InstanceConfig) -> MomentReading:
        """Make a reader of rows of one moment, for a log."""

    def keep(self, chunk: DecodedChunk) -> Payload:
        """Return what a log keeps of a large chunk. Any thread calls."""

    async def load(self, payload: Payload) -> DecodedChunk:
        """Return the chunk that a log keeps as this payload."""

    def chunk_watch(self) -> ChunkWatch:
        """Make the watch over one log's chunks."""

    def untracked(self, payload: Payload) -> Payload:
        """Return a payload that can be read only while the log keeps its chunk; cheaper, if the
        ground has such references."""

    def metrics(self, destination: str) -> MetricsPublisher:
        """Make the publisher of a destination's metrics."""

    def unwrap(self, error: Exception) -> Exception:
        """Return the error that a stage raised, without the runtime's own wrapping. A stage that
        died becomes a retryable InstanceNotRunning."""
