"""Schema changes of a message: those of its own entries, with the Arrow schema of rows to come."""

from __future__ import annotations

import numpy as np

from ray_canal.client.message import Message, TableChange
from ray_canal.model.message import MessageHead, MessagePart
from ray_canal.offline import decode_chunks
from tests.unit.binlog.golden import GOLDEN, needs_golden


@needs_golden
def test_what_becomes_of_tables_is_named() -> None:
    """b8: TRUNCATE, DROP and RENAME; of tables alone that the subscriber may see."""
    seen: list[TableChange] = []
    for info, chunk in decode_chunks([GOLDEN / "mysql97" / "mysql_ddl.binlog"]):
        allowed = bytes(name != ("g_ddl", "d1_new") for name in info.tables)
        part = MessagePart(chunk, 0, len(info.entries), None, tables=allowed)
        seen += Message(MessageHead(1, 1, (part,)), lambda payloads: payloads).schema_changes
    kinds = {(c.kind, c.table, c.renamed_from, c.renamed_to) for c in seen}
    assert ("TRUNCATE", "d3", "", "") in kinds
    assert ("ERASE", "d1", "", "g_ddl.d1_new") in kinds
    assert ("RENAME", "q1moved", "g_ddl_x.q1", "") in kinds
    assert "d1_new" not in {c.table for c in seen if c.kind != "ALTER"}
    truncated = next(c for c in seen if c.kind == "TRUNCATE")
    assert truncated.arrow_schema is not None
    assert all(c.arrow_schema is None for c in seen if c.kind == "ERASE")


@needs_golden
def test_changes_of_a_real_file() -> None:
    chunks = list(decode_chunks([GOLDEN / "mysql56" / "mysql56_ddl.binlog"]))

    def message(hidden: bool) -> Message:
        parts = []
        for info, chunk in chunks:
            count = len(info.entries)
            mask = np.zeros(count, np.bool_) if hidden else None
            parts.append(MessagePart(chunk, 0, count, mask, ""))
        return Message(MessageHead(1, 1, tuple(parts)), lambda payloads: payloads)

    changes = message(False).schema_changes
    assert message(True).schema_changes == []
    positions = [change.position for change in changes]
    assert positions == sorted(positions)
    first = changes[0]
    assert (first.schema, first.table, first.problem) == ("g_ddl", "d1", "")
    assert first.arrow_schema is not None
    assert first.arrow_schema.field("after").type.get_field_index("name") == 1
    renamed = [c for c in changes if c.table in ("d1", "d1_new")][-2:]
    gone = [c for c in changes if c.arrow_schema is None]
    assert renamed
    assert gone
    doubted = {c.table: c.problem for c in changes if c.problem}
    assert doubted.keys() == {"d3"}  # 5.6 logs it, too, where it did nothing
    assert "IF NOT EXISTS" in doubted["d3"]
    # What the last change of a table before its rows says is what the rows' batches have.
    seen = 0
    for info, chunk in chunks:
        part = MessagePart(chunk, 0, len(info.entries), None, "")
        for batch in Message(MessageHead(1, 1, (part,)), lambda payloads: payloads).batches:
            table = batch.schema.metadata[b"canal.table"].decode()
            known = [c for c in changes if c.table == table
                     and c.position < info.head.end_position][-1]  # fmt: skip
            if known.arrow_schema is not None and known.position < info.head.position:
                assert batch.schema.field("after").type == known.arrow_schema.field("after").type
                seen += 1
    assert seen > 3
