"""Decoded golden binlogs against Canal's own entries of the same files, and by hand where Canal is
wrong."""

from __future__ import annotations

import datetime as dt
import re
import zlib
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from ray_canal.binlog.assemble import assemble, walk
from ray_canal.binlog.chunk import (
    EVENT_CLOSES,
    EVENT_IN_TRANSACTION,
    DecodedChunk,
    RawChunk,
    TableLayout,
)
from ray_canal.binlog.decode import decode
from ray_canal.binlog.parsed import TableVersion
from ray_canal.binlog.plan import make_plan
from ray_canal.canal.generated import EntryProtocol_pb2 as pb
from ray_canal.errors import CorruptEvent, TableMetaMismatch, UnsupportedEvent
from ray_canal.kernels.base import codes
from ray_canal.views.arrow import batches
from tests.golden import split_delimited
from tests.unit.binlog.golden import (
    GOLDEN,
    classify,
    decode_chunk,
    golden_chunk,
    needs_golden,
    resolve,
    values,
)

pytestmark = needs_golden

EPOCH = dt.datetime(1970, 1, 1)
SUBJECTS = ("numeric", "temporal", "enumsetbit", "strings", "dml", "geometry")


def canal_entries(path: str) -> Iterator[pb.Entry]:
    """Canal's ROWDATA entries of row events."""
    for data in split_delimited((GOLDEN / path).read_bytes()):
        entry = pb.Entry.FromString(data)
        if entry.entryType == pb.ROWDATA and entry.header.eventType in (1, 2, 3):
            yield entry


def moment(text: str) -> object:
    """Slot of a DATETIME text: microseconds, or its packed digits where no calendar has it."""
    year, month, day, hour, minute, second = map(int, re.split(r"[-: ]", text.partition(".")[0]))
    micros = int((text.partition(".")[2] + "000000")[:6])
    try:
        return (
            dt.datetime(year, month, day, hour, minute, second, micros) - EPOCH
        ) // dt.timedelta(microseconds=1)
    except ValueError:
        date = year << 9 | month << 5 | day
        return "irregular", (date << 17 | hour << 12 | minute << 6 | second) << 20 | micros


def day(text: str) -> object:
    year, month, number = map(int, text.split("-"))
    try:
        return (dt.date(year, month, number) - EPOCH.date()).days
    except ValueError:
        return "irregular", year << 9 | month << 5 | number


def duration(text: str) -> int:
    hours, minutes, seconds = text.lstrip("-").split(":")
    total = (int(hours) * 60 + int(minutes)) * 60_000_000 + int(Decimal(seconds) * 1_000_000)
    return -total if text.startswith("-") else total


def expected(code: int, text: str) -> object:
    if code in (codes.DATETIME, codes.TIMESTAMP):
        return moment(text)
    if code == codes.DATE:
        return day(text)
    if code == codes.TIME:
        return duration(text)
    if code in (codes.DEC128, codes.DEC256):
        return Decimal(text)
    if code == codes.F32:
        return float(np.float32(text))
    if code == codes.F64:
        return float(text)
    if code == codes.TEXT:
        return text
    if code in (codes.BYTES, codes.GEOMETRY):
        return text.encode("latin-1")
    return int(text)


def same(code: int, ours: object, text: str) -> bool:
    if code == codes.BYTES:  # Canal drops the zero bytes that pad BINARY
        return ours.rstrip(b"\0") == expected(code, text).rstrip(b"\0")  # type: ignore[attr-defined]
    return ours == expected(code, text)


def compare(chunk: DecodedChunk, entries: Iterator[pb.Entry]) -> int:
    """Every row event against Canal's entry; number of values compared."""
    rows = {}
    for number, table in enumerate(chunk.layout.tables):
        for side in ("before", "after"):
            if getattr(table, side):
                rows[number, side] = values(chunk, table, side)
    compared = 0
    for event in chunk.events[chunk.events["table"] >= 0]:
        entry = next(entries)
        header = entry.header
        assert header.logfileOffset == event["position"]
        assert header.eventLength == event["length"]
        assert header.eventType == event["event_type"]
        assert header.executeTime == int(event["timestamp"]) * 1000
        change = pb.RowChange.FromString(entry.storeValue)
        assert len(change.rowDatas) == event["rows"]
        number = int(event["table"])
        table = chunk.layout.tables[number]
        assert (header.schemaName, header.tableName) == (table.meta.schema, table.meta.table)
        for k, row in enumerate(change.rowDatas):
            at = int(event["row"]) + k
            for side, columns in (("before", row.beforeColumns), ("after", row.afterColumns)):
                if columns:
                    assert [c.index for c in columns] == present(chunk, event, table, side)
                    compared += compare_row(table, side, rows[number, side][at], columns)
                elif (number, side) in rows:
                    assert set(rows[number, side][at].values()) == {None}
    assert next(entries, None) is None
    return compared


def present(chunk: DecodedChunk, event: np.void, table: TableLayout, side: str) -> list[int]:
    """Indexes of the columns that an event's image has."""
    count = len(table.meta.columns)
    if event["present"] < 0:
        return list(range(count))
    start = int(event["present"]) + (side == "after") * ((count + 7) // 8)
    return [c for c in range(count) if chunk.arena[start + c // 8] >> (c % 8) & 1]


def compare_row(
    table: TableLayout, side: str, ours: dict[str, object], columns: list[pb.Column]
) -> int:
    compared = 0
    absent = set(range(len(ours))) - {c.index for c in columns}
    assert all(list(ours.values())[index] is None for index in absent)
    for theirs in columns:
        layout, meta = getattr(table, side)[theirs.index], table.meta.columns[theirs.index]
        value = list(ours.values())[theirs.index]
        assert (value is None) == theirs.isNull, theirs
        if value is None or layout.code == codes.JSON:
            continue
        if meta.charset not in ("", "utf8mb4", "utf8mb3", "ascii", "binary"):
            continue  # Canal decodes all text as UTF-8
        if meta.charset == "binary" and "char" in theirs.mysqlType and "var" in theirs.mysqlType:
            continue
        assert same(layout.code, value, theirs.value), (theirs.name, value, theirs.value)
        compared += 1
    return compared


@pytest.mark.without_compiler
@pytest.mark.parametrize("subject", SUBJECTS)
def test_mysql97_as_canal(subject: str) -> None:
    info, chunk = decode_chunk(golden_chunk(f"mysql97/mysql_{subject}"))
    assert info.failure is None
    assert compare(chunk, canal_entries(f"mysql97/mysql_{subject}.tsdb.pb")) > 20
    assert info.arena_bytes == chunk.arena.size
    assert info.entries["rows"].sum() == sum(table.rows for table in chunk.layout.tables)


@pytest.mark.parametrize("name", ["mysql56/mysql56_temporal", "mariadb1011/maria_temporal"])
def test_versions_without_row_metadata(name: str) -> None:
    """Row events version 1 and 2, MariaDB's GTIDs as BEGIN; types from TABLE_MAP alone suffice
    here."""
    info, chunk = decode_chunk(golden_chunk(name))
    assert info.failure is None
    assert compare(chunk, canal_entries(f"{name}.tsdb.pb")) > 20
    kinds = chunk.events["kind"]
    assert (kinds == 1).sum() == (kinds == 3).sum() > 5


@pytest.mark.without_compiler
def test_texts_of_other_character_sets() -> None:
    _, chunk = decode_chunk(golden_chunk("mysql97/mysql_strings"))
    first, *_, last = values(chunk, chunk.layout.tables[0], "after")
    assert first["v_l1"] == "Ünïcødé"
    assert first["v_gbk"].startswith("中文")
    for name in ("v_utf16", "v_utf16le", "v_utf32"):
        assert "😀" in first[name], (name, first[name])
    assert not any("\ufffd" in v for v in first.values() if isinstance(v, str))
    assert last["v_l1"] == "€\x81\x8d\x8f\x90\x9d\xa0ÿ"
    padded = values(chunk, chunk.layout.tables[2], "after")[0]
    assert padded["b10"] == b"\x01\x02" + bytes(8)
    assert len(padded["b255"]) == 255


def test_events_of_a_transaction() -> None:
    info, chunk = decode_chunk(golden_chunk("mysql97/mysql_dml"))
    events = chunk.events
    assert events["kind"].tolist()[:4] == [2, 1, 2, 3]  # CREATE, then BEGIN, rows, XID
    assert events["flags"].tolist()[:4] == [0, 0, 1, 1]
    assert events["gtid"].tolist()[:4] == [0, 1, 1, 1]
    assert events["aux"][1] > 0  # thread id
    assert events["aux"][3] > 0  # XID
    gtid = chunk.gtids[1]
    assert bytes(gtid["sid"]).hex() == "6d9b098de55a11f19a7a02fc00000001"
    assert gtid["gno"] == chunk.gtids[0]["gno"] + 1
    assert gtid["position"] == 565
    assert abs(gtid["commit_us"] / 1e6 - events["timestamp"][1]) < 4e8
    query = chunk.queries[0]
    sql = chunk.arena[query["sql"] : query["sql"] + query["sql_bytes"]].tobytes().decode()
    assert sql.startswith("create table t_dml")
    assert info.tables[0] == ("g_dml", "t_dml")


def test_row_event_points_back() -> None:
    _, chunk = decode_chunk(golden_chunk("mysql97/mysql_dml"))
    for number, table in enumerate(chunk.layout.tables):
        back = chunk.arena[table.row_event : table.row_event + 4 * table.rows].view("<i4")
        mine = np.flatnonzero(chunk.events["table"] == number)
        assert back.tolist() == np.repeat(mine, chunk.events["rows"][mine]).tolist()


def corrupt(raw: RawChunk, at: int, value: int, checksum: bool = False) -> RawChunk:
    """The chunk with one byte changed; `checksum`: with that event's checksum made to fit."""
    data = raw.data.copy()
    data[at] = value
    if checksum:
        event = 0
        while event + int(data[event + 9 : event + 13].view("<u4")[0]) <= at:
            event += int(data[event + 9 : event + 13].view("<u4")[0])
        end = event + int(data[event + 9 : event + 13].view("<u4")[0])
        data[end - 4 : end].view("<u4")[0] = zlib.crc32(data[event : end - 4].tobytes())
    return RawChunk(raw.head, data)


@pytest.mark.parametrize("name", ["mysql97/mysql_json", "mariadb1011/maria_maria10"])
def test_an_arena_ends_with_its_last_text(name: str) -> None:
    """However much room JSON and compressed values might have needed: none is kept."""
    _, chunk = decode_chunk(golden_chunk(name))
    ends = [
        column.data + column.data_bytes
        for table in chunk.layout.tables
        for column in (*(table.before or ()), *(table.after or ()))
    ]
    assert max(ends) <= chunk.arena.size < max(ends) + codes.ALIGNMENT_BYTES
    assert chunk.arena.flags.owndata


@pytest.mark.parametrize("name", sorted(p.stem for p in GOLDEN.glob("m*/*.binlog")))
def test_what_memory_held_before_does_not_travel(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An arena is not zeroed as a whole: each byte of it is written, or cleared."""
    path = next(GOLDEN.glob(f"m*/{name}.binlog"))
    raw = golden_chunk(f"{path.parent.name}/{name}")
    decode_chunk(raw)  # compiles what is not: numba, too, uses `empty`
    empty = np.empty

    def filled(byte: int) -> bytes:
        def made(*given: Any, **named: Any) -> Any:
            found = empty(*given, **named)
            if found.dtype != object:
                found.view(np.uint8).fill(byte)
            return found

        with monkeypatch.context() as patched:
            patched.setattr(np, "empty", made)
            return decode_chunk(raw)[1].arena.tobytes()

    assert filled(0xA5) == filled(0x5A)


def test_bit_flip_is_found_and_good_events_come_out() -> None:
    raw = golden_chunk("mysql97/mysql_dml")
    good, _ = decode_chunk(raw)
    info, chunk = decode_chunk(corrupt(raw, 1100, raw.data[1100] ^ 4))
    assert isinstance(info.failure, CorruptEvent)
    assert "checksum" in str(info.failure)
    assert info.failure.journal_name == "mysql_dml.binlog"
    assert info.failure.position == 1064
    assert len(info.failure.raw) == 85
    before = good.entries[good.entries["position"] < 1064]
    assert info.entries.tolist() == before.tolist()
    assert len(chunk.events) == len(before) > 0


def test_truncated_file() -> None:
    raw = golden_chunk("mysql97/mysql_dml")
    info, _ = decode_chunk(RawChunk(raw.head, raw.data[:-7]))
    assert isinstance(info.failure, CorruptEvent)
    assert len(info.entries) > 50


def test_every_changed_byte_of_a_row_event_is_survived() -> None:
    """With a fitting checksum: either it still decodes, or the failure names that event."""
    raw = golden_chunk("mysql97/mysql_dml")
    start, end = 810 - 4, 810 - 4 + 144
    failures = 0
    for at in range(start + 19, end - 4):
        for value in (0, 0x7F, 0xFF):
            info, _ = decode_chunk(corrupt(raw, at, value, checksum=True))
            if info.failure:
                failures += 1
                assert isinstance(info.failure, CorruptEvent)
                assert info.failure.position == 810
                assert len(info.entries) == 2
    assert failures > 20


def test_unsupported_event_is_named() -> None:
    """An event type that nobody writes, with no flag that would let it be ignored."""
    raw = corrupt(golden_chunk("mysql97/mysql_dml"), 810 - 4 + 4, 60, checksum=True)
    info, chunk = decode_chunk(raw)
    assert isinstance(info.failure, UnsupportedEvent)
    assert "(60)" in str(info.failure)
    assert info.failure.position == 810
    assert len(chunk.events) > 0


def test_unsupported_column_is_named() -> None:
    raw = golden_chunk("mysql97/mysql_strings")
    parsed = assemble(raw, walk(raw), resolve, classify)
    version = next(v for v in parsed.tables if "varchar" in str(v.meta.columns))
    columns = tuple(replace(column, charset="") for column in version.meta.columns)
    bare = replace(version.table_map, collations=None)
    with pytest.raises(UnsupportedEvent, match="its character set is not known") as found:
        make_plan(TableVersion(replace(version.meta, columns=columns), bare))
    assert version.meta.full_name in str(found.value)


def test_compressed_columns() -> None:
    _, chunk = decode_chunk(golden_chunk("mariadb1011/maria_maria10"))
    after = next(batches(chunk, 0, chunk.layout.event_count)).column("after")
    assert [after.field(4)[0].as_py(), after.field(5)[0].as_py()] == ["z" * 3000, "q" * 3000]


def test_schema_that_does_not_fit() -> None:
    raw = golden_chunk("mysql97/mysql_dml")

    def shorter(table_map, position):  # type: ignore[no-untyped-def]
        meta = resolve(table_map)
        return replace(meta, columns=meta.columns[:-1])

    info, _ = decode(raw, assemble(raw, walk(raw), shorter, classify))
    assert isinstance(info.failure, TableMetaMismatch)
    assert "g_dml.t_dml" in str(info.failure)
    assert info.failure.position == 810

    def other(table_map, position):  # type: ignore[no-untyped-def]
        meta = resolve(table_map)
        return replace(meta, columns=(replace(meta.columns[0], type_code=15), *meta.columns[1:]))

    info, _ = decode(raw, assemble(raw, walk(raw), other, classify))
    assert isinstance(info.failure, TableMetaMismatch)
    assert "VARCHAR (15) in the schema, LONG (3) in the TABLE_MAP" in str(info.failure)


@pytest.mark.without_compiler
def test_carried_events_make_no_entries() -> None:
    """A chunk that begins inside a transaction, with its GTID event and TABLE_MAP carried."""
    whole = golden_chunk("mysql97/mysql_dml")
    good, _ = decode_chunk(whole)
    gtid, table_map, rows, end = (p - 4 for p in (565, 720, 810, 985))
    carried = [whole.data[gtid : gtid + 79], whole.data[table_map:rows]]
    data = np.concatenate([*carried, whole.data[rows:end]])
    head = replace(
        whole.head, position=810, carried_bytes=sum(map(len, carried)), in_transaction=True
    )
    info, _ = decode_chunk(RawChunk(head, data))
    assert info.failure is None
    assert info.entries["position"].tolist() == [810, 954]
    assert info.entries["flags"].tolist() == [
        EVENT_IN_TRANSACTION,
        EVENT_IN_TRANSACTION | EVENT_CLOSES,
    ]
    assert info.gtids["position"].tolist() == [565]
    assert info.entries["transaction"].tolist() == [0, 0]
    assert info.size_bytes == 985 - 810
    wanted = good.entries[np.isin(good.entries["position"], [810, 954])]
    assert info.entries["rows"].tolist() == wanted["rows"].tolist()
