"""Tables of a replica whose rows are read as the source's: what is alike, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ray_canal.errors import ConnectionLost, ServerSettingRefused, TableMetaMismatch
from ray_canal.model.snapshot_ledger import TableLedger
from ray_canal.model.table_meta import ColumnMeta, TableMeta
from ray_canal.snapshot import replica_tables
from ray_canal.snapshot.replica_tables import ReplicaTables, ServerTables, left_out_by
from ray_canal.snapshot.tables import SnapshotTable
from ray_canal.types import mysql as t

ID = ColumnMeta("id", t.LONG, "int(11)", nullable=False, is_key=True)
NAME = ColumnMeta("name", t.VARCHAR, "varchar(9)", charset="utf8", length=9)
KIND = ColumnMeta("kind", t.ENUM, "enum('a','b')", charset="latin1", labels=("a", "b"))
TABLE = SnapshotTable(
    TableMeta("k", "T", (ID, NAME, KIND)), ("id",), "PRIMARY", 5, 100, True, "made there"
)
UUID = "00000000-0000-0000-0000-000000000001"
Found = dict[tuple[str, str], SnapshotTable]


def of(*columns: ColumnMeta, key: tuple[str, ...] = ("id",)) -> SnapshotTable:
    return replace(TABLE, meta=TableMeta("k", "T", columns), key=key)


def server(found: Found, executed: str = f"{UUID}:1-9", skips: str = "", **status: str) -> Any:
    """What there is of one, as catalog and as what describes tables."""
    catalog = SimpleNamespace(
        found=found, gtid_executed=lambda: executed, passes_over_errors=lambda: skips,
        replication=lambda: [{"Source_Host": "x", "Replicate_Ignore_Server_Ids": "7", **status}],
    )  # fmt: skip
    return ServerTables(catalog, SimpleNamespace())  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _no_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_tables, "tables_now", lambda catalog, _, __: dict(catalog.found))
    monkeypatch.setattr(replica_tables, "_LAG_LIMIT_S", 0.0)


def now(replica: ServerTables, source: ServerTables | None = None) -> Found:
    source = source or server({("k", "T"): TABLE})
    return ReplicaTables("replica:1", replica, source).now([("k", "T")])


def test_rows_have_the_source_s_columns() -> None:
    """Another version prints types otherwise; columns that the replica alone has are not read."""
    there = (
        replace(ID, mysql_type="int"), ColumnMeta("more", t.LONG, "int"), KIND,
        replace(NAME, charset="utf8mb3", length=20),
    )  # fmt: skip
    [found] = now(server({("k", "T"): replace(of(*there), made="made here")})).values()
    assert found == replace(TABLE, made="made here")


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ({("k", "t"): TABLE}, "k.T: it is not there"),  # its names are in lower case
        ({("k", "T"): of(ID, KIND)}, "k.T: it has no column name"),
        ({("k", "T"): of(replace(ID, type_code=t.LONGLONG), NAME, KIND)}, "column id is of a"),
        ({("k", "T"): of(ID, replace(NAME, charset="latin1"), KIND)}, "column name is of a"),
        ({("k", "T"): of(ID, NAME, replace(KIND, labels=("b", "a")))}, "column kind is of a"),
        ({("k", "T"): of(ID, NAME, KIND, replace(ID, name="row_id"), key=("row_id",))}, "row_id"),
        ({("k", "T"): of(ID, NAME, KIND, key=())}, r"apart; give it .* key PRIMARY \(id\)$"),
    ],
)
def test_a_table_that_is_otherwise_is_refused(found: Found, why: str) -> None:
    with pytest.raises(TableMetaMismatch, match=why):
        now(server(found))
    with pytest.raises(ConnectionLost, match=f"not executed {UUID}:6-9 yet"):  # it may come
        now(server(found, executed=f"{UUID}:1-5"))


def test_what_was_read_by_another_collation_is_read_again() -> None:
    """A replica may have another one than the source: then its borders mean other rows there."""
    binary, general = (
        replace(TABLE, key=("id", "name"), collations=(("name", f"utf8_{kind}"),))
        for kind in ("bin", "general_ci")
    )
    assert binary.key_order == ("id", "name COLLATE utf8_bin")
    progress = TableLedger("k", "T").begun(binary.key_order, ("9", "'x'"), 5, "replica|then")
    assert progress.is_of(binary.key_order, "source|now")
    assert not progress.is_of(general.key_order, "source|now")
    down = replace(general, descending=frozenset({"name"}))
    assert down.key_order == ("id", "name COLLATE utf8_general_ci DESC")


def test_a_replica_that_may_lack_rows_is_refused() -> None:
    with pytest.raises(ServerSettingRefused, match="lack rows of the source: replica_skip_errors"):
        now(server({}, skips="replica_skip_errors is set"))
    with pytest.raises(ServerSettingRefused, match=r"Replicate_Ignore_DB may keep rows of k\.T"):
        now(server({}, Replicate_Ignore_DB="mysql,k"))


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"Replicate_Ignore_Table": "innodb_memcache.config_options,mysql.plugin"}, ""),
        ({"Replicate_Ignore_Table": "mysql.plugin,k.t"}, "Replicate_Ignore_Table"),
        ({"Replicate_Wild_Ignore_Table": r"mysql.%,k\_.%"}, ""),
        ({"Replicate_Wild_Ignore_Table": "mysql.%,_.%"}, "Replicate_Wild_Ignore_Table"),
        ({"Replicate_Do_DB": "a,k", "Replicate_Do_Table": "", "Replicate_Ignore_DB": "a"}, ""),
        ({"Replicate_Do_DB": "a"}, "Replicate_Do_DB"),
        ({"Replicate_Do_Table": "k.a", "Replicate_Wild_Do_Table": "k.%"}, ""),
        ({"Replicate_Do_DB": "k", "Replicate_Do_Table": "k.a"}, "Replicate_Do_Table"),
        ({"Replicate_Rewrite_DB": "(a,b)"}, ""),
        ({"Replicate_Rewrite_DB": "(a,b),(x,k)"}, "Replicate_Rewrite_DB"),
    ],
)
def test_which_filter_is_about_a_table(status: Mapping[str, str], expected: str) -> None:
    assert left_out_by([{"Replicate_Do_DB": ""}, status], "k", "T") == expected
