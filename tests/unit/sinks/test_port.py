"""What a sink is told of statements."""

from __future__ import annotations

from ray_canal.binlog.chunk import ChunkInfo, DecodedChunk
from ray_canal.client.message import Message
from ray_canal.model.message import MessageHead, MessagePart
from ray_canal.model.position import EntryPosition
from ray_canal.model.table_event import TRUNCATE
from ray_canal.model.table_meta import TableMeta
from ray_canal.offline import decode_chunks
from ray_canal.sinks.port import Changed, Changes, Cursor
from ray_canal.snapshot.log_chunks import LogPlace, emptied_at
from tests.unit.binlog.golden import GOLDEN, needs_golden
from tests.unit.snapshot.test_result import META


def emptied(info: ChunkInfo, chunk: DecodedChunk) -> dict[str, TableMeta | None]:
    """Of each table that a chunk empties what its statement tells of columns."""
    part = MessagePart(chunk, 0, len(info.entries), None)
    changes = Changes(Message(MessageHead(1, 1, (part,)), lambda payloads: payloads), part, chunk)
    steps = [step for step in changes.steps() if isinstance(step, Changed)]
    return {step.change.table: step.meta for step in steps if step.change.kind == TRUNCATE}


@needs_golden
def test_a_snapshot_tells_what_columns_it_reads_and_a_truncate_does_not() -> None:
    """A table of the target that somebody has given columns of their own keeps them when its rows
    go; DDL between two attempts of a snapshot, which nobody has told, is made up for."""
    place = LogPlace("mysql-bin.000007", 4711, 50, (("snapshot", "s1"),))
    assert emptied(*emptied_at([META], place, 0)) == {META.table: META}

    found = [emptied(*each) for each in decode_chunks([GOLDEN / "mysql97/mysql_ddl.binlog"])]
    assert {"d3": None} in found


def test_a_place_tells_of_which_file_it_is() -> None:
    """A log that was reset has a file of the same name: no new subscriber may begin in that."""
    info, chunk = emptied_at([META], LogPlace("mysql-bin.000007", 4711, 50, ()), 0)
    part = MessagePart(chunk, 0, len(info.entries), None)
    for name, created_s in (("mysql-bin.000007", 5), ("mysql-bin.000008", 0)):
        head = MessageHead(1, 1, (part,), ack=EntryPosition(name, 9, created_s=5))
        place = Changes(Message(head, lambda payloads: payloads), part, chunk).cursor
        assert Cursor.from_json(place.to_json()).log_position.created_s == created_s
