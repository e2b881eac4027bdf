"""Where transactions begin and end in real binlogs: a cursor never stands inside one by mistake."""

from __future__ import annotations

from ray_canal.binlog.chunk import EVENT_IN_TRANSACTION
from ray_canal.offline import decode_chunks
from ray_canal.protocol.position import EntryPosition
from ray_canal.store.transaction_buffer import TransactionBuffer
from tests.golden import GOLDEN


def test_create_table_select_is_one_transaction() -> None:
    """MySQL 8 logs it as CREATE … START TRANSACTION, rows, XID under one GTID."""
    path = GOLDEN / "mysql97" / "mysql_ddl.binlog"
    buffer = TransactionBuffer(EntryPosition(path.name))
    found = {}
    for info, _ in decode_chunks([path]):
        chunk = buffer.add(info)
        for number, entry in enumerate(info.entries):
            resume = chunk.resume_after(number).position
            found[int(entry["position"])] = (int(entry["flags"]), resume)
    create, rows, xid = 6984, 7219, 7307
    assert found[create][0] & EVENT_IN_TRANSACTION
    assert found[rows][0] & EVENT_IN_TRANSACTION
    assert found[create][1] < create
    assert found[rows][1] < create
    assert found[xid][1] > xid
