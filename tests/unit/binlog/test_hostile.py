"""What fuzzing (tests/fuzz) found, each by hand."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest

from ray_canal.binlog import decode as module
from ray_canal.binlog.chunk import RawChunk
from ray_canal.binlog.events import MAGIC
from ray_canal.errors import CorruptEvent, UnsupportedEvent
from ray_canal.kernels.base import event_types
from tests.unit.binlog.golden import decode_chunk, golden_chunk, needs_golden, values

pytestmark = needs_golden


def unchecked(raw: RawChunk, data: bytes | bytearray) -> RawChunk:
    """The chunk with other bytes, of which no checksum tells: each event keeps its trailer."""
    head = replace(raw.head, has_checksum=False)
    return RawChunk(head, np.frombuffer(bytes(data), np.uint8))


def without_checksums(raw: RawChunk) -> RawChunk:
    out, at = bytearray(), 0
    data = raw.data.tobytes()
    while at < len(data):
        length = struct.unpack_from("<I", data, at + 9)[0]
        event = bytearray(data[at : at + length - 4])
        struct.pack_into("<I", event, 9, len(event))
        out += event
        at += length
    return unchecked(raw, out)


def test_broken_utf8_becomes_replacement_characters() -> None:
    raw = without_checksums(golden_chunk("mysql97/mysql_dml"))
    _, good = decode_chunk(raw)
    table = next(n for n, t in enumerate(good.layout.tables) if t.after)
    rows = values(good, good.layout.tables[table], "after")
    name = next(c.name for c in good.layout.tables[table].meta.columns if c.charset == "utf8mb4")
    text = next(row[name] for row in rows if row[name])
    assert isinstance(text, str)
    data = bytearray(raw.data.tobytes())
    rows_event = int(good.events["position"][good.events["table"] == table][0]) - len(MAGIC)
    data[data.index(text.encode(), rows_event)] = 0xFF
    info, chunk = decode_chunk(unchecked(raw, data))
    assert info.failure is None
    broken = [row[name] for row in values(chunk, chunk.layout.tables[table], "after")]
    expected = [row[name] for row in rows]
    expected[expected.index(text)] = "\ufffd" + text[1:]
    assert broken == expected


def test_a_gtid_of_mysql_in_a_binlog_of_mariadb_is_refused() -> None:
    mysql, maria = golden_chunk("mysql97/mysql_xa"), golden_chunk("mariadb1011/maria_xa")
    info, _ = decode_chunk(RawChunk(replace(mysql.head, flavor=maria.head.flavor), mysql.data))
    assert isinstance(info.failure, UnsupportedEvent)
    assert "GTID" in str(info.failure)
    assert info.failure.journal_name == mysql.head.journal_name


def test_memory_out_of_proportion_is_refused_before_it_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw = golden_chunk("mysql97/mysql_numeric")
    whole, _ = decode_chunk(raw)
    monkeypatch.setattr(module, "ARENA_FREE_BYTES", 0)
    monkeypatch.setattr(module, "ARENA_FACTOR_MAX", 1)
    info, chunk = decode_chunk(raw)
    assert isinstance(info.failure, UnsupportedEvent)
    assert "chunk_bytes" in str(info.failure)
    assert info.failure.position is not None
    assert chunk.arena.size <= raw.data.size < whole.arena_bytes


def test_a_tag_of_a_gtid_that_no_text_can_hold_is_refused_at_its_place() -> None:
    raw = without_checksums(golden_chunk("mysql97/mysql_taggedgtid"))
    _, good = decode_chunk(raw)
    tagged = next(tag for tag in good.gtids["tag"].tolist() if tag)
    data = bytearray(raw.data.tobytes())
    data[data.index(tagged)] = 0xFC
    info, chunk = decode_chunk(unchecked(raw, data))
    assert isinstance(info.failure, CorruptEvent)
    assert "tag" in str(info.failure)
    assert 0 < len(chunk.events) < len(good.events)
    place = info.failure.position
    assert place is not None
    assert chunk.events["position"].max() < place < raw.data.size
    assert info.failure.raw[4] == 42


def test_rows_behind_the_end_of_their_statement_are_refused() -> None:
    """As servers refuse them, and wherever a chunk is cut: none carries a TABLE_MAP that far."""
    raw = without_checksums(golden_chunk("mysql97/mysql_dml"))
    data, at = raw.data.tobytes(), 0
    while not (data[at + 4] == event_types.WRITE_ROWS and data[at + 25] & 1):
        at += struct.unpack_from("<I", data, at + 9)[0]
    end = at + struct.unpack_from("<I", data, at + 9)[0]
    info, chunk = decode_chunk(unchecked(raw, data[:end] + data[at:end] + data[end:]))
    assert isinstance(info.failure, CorruptEvent)
    assert "no TABLE_MAP for its table id in its statement" in str(info.failure)
    assert chunk.events["position"][-1] == at + len(MAGIC)
