"""FlatMessages against their plain rendering: every binlog of the golden folders, any options."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ray_canal import malloc
from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.binlog.executed import gtid_set_after
from ray_canal.canal.generated import CanalProtocol_pb2 as protocol
from ray_canal.canal.generated import EntryProtocol_pb2 as pb
from ray_canal.demo import binlog_files
from ray_canal.errors import ConfigError
from ray_canal.filter import FieldFilter
from ray_canal.model.arrays import Bools
from ray_canal.offline import decode_chunks, decode_messages
from ray_canal.views.entries import chosen_entries, delimited_pieces
from ray_canal.views.entry_messages import entry_messages, packets
from ray_canal.views.flat import OLD_CANAL, OLD_EXACT, FlatMessages, FlatOptions, flat_messages
from ray_canal.views.message_lines import MessageLines
from ray_canal.views.routing import Routing, java_hash, java_partition
from tests.golden import GOLDEN, split_delimited
from tests.golden.flat_reference import TS_MS, lines

FILES = sorted(
    path for path in GOLDEN.glob("*/*.binlog") if "strings" not in path.name
)
HASHES = ("", r".*\..*", r".*\..*:$pk$", r".*\..*:id^b^id^ID^v", r"g_.*\..*:a,.*\.t_.*:$PK$")
TOPICS = ("", r".*\..*", r"one:.*\.t_.*;g_dml,two:g_ddl.d1", "g_.*")
BLACK = ("", "g_dml.t_dml:id/c,g_ddl.d1:id/nm2/v/first_c,g_num.t_num:c1")


def options(rng: random.Random) -> FlatOptions:
    routing = Routing(
        topic="t", partition=rng.randrange(3), partitions=rng.choice([1, 2, 3, 7, 64]),
        partition_hash=rng.choice(HASHES), dynamic_topic=rng.choice(TOPICS),
        dynamic_topic_partitions=rng.choice(["", "one:5,g_.*:2"]),
        database_hash=rng.random() < 0.5, key_changes=rng.choice(["canal", "split"]),
    )  # fmt: skip
    return FlatOptions(
        ts_ms=TS_MS, routing=routing, time_zone=rng.choice(["UTC", "Asia/Shanghai"]),
        gtid=rng.random() < 0.5, old=rng.choice([OLD_CANAL, OLD_EXACT]),
        fields=FieldFilter(black_fields=rng.choice(BLACK)),
    )  # fmt: skip


def decoded(path: Path) -> Iterator[tuple[DecodedChunk, Bools, str]]:
    """Chunks with every entry wanted, and the GTIDs before each."""
    executed = ""
    for info, chunk in decode_chunks([path]):
        yield chunk, np.ones(chunk.layout.event_count, np.bool_), executed
        executed = gtid_set_after(executed, info.gtids)


def entries_of(path: Path, given: FlatOptions) -> list[bytes]:
    found: list[bytes] = []
    for chunk, mask, executed in decoded(path):
        pieces = delimited_pieces(
            chunk, 0, len(mask), mask, time_zone=given.time_zone, gtid=given.gtid,
            gtid_set=executed, fields=given.fields,
        )  # fmt: skip
        found += split_delimited(b"".join(pieces))
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_messages_are_the_plain_rendering(path: Path) -> None:
    rng = random.Random(path.name)
    for _ in range(2):
        given, batch = options(rng), rng.choice([1, 2, 50, 1000])
        if any(name in path.name for name in ("dml", "partialjson")):  # images lack columns
            given = replace(given, routing=replace(given.routing, key_changes="canal"))
        made = MessageLines(given, batch, as_entries=False)
        found: list[bytes] = []
        for chunk, mask, executed in decoded(path):
            found += made.add(chunk, mask, executed)
        found += made.finish()
        entries = entries_of(path, given)
        expected = lines(entries, given.routing, batch=batch, exact=given.old == OLD_EXACT)
        assert b"".join(found).decode() == "".join(
            f'{{"topic":"{line.topic}","partition":{line.partition},"message":{line.message}}}\n'
            for line in expected
        )


def whole(path: Path) -> DecodedChunk:
    """The chunk of a file with the most entries."""
    return max((chunk for chunk, _, _ in decoded(path)), key=lambda c: c.layout.event_count)


def data_of(found: FlatMessages) -> list[bytes]:
    return [bytes(found[index]) for index in range(len(found))]


def test_places_and_a_mask() -> None:
    chunk = whole(GOLDEN / "mysql97" / "mysql_dml.binlog")
    count = chunk.layout.event_count
    given = FlatOptions(id=7, ts_ms=1, routing=Routing(partitions=3, partition_hash=r".*\..*:$pk$"))
    found = flat_messages(chunk, 0, count, None, given)
    shown = chosen_entries(chunk, 0, count, None)
    rows = chunk.events["rows"]
    assert found.offsets[0] == 0
    assert found.offsets[-1] == found.buffer.size
    assert found.rows.sum() == rows[shown].sum()
    assert set(found.entries.tolist()) == {
        int(n) for n in shown if chunk.events["kind"][n] == pb.ROWDATA
    }
    assert all(b'"id":7,' in message for message in data_of(found))
    kept = found.entries[0]
    mask: Bools = np.zeros(count, np.bool_)
    mask[kept] = True
    part = flat_messages(chunk, 0, count, mask, given)
    assert data_of(part) == data_of(found)[: len(part)]
    assert len(flat_messages(chunk, 0, 0, None, given)) == 0


def test_the_time_of_making() -> None:
    chunk = whole(GOLDEN / "mysql97" / "mysql_dml.binlog")
    given = FlatOptions()
    found = data_of(flat_messages(chunk, 0, chunk.layout.event_count, None, given))
    stamps = {int(message.rsplit(b'"ts":', 1)[1].split(b",")[0]) for message in found}
    assert len(stamps) == 1
    assert stamps.pop() > TS_MS
    with pytest.raises(ConfigError, match="old is 'canal' or 'exact'"):
        replace(given, old="new")
    with pytest.raises(ConfigError, match="at least one entry"):
        next(iter(decode_messages([FILES[0]], given, batch_entries=0)))


def parsed(entry: pb.Entry) -> tuple[bytes, pb.RowChange]:
    """Header and change; Canal writes fields of zero, too, which protobuf here does not."""
    return entry.header.SerializeToString(), pb.RowChange.FromString(entry.storeValue)


@pytest.mark.parametrize("hash_rule", HASHES)
def test_entries_of_partitions(hash_rule: str) -> None:
    """In protobuf: each row is there once, by its key's partition, in its own entry if it chose."""
    chunk = whole(GOLDEN / "mysql97" / "mysql_dml.binlog")
    count = chunk.layout.event_count
    routing = Routing(partitions=5, partition_hash=hash_rule)
    found = entry_messages(chunk, 0, count, None, FlatOptions(routing=routing))
    made = [pb.Entry.FromString(data) for data in data_of(found)]
    pieces = b"".join(delimited_pieces(chunk, 0, count))
    originals = [pb.Entry.FromString(data) for data in split_delimited(pieces)]
    originals = [entry for entry in originals if entry.entryType == pb.ROWDATA]
    expected = []
    for entry in originals:
        change = pb.RowChange.FromString(entry.storeValue)
        route = routing.route(entry.header.schemaName, entry.header.tableName)
        if route.rule is None or not change.rowDatas:
            expected.append((route.partition, entry))
            continue
        for row in change.rowDatas:
            columns = row.beforeColumns if change.eventType == pb.DELETE else row.afterColumns
            names = [column.name for column in columns]
            flags = route.rule.hashed(names, [c.isKey for c in columns], by_entry=True)
            code = java_hash(entry.header.schemaName)
            for column, is_hashed in zip(columns, flags, strict=True):
                code ^= java_hash(column.value) if is_hashed else 0
            one = pb.RowChange()
            one.CopyFrom(change)
            del one.rowDatas[:]
            one.rowDatas.append(row)
            alone = pb.Entry()
            alone.CopyFrom(entry)
            alone.storeValue = one.SerializeToString()
            place = java_partition(code, route.partitions)
            expected.append((place, alone))
    places = found.partitions.tolist()
    for partition in range(5):
        mine = [entry for place, entry in zip(places, made, strict=True) if place == partition]
        theirs = [entry for place, entry in expected if place == partition]
        assert [parsed(entry) for entry in mine] == [parsed(entry) for entry in theirs]
    sent = 0
    sent_packets = packets(found)
    assert sent_packets.topic_names == ("example",)
    for number, partition in enumerate(sent_packets.partitions.tolist()):
        body = protocol.Packet.FromString(bytes(sent_packets[number])).body
        messages = list(protocol.Messages.FromString(body).messages)
        assert messages == [
            bytes(found[index]) for index, place in enumerate(places) if place == partition
        ]
        sent += len(messages)
    assert sent == len(found)


def test_messages_take_the_memory_that_earlier_ones_gave_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which a new mapping would pay a page fault for each 4 KiB for. Those that are held stay."""
    monkeypatch.setattr(malloc, "_keeping", True)
    monkeypatch.setattr(malloc, "_kept", [])
    _, chunk = max(decode_chunks(list(binlog_files())), key=lambda each: each[1].arena.size)
    given = FlatOptions(ts_ms=TS_MS)

    def rendered() -> FlatMessages:
        return flat_messages(chunk, 0, chunk.layout.event_count, None, given)

    first = rendered()
    content, place = first.buffer.tobytes(), first.buffer.ctypes.data
    second = rendered()
    assert second.buffer.ctypes.data != place
    assert first.buffer.tobytes() == second.buffer.tobytes() == content
    del first
    third = rendered()
    assert third.buffer.ctypes.data == place
    assert second.buffer.tobytes() == third.buffer.tobytes() == content
