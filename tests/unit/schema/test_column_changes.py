"""Names and values of a table's columns by the statement that changed them."""

from __future__ import annotations

import pytest

from ray_canal.model.position import EntryPosition
from ray_canal.schema.keeper import SchemaKeeper
from ray_canal.schema.table_state import StatementSession
from tests.unit.schema.test_keeper import FILE, FakeServer, head

SESSION = StatementSession("db")


@pytest.mark.parametrize(
    ("actions", "renamed", "filled"),
    [
        ("change a x int", {"a": "x"}, {}),
        ("change a x bigint first, add d int", {"a": "x"}, {}),
        ("rename column a to x, rename column b to y", {"a": "x", "b": "y"}, {}),
        ("change a A int", {}, {}),
        ("rename column a to b, rename column b to a", {"a": "b", "b": "a"}, {}),
        ("drop a, change b a int", {"b": "a"}, {}),
        ("rename column a to x, rename to u", {"a": "x"}, {}),
        ("drop a, add x int", {}, {}),
        ("drop a, add a int not null", {}, {"a": "0"}),
        ("add d int default 7, add e varchar(9) default 'é' not null", {}, {"d": "7", "e": "é"}),
        ("add (d int not null, e enum('b','c') not null, f date not null)", {},
         {"d": "0", "e": "b", "f": None}),
        ("add d int default null, add e int, add index (a)", {}, {}),
        ("add d timestamp default current_timestamp", {}, {"d": None}),
        ("add e int as (a + 1)", {}, {"e": None}),
        ("add d int default (rand()), add k int auto_increment unique", {}, {"d": None, "k": None}),
        ("add j json not null, add v vector(3) not null", {}, {"j": "null", "v": None}),
        ("change a x int, add a int default 5", {"a": "x"}, {"a": "5"}),
        ("add d bit(3) default b'101' after a, rename to u", {}, {"d": b"\x05"}),
        ("modify a int not null default 7", {}, {}),
    ],
)  # fmt: skip
def test_what_an_alter_table_does(
    actions: str, renamed: dict[str, str], filled: dict[str, str | bytes | None]
) -> None:
    keeper = SchemaKeeper(FakeServer("create table db.t (a int, b int, c int)", 500))
    keeper.begin([], "uuid", EntryPosition(FILE, 500))
    changes = keeper.applied(head(600, 700), 600, f"alter table t {actions}", SESSION)
    (change,) = [each for each in changes if each.meta is not None]
    assert dict(change.renamed) == renamed
    assert dict(change.filled) == filled


@pytest.mark.parametrize(
    "statement",
    ["alter table t add if not exists b int default 7", "alter table t rename to t",
     "alter table t alter a set default 7, comment 'x', add index (a)", "create index i on t (a)",
     "alter table t modify a int", "create table if not exists t (id int)",
     "alter table t engine = innodb, auto_increment = 77", "optimize table t"],
)  # fmt: skip
def test_a_statement_that_leaves_names_and_columns_as_they_are_is_no_change(statement: str) -> None:
    """A sink with schema_change = "stop" would stop there."""
    keeper = SchemaKeeper(FakeServer("create table db.t (a int, b int, c int)", 500))
    keeper.begin([], "uuid", EntryPosition(FILE, 500))
    assert keeper.applied(head(600, 700), 600, statement, SESSION) == ()


def test_of_a_statement_that_moves_rows_all_tables_are_told() -> None:
    """Tables with the same columns may swap their names."""
    keeper = SchemaKeeper(FakeServer("create table db.a (x int); create table db.b (x int)", 500))
    keeper.begin([], "uuid", EntryPosition(FILE, 500))
    swap = "rename table a to c, b to a, c to b"
    told = keeper.applied(head(600, 700), 600, swap, SESSION, moves_rows=True)
    assert [(each.table, each.meta is None) for each in told] == [
        ("a", False), ("b", False), ("c", True),
    ]  # fmt: skip


def test_columns_that_look_as_before_and_are_others_are_a_change() -> None:
    keeper = SchemaKeeper(FakeServer("create table db.t (a int, b int)", 500))
    keeper.begin([], "uuid", EntryPosition(FILE, 500))
    (made,) = keeper.applied(head(600, 700), 600, "alter table t drop a, add a int first", SESSION)
    assert made.remade == ("a",)
    swap = "alter table t change b a int first, change a b int"
    (swapped,) = keeper.applied(head(700, 800), 700, swap, SESSION)
    assert [column.name for column in swapped.meta.columns if swapped.meta] == ["a", "b"]
    assert dict(swapped.renamed) == {"a": "b", "b": "a"}


def test_a_column_that_is_dropped_and_added_is_another_one() -> None:
    keeper = SchemaKeeper(FakeServer("create table db.t (a int, b int, c int)", 500))
    keeper.begin([], "uuid", EntryPosition(FILE, 500))
    actions = "drop a, add A varchar(9), drop b, add x int, change c b int"
    (change,) = keeper.applied(head(600, 700), 600, f"alter table t {actions}", SESSION)
    assert change.remade == ("A",)
    assert change.added == ("A", "x")


def test_a_column_that_took_the_name_of_a_renamed_one_is_added() -> None:
    keeper = SchemaKeeper(FakeServer("create table db.t (a int, b int)", 500))
    keeper.begin([], "uuid", EntryPosition(FILE, 500))
    actions = "change a x int, add a int, add if not exists b int, modify b bigint"
    (change,) = keeper.applied(head(600, 700), 600, f"alter table t {actions}", SESSION)
    assert (change.renamed, change.added, change.remade) == ((("a", "x"),), ("a",), ())


def test_other_statements_do_neither() -> None:
    keeper = SchemaKeeper(FakeServer("create table db.t (a int)", 500))
    keeper.begin([], "uuid", EntryPosition(FILE, 500))
    statements = ("create table u (a int default 7)", "rename table t to v", "alter database db",
                  "alter table w add x int default 7", "alter table v drop primary key, nonsense")
    for number, sql in enumerate(statements):  # fmt: skip
        at = 600 + 100 * number
        for change in keeper.applied(head(at, at + 100), at, sql, SESSION):
            assert (change.renamed, change.filled) == ((), ())
