"""Where transactions begin and end in real binlogs: a cursor never stands inside one by mistake."""

from __future__ import annotations

from ray_canal.binlog.chunk import EVENT_IN_TRANSACTION, EVENT_SILENT
from ray_canal.filter import TableFilter
from ray_canal.log.transaction_buffer import TransactionBuffer
from ray_canal.model.position import EntryPosition
from ray_canal.offline import decode_chunks
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


def test_silent_statements_are_not_shown_but_count_as_executed() -> None:
    """CREATE VIEW, GRANT and the like: no entry, but their GTIDs are in the cursor's set."""
    path = GOLDEN / "mysql97" / "mysql_ddl.binlog"
    buffer = TransactionBuffer(EntryPosition(path.name))
    silent = 0
    gtid = ""
    for info, _ in decode_chunks([path]):
        chunk = buffer.add(info)
        hidden = info.entries["flags"] & EVENT_SILENT != 0
        silent += int(hidden.sum())
        if hidden.any():
            assert chunk.visible is not None
            assert not chunk.visible[hidden].any()
        if len(info.entries):
            gtid = chunk.resume_after(len(info.entries) - 1).gtid
    assert silent == 19
    assert gtid == "6d9b098d-e55a-11f1-9a7a-02fc00000001:145-229"


def test_ddl_is_filtered_by_table_and_a_rename_by_either_name() -> None:
    path = GOLDEN / "mysql97" / "mysql_ddl.binlog"
    found: dict[str, list[int]] = {}
    for wanted in ("d2", "d1_new", "q1"):
        passed = found.setdefault(wanted, [])
        for info, _ in decode_chunks([path]):
            entries = info.entries[info.admitted(TableFilter(rf".*\.{wanted}").admits)]
            passed += entries["event_type"][entries["table"] >= 0].tolist()
    insert, create, alter, erase, truncate, rename = 1, 4, 5, 6, 8, 9
    assert found["d2"] == [create, insert, truncate, erase, erase]
    assert found["d1_new"] == [rename, insert, rename]
    assert found["q1"] == [create, insert, alter, insert, rename]
