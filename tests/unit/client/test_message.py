"""A message renders what its head says: zone, GTIDs, the instance's field filter; and prints as one
line."""

from __future__ import annotations

from ray_canal.canal.generated import EntryProtocol_pb2 as pb
from ray_canal.client.message import Message
from ray_canal.demo import binlog_files
from ray_canal.model.message import MessageHead, MessagePart
from ray_canal.model.position import EntryPosition
from ray_canal.offline import decode_chunks
from tests.golden import split_delimited


def test_the_field_filter_reaches_both_views() -> None:
    chunks = [chunk for _, chunk in decode_chunks(binlog_files())]
    table = next(t.meta for c in chunks for t in c.layout.tables)
    hidden = table.columns[-1].name
    parts = tuple(MessagePart(c, 0, c.layout.event_count, None) for c in chunks)
    head = MessageHead(1, 1, parts, black_fields=f"{table.full_name}:{hidden}")
    message = Message(head, lambda payloads: payloads)
    shown = {
        column.name
        for data in split_delimited(message.entry_bytes)
        for entry in [pb.Entry.FromString(data)]
        if entry.entryType == pb.ROWDATA and entry.header.tableName == table.table
        for row in pb.RowChange.FromString(entry.storeValue).rowDatas
        for column in (*row.beforeColumns, *row.afterColumns)
    }
    assert shown == {column.name for column in table.columns} - {hidden}
    assert [entry.SerializeToString() for entry in message.entries]
    for batch in message.batches:
        if batch.schema.metadata[b"canal.table"].decode() == table.table:
            assert batch.schema.field("after").type.get_field_index(hidden) == -1


def test_a_message_prints_as_one_line_without_its_bytes() -> None:
    (_, chunk), *_ = decode_chunks(binlog_files())
    part = MessagePart(chunk, 0, chunk.layout.event_count, None)
    start, end = EntryPosition("bin.000001", 4), EntryPosition("bin.000001", 900, row=3)
    head = MessageHead(7, 1, (part,), entry_count=5, row_count=3, start=start, end=end)
    assert repr(Message(head, lambda payloads: payloads)) == (
        "Message(id=7, entry_count=5, row_count=3, start=bin.000001:4, end=bin.000001:900+3.0)"
    )
