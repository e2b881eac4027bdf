"""Call the walking kernel: a raw chunk's entries as arrays, its first bad event as an error."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, replace

import numpy as np

from ray_canal.binlog.chunk import (
    EVENT,
    FLAVOR_MARIADB,
    GTID,
    GTID_ANONYMOUS,
    ChunkHead,
    RawChunk,
    SkippedEvent,
)
from ray_canal.binlog.events import event_name, may_be_skipped
from ray_canal.binlog.packed_chunk import pack, single_event
from ray_canal.errors import CorruptEvent, DecodeError, IncidentEvent, UnsupportedEvent
from ray_canal.kernels.base import event_types
from ray_canal.kernels.base.jit import read_only
from ray_canal.kernels.framing import table_maps as m
from ray_canal.kernels.framing import walk as w
from ray_canal.kernels.framing.digest import PIECE_FIELDS, transaction_pieces
from ray_canal.model.arrays import Bytes, Int64s, Records

_BYTES_PER = (64, 256, 16 << 10)  # log entry, GTID, distinct table
_RAW_BYTES_MAX = 1 << 20
"""Bytes of a bad event that are kept in the error."""


@dataclass(frozen=True, slots=True)
class Walked:
    """`events`: EVENT records; `table` is a column of `maps`, `kind` may be walk.KIND_SPECIAL.
    `bodies`: int64[entries, 2], where the body of each begins and ends in the chunk's data, without
    header and checksum. `questions`: entries that Python must look at, in log order: each special
    query, and each table's first row event. `unasked`: how many special ones are none of them,
    SAVEPOINTs and texts of statements whose rows follow. `maps`: start and end of each distinct
    TABLE_MAP's body (behind the table id), and its event's offset. `gtid_seconds`: header times of
    the GTID events. `skipped`: events that were left out."""

    events: Records
    bodies: Int64s
    questions: Int64s
    gtids: Records
    gtid_seconds: Int64s
    maps: Int64s
    id_bytes: int
    unasked: int = 0
    failure: DecodeError | None = None
    skipped: tuple[SkippedEvent, ...] = ()


def table_id_bytes(post_header_bytes: bytes) -> int:
    """4 if FORMAT_DESCRIPTION gives TABLE_MAP six fixed bytes (MySQL before 5.1.4), else 6."""
    number = event_types.TABLE_MAP - 1
    return 4 if len(post_header_bytes) > number and post_header_bytes[number] == 6 else 6


def file_position(raw: RawChunk, at: int) -> int:
    """Offset in the binlog file of the event at `at` in the chunk's data (for errors)."""
    head, data = raw.head, raw.data
    here, place, frame_end, frame_start = 0, head.position - head.carried_bytes, 0, 0
    while here < at and at - here >= event_types.HEADER_BYTES:
        size = int.from_bytes(data[here + 9 : here + 13].tobytes(), "little")
        if size < event_types.HEADER_BYTES:
            break
        if data[here + 4] == event_types.TRANSACTION_PAYLOAD and size == w.FRAME_BYTES:
            body = data[here + event_types.HEADER_BYTES : here + size].tobytes()
            frame_start, length, _, inside = struct.unpack("<4q", body)
            frame_end = here + size + inside
            if here >= head.carried_bytes:
                place = frame_start + length
            here += size
            continue
        if here >= frame_end:
            place += size
        here += size
        if here == head.carried_bytes:
            place = head.position
    return frame_start if here < frame_end else place


def at_event(error: DecodeError, raw: RawChunk, at: int) -> DecodeError:
    """The error with its file, its offset and the event's bytes (a mebibyte at most)."""
    error.at(raw.head.journal_name, file_position(raw, at))
    size = int.from_bytes(raw.data[at + 9 : at + 13].tobytes(), "little")
    error.raw = raw.data[at : at + min(size, _RAW_BYTES_MAX)].tobytes()
    return error


def walk(raw: RawChunk) -> Walked:
    """Walk a chunk's events. Does not raise: a bad event ends the walk and is the `failure`, unless
    it may be left out."""
    data = read_only(raw.data)
    skipped: list[SkippedEvent] = []
    while True:
        walked, code, at, kind = _walked(raw.head, data)
        if code == w.OK:
            return replace(walked, skipped=tuple(skipped)) if skipped else walked
        position = file_position(raw, at)
        error = at_event(_error(code, kind, data[at:]), raw, at)
        reason = _may_pass(raw.head, code, kind, position, error)
        if not reason:
            if code in (w.UNSUPPORTED, w.INCIDENT):
                how_to_pass(error)
            return replace(walked, failure=error, skipped=tuple(skipped))
        size_bytes = int.from_bytes(data[at + 9 : at + 13].tobytes(), "little")
        letter = letter_of(raw, at, position)
        skipped.append(SkippedEvent(position, event_name(kind), size_bytes, reason, letter))
        data = _ignorable(data, at, size_bytes, has_checksum=raw.head.has_checksum)


def _may_pass(head: ChunkHead, code: int, kind: int, position: int, error: DecodeError) -> str:
    """Return why an event that cannot be read is left out; empty: it is not. Bytes that may have
    changed on their way, and what a server says that it has lost, are left out by their place
    alone."""
    if code == w.UNSUPPORTED and kind in event_types.OLD:
        return "servers before MySQL 5.0.3 wrote such; Canal leaves it out, too"
    whole = code not in (w.BAD_LENGTH, w.BAD_FRAME)
    if whole and position in head.skips and may_be_skipped(kind):
        return "source.skip_events"
    lost = code in (w.BAD_CHECKSUM, w.INCIDENT)
    if whole and not lost and head.on_undecodable != "stop" and may_be_skipped(kind):
        return f"source.on_undecodable; {error}"
    return ""


def letter_of(raw: RawChunk, at: int, position: int) -> bytes:
    """Return what is kept of an event that is left out; empty unless that is wanted."""
    if raw.head.on_undecodable != "dead_letter" or position in raw.head.skips:
        return b""
    return pack(single_event(raw, at, position))


def _ignorable(data: Bytes, at: int, size_bytes: int, *, has_checksum: bool) -> Bytes:
    """Return the data with the event at `at` marked as ignorable."""
    data = data.copy()
    data[at + 4] = event_types.IGNORABLE
    data[at + 17] |= event_types.FLAG_IGNORABLE
    end = at + size_bytes - event_types.CHECKSUM_BYTES
    if has_checksum and end - at >= event_types.HEADER_BYTES:
        digest = struct.pack("<I", zlib.crc32(data[at:end].tobytes()))
        data[end : end + len(digest)] = np.frombuffer(digest, np.uint8)
    return read_only(data)


def how_to_pass(error: DecodeError) -> DecodeError:
    """Return the error with the setting that lets its event pass."""
    place = f"{error.journal_name}:{error.position}"
    error.args = (
        f"{error.args[0]}. To go on without this one event, and what it changed, set "
        f'source.skip_events = ["{place}"] and start again',
    )
    return error


def _walked(head: ChunkHead, data: Bytes) -> tuple[Walked, int, int, int]:
    """Return the walked events; the kernel's code, offset and type of the event that it ended
    at."""
    id_bytes = table_id_bytes(head.post_header_bytes)
    # As counted where the chunk was cut (one GTID event may be carried), or else what most chunks
    # need; a chunk with more is counted first, and walked again.
    entries, gtid_events, table_maps = (32 + data.size // size for size in _BYTES_PER)
    if head.events:
        entries, gtid_events = head.events, head.gtids + 1
    start = w.WalkStart(
        carried=head.carried_bytes,
        position=head.position,
        in_transaction=int(head.in_transaction),
        checksum=event_types.CHECKSUM_BYTES if head.has_checksum else 0,
        mariadb=head.flavor == FLAVOR_MARIADB,
        id_bytes=id_bytes,
    )
    while True:
        size = 16
        while size < 2 * (table_maps + 1):
            size *= 2
        events = np.empty(entries + 1, EVENT)
        bodies = np.empty((entries, 2), np.int64)
        questions = np.empty(1 + entries, np.int64)
        questions[0] = 0
        gtids = np.empty(gtid_events, GTID)
        seconds = np.empty(gtid_events, np.int64)
        maps = np.empty((m.MAP_FIELDS, table_maps), np.int64)
        state = np.zeros(w.STATE_FIELDS, np.int64)
        found = w.WalkOutput(
            events=events,
            bodies=bodies.reshape(-1),
            questions=questions,
            gtids=np.ndarray((gtids.nbytes,), np.uint8, gtids.data),
            seconds=seconds,
            state=state,
        )
        counts = np.zeros(m.COUNTS, np.int64)
        slots, ids, active, since = np.full((4, size), -1, np.int64)
        tables = m.TableMaps(maps, slots, ids, active, since, counts)
        code, at, entries, kind = w.walk(data, tuple(start), tuple(found), tuple(tables))
        if code != w.NO_ROOM:
            break
        entries, gtid_events, table_maps = w.survey(data)
    gtid_count = int(state[w.GTIDS])
    walked = Walked(
        events[:entries],
        bodies[:entries],
        questions[1 : 1 + int(questions[0])],
        gtids[:gtid_count],
        seconds[:gtid_count],
        maps[:, : int(counts[m.MAPS])],
        id_bytes,
        int(state[w.UNASKED]),
    )
    return walked, code, at, kind


def names_transactions(walked: Walked) -> bool:
    """Return whether at least one transaction has a GTID or an original commit time, which is the
    same on every server."""
    gtids = walked.gtids
    return bool((gtids["flavor"] != GTID_ANONYMOUS).any() or gtids["original_us"].any())


def digest_pieces(raw: RawChunk, walked: Walked) -> Int64s:
    """Return the pieces of transactions that a chunk has (kernels/framing/digest.py), for
    binlog/trail.py."""
    events, bodies, maps = walked.events, walked.bodies, walked.maps
    pieces = np.zeros((len(events) + 1, PIECE_FIELDS), np.int64)
    data = read_only(raw.data)
    return pieces[: transaction_pieces(data, events, bodies, maps, walked.id_bytes, pieces)]


def _error(code: int, kind: int, event: Bytes) -> DecodeError:
    name = event_name(kind)
    if code == w.UNSUPPORTED:
        return UnsupportedEvent(f"events of type {name} are not known")
    if code == w.BAD_CHECKSUM:
        return CorruptEvent(f"{name}: the checksum does not fit the event's bytes")
    if code == w.BAD_LENGTH:
        return CorruptEvent(f"{name}: the header's event length is impossible")
    if code == w.INCIDENT:
        body = event[event_types.HEADER_BYTES :][:258].tobytes()
        text = body[3 : 3 + body[2]].decode("utf-8", "replace") if len(body) > 2 else ""
        return IncidentEvent(
            f"INCIDENT: the server says that events are missing here ({text}); what is lost must "
            "be read from the tables again, then start behind it"
        )
    if code == w.BAD_FRAME:
        return CorruptEvent(f"{name}: a compressed event that was not opened")
    if code == w.NO_TABLE_MAP:
        return CorruptEvent(f"{name}: no TABLE_MAP for its table id in its statement")
    if code == w.BAD_TAG:
        return CorruptEvent(f"{name}: its tag has other characters than a-z, 0-9 and _")
    return CorruptEvent(f"{name}: the event is too short")
