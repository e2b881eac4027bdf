"""ALTER TABLE: order of columns, keys, character sets, and what is refused."""

from __future__ import annotations

import pytest

from ray_canal.schema.ddl.alter_table import read_alter
from ray_canal.schema.ddl.altered import altered
from ray_canal.schema.ddl.create_table import read_create
from ray_canal.schema.ddl.words import Dialect, Words
from ray_canal.schema.table_state import DdlNotApplied, StatementSession, TableState

TABLE = (
    "CREATE TABLE t (a int PRIMARY KEY, b varchar(9), c text, d binary(3)) CHARSET=latin1"
)


def table(sql: str = TABLE) -> TableState:
    create = read_create(Words(sql), StatementSession("s"))
    assert create is not None
    return create.state("")


def after(actions: str, sql: str = TABLE) -> TableState:
    change = read_alter(Words(f"t {actions}"), StatementSession("s"))
    return altered(table(sql), change, "utf8mb4")


def names(state: TableState) -> str:
    return " ".join(column.name for column in state.columns)


GENERATED = (
    "CREATE TABLE t (my_row_id bigint unsigned NOT NULL AUTO_INCREMENT /*!80023 INVISIBLE */,"
    " a int, b int, PRIMARY KEY (my_row_id))"
)


@pytest.mark.parametrize(
    ("actions", "mysql", "mariadb"),
    [
        ("ADD x int FIRST", "my_row_id x a b", "x my_row_id a b"),
        ("MODIFY b int FIRST, ADD x int FIRST", "my_row_id x b a", "x b my_row_id a"),
        ("DROP my_row_id, ADD x int FIRST", "x a b", "x a b"),
    ],
)
def test_a_generated_invisible_key_stays_first(actions: str, mysql: str, mariadb: str) -> None:
    """As MySQL 9.7 does it; somebody's own key is moved."""
    assert names(after(actions, GENERATED)) == mysql
    change = read_alter(Words(f"t {actions}"), StatementSession("s", dialect=Dialect(mariadb=True)))
    assert names(altered(table(GENERATED), change, "utf8mb4")) == mariadb


@pytest.mark.parametrize("given", ["bigint unsigned", "/*!80023 INVISIBLE */", "PRIMARY KEY"])
def test_a_key_of_that_name_that_was_declared_does_not(given: str) -> None:
    other = {"bigint unsigned": "int unsigned", "PRIMARY KEY": "KEY"}.get(given, "")
    state = after("ADD x int FIRST", GENERATED.replace(given, other))
    assert names(state) == "x my_row_id a b"


@pytest.mark.parametrize(
    ("actions", "columns"),
    [
        ("ADD x int", "a b c d x"),
        ("ADD COLUMN x int FIRST, ADD y int AFTER x", "x y a b c d"),
        ("ADD (x int, y int, KEY (x))", "a b c d x y"),
        ("ADD x int AFTER b, DROP b", None),
        ("DROP b, DROP COLUMN c", "a d"),
        ("DROP b, ADD b int", "a c d b"),
        ("DROP COLUMN IF EXISTS zz, ADD COLUMN IF NOT EXISTS b int", "a b c d"),
        ("DROP zz", None),
        ("MODIFY b int", "a b c d"),
        ("MODIFY b int FIRST", "b a c d"),
        ("MODIFY a int AFTER d", "b c d a"),
        ("CHANGE b e int, ADD f int AFTER e", "a e f c d"),
        ("CHANGE COLUMN b e int AFTER c", "a c e d"),
        ("MODIFY COLUMN IF EXISTS zz int", "a b c d"),
        ("MODIFY d int AFTER a, MODIFY b int AFTER c, MODIFY c int AFTER d", "a d c b"),
        ("MODIFY b int AFTER c, MODIFY c int AFTER b", "a b c d"),
        ("RENAME COLUMN a TO b, RENAME COLUMN b TO a", "b a c d"),
        ("ORDER BY a, b DESC, c", "a b c d"),
        ("ENGINE=InnoDB, ALGORITHM=INPLACE, LOCK=NONE", "a b c d"),
        ("REORGANIZE PARTITION p0, p1 INTO (PARTITION p VALUES LESS THAN (9))", "a b c d"),
        ("DROP PARTITION p0, p1", "a b c d"),
        ("ADD CONSTRAINT UNIQUE (b), ADD FULLTEXT (c), ADD INDEX i (b), DROP KEY k", "a b c d"),
        ("ADD PERIOD FOR p (x, y)", "a b c d"),
        ("ALTER b SET DEFAULT 5, ALTER COLUMN c DROP DEFAULT", "a b c d"),
        ("WARP b", None),
        ("ADD x hologram", None),
        ("COMMENT='x, ADD y int'", "a b c d"),
        ("ADD `period` int, ADD period int", "a b c d period period"),
        ("ADD period int, DROP PERIOD FOR SYSTEM_TIME", "a b c d period"),
        ("WAIT 5 DROP b, ADD x int", "a c d x"),
        ("NOWAIT RENAME COLUMN b TO x", "a x c d"),
        ("ADD exclude int", "a b c d exclude"),
        ("CHANGE t.b e int, ADD s.t.f int AFTER e, DROP t.c", "a e f d"),
        ("UPGRADE PARTITIONING", "a b c d"),
        ("MODIFY d int AFTER b, MODIFY b int FIRST", "b a d c"),
        ("MODIFY c int AFTER b, MODIFY b int FIRST", "b a c d"),
        ("CHANGE a x int AFTER c, ADD a int AFTER b, MODIFY c int FIRST", "c b a x d"),
        ("CHANGE a x int AFTER y, CHANGE c y int", "b y x d"),
        ("ADD x int AFTER y, ADD y int", None),
        ("DROP a, ADD COLUMN IF NOT EXISTS a int", "b c d"),
        ("ADD COLUMN x int, MODIFY COLUMN IF EXISTS x char FIRST", "a b c d x"),
        ("ADD COLUMN IF NOT EXISTS x int, ADD COLUMN IF NOT EXISTS x char FIRST", "a b c d x"),
        ("DROP PERIOD IF EXISTS FOR p", "a b c d"),
        ("TABLE_CHECKSUM 1", "a b c d"),
    ],
)
def test_columns_and_their_order(actions: str, columns: str | None) -> None:
    if columns is None:
        with pytest.raises(DdlNotApplied):
            after(actions)
    else:
        assert names(after(actions)) == columns


@pytest.mark.parametrize(
    ("actions", "keys"),
    [
        ("DROP PRIMARY KEY", ""),
        ("DROP PRIMARY KEY, ADD PRIMARY KEY (b, d)", "b d"),
        ("DROP INDEX `PRIMARY`", ""),
        ("MODIFY a bigint", "a"),
        ("CHANGE a z bigint", "z"),
        ("DROP PRIMARY KEY, ADD x serial PRIMARY KEY", "x"),
        ("DROP a, ADD a bigint AFTER c", "a"),
        ("DROP PRIMARY KEY, DROP a, ADD a bigint", ""),
        ("DROP a, CHANGE b a int", ""),
        ("RENAME COLUMN a TO x, ADD a int", "x"),
        ("CHANGE a x int, ADD a int", "x"),
        ("RENAME COLUMN a TO x, ADD a int FIRST", "a"),
        ("ADD PRIMARY KEY IF NOT EXISTS (b)", "a"),
        ("ADD COLUMN IF NOT EXISTS (x time KEY)", "a"),
        ("DROP PRIMARY KEY, ADD COLUMN IF NOT EXISTS x time KEY", "x"),
        ("DROP PRIMARY KEY, ADD PRIMARY KEY IF NOT EXISTS (b)", "b"),
        ("DROP PRIMARY KEY, ADD CONSTRAINT foo PRIMARY KEY USING BTREE (b(3))", "b"),
    ],
)
def test_primary_keys(actions: str, keys: str) -> None:
    assert " ".join(c.name for c in after(actions).columns if c.is_key) == keys


@pytest.mark.parametrize(
    ("actions", "charsets"),
    [
        ("DEFAULT CHARSET=gbk, ADD x char", "latin1 latin1 gbk"),
        ("ADD x char, COLLATE gbk_bin", "latin1 latin1 gbk"),
        ("ADD x char CHARACTER SET big5", "latin1 latin1 big5"),
        ("CONVERT TO CHARSET big5, DEFAULT CHARSET gbk, ADD x char", "big5 big5 big5"),
        ("CONVERT TO CHARACTER SET gbk, ADD x char CHARACTER SET big5", "gbk gbk gbk"),
        ("CONVERT TO CHARACTER SET DEFAULT", "utf8mb4 utf8mb4"),
        ("MODIFY b varchar(9)", "latin1 latin1"),
        ("MODIFY b varchar(9) COLLATE utf8mb4_bin", "utf8mb4 latin1"),
        ("ENGINE=x CHARACTER SET utf8 COLLATE utf8_bin, ADD x char", "latin1 latin1 utf8mb3"),
    ],
)
def test_character_sets(actions: str, charsets: str) -> None:
    found = [c.charset for c in after(actions).columns if c.charset not in ("", "binary")]
    assert " ".join(found) == charsets


def test_a_text_grows_with_the_bytes_of_its_characters() -> None:
    assert after("CONVERT TO CHARACTER SET utf8mb4").columns[2].mysql_type == "mediumtext"
    assert after("CONVERT TO CHARACTER SET ascii").columns[2].mysql_type == "text"


PERIOD = "CREATE TABLE t (id int, s date, e date, PERIOD FOR p (s, e){})"
OVERLAPS = "PRIMARY KEY (id, p WITHOUT OVERLAPS)"


def test_a_key_without_overlaps_has_the_columns_of_its_period() -> None:
    """As MariaDB's catalog and row metadata have it."""
    made = table(PERIOD.format(f", {OVERLAPS}"))
    altered_ = after(f"ADD PERIOD FOR q (s, e), ADD {OVERLAPS.replace('p W', '`Q` W')}",
                     "CREATE TABLE t (id int, s date, e date, x int)")  # fmt: skip
    for state in (made, altered_):
        assert [c.name for c in state.columns if c.is_key] == ["id", "s", "e"]
    with pytest.raises(DdlNotApplied, match="the key's 'p' is not among"):
        after(f"ADD {OVERLAPS}", PERIOD.format(""))


def test_a_varchar_that_gets_too_long_becomes_a_text() -> None:
    state = after(
        "CONVERT TO CHARACTER SET utf8mb4",
        "CREATE TABLE t (a varchar(16383), b varchar(16384)) CHARSET latin1",
    )
    assert [c.mysql_type for c in state.columns] == ["varchar(16383)", "mediumtext"]


def test_system_versioning_adds_and_drops_hidden_columns() -> None:
    versioned = after("ADD SYSTEM VERSIONING")
    assert names(versioned) == "a b c d row_start row_end"
    assert [c.visible for c in versioned.columns][-2:] == [False, False]
    assert names(after("ADD x int", TABLE + " WITH SYSTEM VERSIONING")) == (
        "a b c d x row_start row_end"
    )
    assert names(after("DROP SYSTEM VERSIONING", TABLE + " WITH SYSTEM VERSIONING")) == "a b c d"


def test_a_column_of_an_unquoted_word_that_is_none_of_the_language() -> None:
    state = after("DROP period", "CREATE TABLE t (a int, period int, exclude int)")
    assert names(state) == "a exclude"


def test_the_key_of_partitions_is_none_of_a_column() -> None:
    state = after("ADD x int PARTITION BY LINEAR KEY (a) PARTITIONS 2")
    assert [c.is_key for c in state.columns if c.name == "x"] == [False]


def test_visibility() -> None:
    state = after("ALTER COLUMN b SET INVISIBLE, ADD x int INVISIBLE")
    assert [c.name for c in state.columns if not c.visible] == ["b", "x"]
