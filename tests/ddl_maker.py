"""Random DDL of everything that changes tables: seeded, so that a failure can be run again.

Statements are made from what the server says there is; some are refused by the server, which is
fine: those are not in its log.
"""

from __future__ import annotations

import random
import re

from ray_canal.schema.names import lowered

Tables = dict[tuple[str, str], list[str]]

SCHEMAS = ("h_one", "h_two")
_TYPES = (
    "int", "INT UNSIGNED", "tinyint(1)", "bool", "smallint(4) zerofill", "mediumint", "integer(11)",
    "bigint(20) unsigned", "float", "float(7,4)", "float(30)", "double precision", "real unsigned",
    "decimal", "decimal(12)", "numeric(18,9)", "dec(5,5) unsigned", "bit", "bit(17)", "year",
    "date", "time", "time(3)", "datetime", "datetime(6)", "timestamp(2)", "char", "char(7)",
    "varchar(30)", "varchar(300)", "nchar(5)", "national varchar(9)", "character varying(6)",
    "varchar(12) character set gbk", "char(4) collate latin1_bin", "varchar(9) binary",
    "varchar(8) ascii", "char(5) unicode", "char(3) byte", "text", "text(20)", "tinytext",
    "mediumtext charset latin1", "longtext", "long varchar", "blob", "blob(70000)", "longblob",
    "binary", "binary(16)", "varbinary(40)", "enum('a','it''s','b,c)')", "enum('x') charset latin1",
    "set('p','q', 'r')", "geometry", "point", "geometrycollection", "varchar(5) charset binary",
    "long varbinary", "int4", "middleint", "float8", "fixed(6,2)", "varchar(40) collate utf8_bin",
)  # fmt: skip
_NEW_TYPES = {"mysql97": ("json", "vector(3)"), "mariadb": ("json", "uuid", "inet6", "inet4")}
TYPES_OF_BUILD = {
    "mariadb118": ("vector(3)", "vector(700)", "varchar(20) collate utf8mb4_uca1400_as_ci",
                   "enum('ä') collate utf8mb3_uca1400_ai_ci", "timestamp(3)",
                   "char(9) collate uca1400_ai_ci"),
}  # fmt: skip
_NAMES = (
    "id", "a", "b", "c1", "Mixed", "`we ird`", "`back``tick`", "`select`", "名", "`key`", "first_c",
    "`a,b`", "`a)b`", "period", "`日本`", "`x.y`", "visible", "comment", "status", "`'q'`",
)  # fmt: skip
_TABLES = ("t1", "t2", "t3", "T4", "`odd ``name`", "`select`", "表")
# Not ucs2: MySQL 9.7 spoils the labels of an enum that it converts to it.
_CHARSETS = ("utf8mb4", "latin1", "gbk", "utf8", "big5", "binary", "ascii")
_DEFAULTS = ("", "", "default null", "comment 'x, y) '", "not null", "null", "comment 'NOT NULL'")


_CASELESS = ("Ärger", "ΣΟΦΟΣ", "İstanbul", "e\u0301té", "a\u3000b")


def in_any_case(rng: random.Random, text: str) -> str:
    """The text with each letter in upper or lower case, but for those that have no counterpart of
    one character that is their own lower case again."""
    return "".join(
        rng.choice((c, c.upper())) if len(c.upper()) == 1 and lowered(c.upper()) == c else c
        for c in text
    )


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


class DdlMaker:
    """Makes one statement after the other for a server of `kind`; `more_types`: what its build has
    beyond that."""

    def __init__(self, kind: str, seed: int, more_types: tuple[str, ...] = ()) -> None:
        self.kind = kind
        self.random = random.Random(seed)
        self.types = _TYPES + _NEW_TYPES.get(kind, ()) + more_types
        self.tables: Tables = {}

    def pick(self, *options: str) -> str:
        return self.random.choice(options)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    # --- names ------------------------------------------------------------------------------

    def table(self, *, existing: bool = True) -> str:
        """A table's name as SQL; the session's schema is the first of SCHEMAS."""
        if existing and self.tables:
            schema, table = self.random.choice(sorted(self.tables))
            name = quoted(table)
        else:
            schema, name = self.pick(*SCHEMAS), self.pick(*_TABLES)
        return name if schema == SCHEMAS[0] and self.chance(0.6) else f"{schema}.{name}"

    def some_table(self) -> tuple[str, list[str]]:
        if not self.tables:
            return self.table(existing=False), ["id"]
        name = self.random.choice(sorted(self.tables))
        return f"{quoted(name[0])}.{quoted(name[1])}", self.tables[name] or ["id"]

    def column(self, columns: list[str]) -> str:
        return quoted(self.random.choice(columns))

    # --- parts ------------------------------------------------------------------------------

    def definition(self, name: str | None = None) -> str:
        kind = self.pick(*self.types)
        if kind.startswith("timestamp"):
            return f"{name or self.pick(*_NAMES)} {kind} null"
        parts = [name or self.pick(*_NAMES), kind, self.pick(*_DEFAULTS)]
        if self.chance(0.06):
            kind = self.pick("virtual", "stored")
            parts[1:] = ["int", f"generated always as (1 + 1) {kind}"]
            if self.kind == "mysql56":
                parts[2] = ""
        if self.chance(0.06) and self.kind != "mysql56":
            parts.append("invisible" if self.kind == "mariadb" else "/*!80023 invisible */")
        if self.chance(0.04) and self.kind == "mysql97" and kind == "point":
            parts.append("srid 4326")
        return " ".join(parts)

    def place(self, columns: list[str]) -> str:
        if self.chance(0.25):
            return " first"
        return f" after {self.column(columns)}" if self.chance(0.4) else ""

    def options(self) -> str:
        found = []
        if self.chance(0.4):
            found.append(self.pick("default charset=", "character set ", "CHARSET = ")
                         + self.pick(*_CHARSETS[:-2]))  # fmt: skip
        if self.chance(0.15):
            found.append(f"collate {self.pick('latin1_bin', 'utf8mb4_bin', 'gbk_chinese_ci')}")
        if self.chance(0.3):
            found.append("comment='x; charset=gbk'")
        if self.chance(0.2):
            found.append("engine=InnoDB /*!50100 row_format=dynamic */")
        if self.kind == "mariadb" and self.chance(0.12):
            found.append("with system versioning")
        if self.chance(0.1):
            found.append("partition by key () partitions 3")
        return " ".join(found)

    # --- statements -------------------------------------------------------------------------

    def statement(self) -> str:
        """The next statement."""
        makers = [self.create] * 7 + [self.alter] * 16 + [self.move] * 3
        makers += [self.drop, self.index, self.index, self.database, self.like, self.nothing]
        if self.kind != "mysql56":
            makers.append(self.select)
        if self.kind == "mariadb":
            makers += [self.sequence, self.versioning, self.versioning]
        if len(self.tables) < 4:
            makers = [self.create]
        prefix = ""
        if self.kind == "mariadb" and self.chance(0.05):
            prefix = "set statement lock_wait_timeout=50, sort_buffer_size=1048576 for "
        return prefix + self.random.choice(makers)()

    def create(self) -> str:
        names = self.random.sample(_NAMES, self.random.randint(1, 6))
        parts = [self.definition(name) for name in names]
        if self.chance(0.3):
            parts[0] = f"{names[0]} int {self.pick('primary key', 'auto_increment primary key')}"
        elif self.chance(0.3):
            parts[0] = f"{names[0]} {self.pick('serial', 'bigint not null auto_increment unique')}"
        elif self.chance(0.5):
            parts[0] = f"{names[0]} bigint"
            keys = [names[0]]
            if len(names) > 1 and self.chance(0.5):
                parts[1] = f"{names[1]} varchar(20)"
                keys.append(f"{names[1]}(5)" if self.chance(0.5) else names[1])
            parts.append(self.pick("", "constraint ", "constraint pk ")
                         + f"primary key ({', '.join(keys)})")  # fmt: skip
        if self.chance(0.3):
            parts.append(f"key k1 ({names[0]})")
        if self.kind == "mariadb" and self.chance(0.35):
            parts += self.long_key(names)
        if self.chance(0.1):
            parts.append("check (1 > 0)")
        if self.chance(0.1):  # run by all, by none, by MySQL 8 alone, by MariaDB alone
            for_whom = self.pick("!50001", "!99999", "!80000", "M!100000")
            parts[0] = f"/*{for_whom} conditional int, */ {parts[0]}"
        head = "create table "
        if self.kind == "mariadb" and self.chance(0.2):
            head = "create or replace table "
        elif self.chance(0.1):
            head = "CREATE TABLE IF NOT EXISTS "
        elif self.chance(0.05):
            # One that hides no other: MariaDB logs a RENAME of it as if it were the other.
            return f"create temporary table tmp_only ({', '.join(parts)})"
        if self.kind == "mariadb" and self.chance(0.04):
            for row in ("start", "end"):
                parts.append(f"{row} timestamp(6) generated always as row {row}")
            parts.append("period for system_time (start, end)")
            return f"{head}{self.table(existing=False)} ({', '.join(parts)}) with system versioning"
        separator = self.pick(", ", ",\n  ", " /* , */ ,")
        return (
            f"{head}{self.table(existing=False)} ({separator.join(parts)}) {self.options()}"
        )

    def long_key(self, names: list[str]) -> list[str]:
        """A unique key that MariaDB may have to hash, and in general a column for it."""
        kind = self.pick(
            "text", "blob", "varchar(700)", "varchar(1000)", "longtext", "json", "linestring",
            "tinytext character set latin1", "varchar(2000) character set latin1",
        )  # fmt: skip
        column, other = self.pick("long_c", "`lo ng`"), self.pick(*names)
        unique = self.pick("unique", "constraint uq unique", "unique key uq", "unique index")
        using = self.pick("", "", "using hash")
        keys = [
            f"{unique} ({column})", f"{unique} ({column}, {other}) {using}",
            f"unique ({column}(20))", f"unique uq ({column}), key ({column}(9)), unique ({column})",
            f"{unique} {using} ({other})",
        ]  # fmt: skip
        if self.chance(0.3):
            return [f"{column} {kind} {self.pick('', 'not null')} unique"]
        return [f"{column} {kind}", self.pick(*keys)]

    def like(self) -> str:
        new, old = self.table(existing=False), self.table()
        return f"create table {new} " + self.pick(f"like {old}", f"(like {old})")

    def select(self) -> str:
        name, columns = self.some_table()
        chosen = self.random.sample(columns, self.random.randint(1, len(columns)))
        listed = ", ".join(quoted(column) for column in chosen)
        new = self.table(existing=False)
        return f"create table {new} {self.pick('', 'as ')}select {listed}, 1 as one from {name}"

    def alter(self) -> str:
        name, columns = self.some_table()
        count = self.pick("1", "1", "2", "3")
        actions = [self.action(columns) for _ in range(int(count))]
        if self.kind == "mysql97" and any(each.startswith("convert to") for each in actions):
            # Of a column that is changed beside it MySQL 9.7 makes a text of its old length.
            actions = [each for each in actions if not each.startswith(("modify", "change"))]
        exists = "if exists " if self.kind == "mariadb" and self.chance(0.2) else ""
        return f"{self.pick('alter table', 'ALTER  TABLE')} {exists}{name} {', '.join(actions)}"

    def action(self, columns: list[str]) -> str:
        column = self.column(columns)
        new = self.pick(*_NAMES)
        options = [
            f"add {self.definition()}{self.place(columns)}",
            f"add column {self.definition()}{self.place(columns)}",
            f"add column ({self.definition('n1')}, {self.definition('n2')})",
            f"drop column {column}",
            f"drop {column}",
            f"modify {self.definition(column)}{self.place(columns)}",
            f"change column {column} {self.definition(new)}{self.place(columns)}",
            "drop primary key",
            f"add primary key ({column})",
            f"drop primary key, add primary key ({column})",
            f"add index ({column})",
            f"alter column {column} set default 1",
            f"default character set {self.pick(*_CHARSETS)}",
            f"convert to character set {self.pick(*_CHARSETS)}",
            f"comment = 'a, drop column {column.strip('`')}'".replace("''", "'"),
            "engine=InnoDB",
            f"order by {column}",
            f"rename to {self.table(existing=False)}",
            f"/*!50001 add column {self.pick(*_NAMES)} int, */ /*!99999 drop column x, */ force",
            "partition by hash (1) partitions 2",
            "remove partitioning",
            "force",
        ]
        if self.kind != "mysql56":
            options += [f"rename column {column} to {new}"] * 3
            options.append(f"alter column {column} set default 'x', algorithm=inplace")
        if self.kind == "mysql97":
            options.append(f"alter column {column} set {self.pick('invisible', 'visible')}")
            options.append(f"add column {self.definition()}, algorithm=instant")
        if self.kind == "mariadb":
            one_more = self.long_key([column])[0]
            options += [f"add {', add '.join(self.long_key([column]))}"] * 3
            options += [
                f"add unique {self.pick('', 'uq', 'if not exists uq', 'long_c')} ({column})",
                f"drop key {self.pick('uq', 'long_c', 'long_c_2')}",
                f"drop index if exists {self.pick('uq', 'long_c')}, add unique uq (long_c)",
                f"modify {one_more}",
                "drop column long_c",
                f"rename index {self.pick('uq', 'long_c')} to {self.pick('uq2', 'long_c_2')}",
                f"engine={self.pick('MyISAM', 'InnoDB')}",
            ]
            options += [
                f"add column if not exists {self.definition()}",
                f"drop column if exists {self.pick(column, new)}",
                f"modify column if exists {self.definition(self.pick(column, new))}",
            ]
        return self.pick(*options)

    def move(self) -> str:
        if self.chance(0.4):
            return f"rename table {self.table()} to {self.table(existing=False)}"
        if self.chance(0.3):
            pairs = [f"{self.table()} to {self.table(existing=False)}" for _ in range(2)]
            return f"rename table {', '.join(pairs)}"
        a, b = self.table(), self.table()
        return f"rename table {a} to {SCHEMAS[0]}.tmp_x, {b} to {a}, {SCHEMAS[0]}.tmp_x to {b}"

    def drop(self) -> str:
        return self.pick(
            f"drop table {self.table()}",
            f"drop table {self.table()}, {self.table()}",
            f"drop table if exists {self.table()}, {self.table(existing=False)}, nowhere.nothing",
            f"truncate {self.table()}",
        )

    def index(self) -> str:
        name, columns = self.some_table()
        if self.kind == "mariadb" and self.chance(0.4):
            column = self.pick("long_c", self.column(columns))
            return self.pick(
                f"create unique index uq on {name} ({column})",
                f"create or replace unique index uq using hash on {name} ({column}, {column}(3))",
                f"create unique index if not exists uq on {name} ({column}) comment 'using hash'",
                f"drop index uq on {name}", f"drop index if exists long_c on {name}",
            )  # fmt: skip
        return self.pick(
            f"create index ix on {name} ({self.column(columns)})",
            f"drop index `PRIMARY` on {name}",
            f"drop index k1 on {name}",
        )

    def database(self) -> str:
        schema, charset = self.pick(*SCHEMAS), self.pick(*_CHARSETS[:-1])
        return self.pick(
            f"alter database {schema} default character set = {charset}",
            f"alter database {schema} collate utf8mb4_bin",
            f"alter database character set {charset}",
            f"create database if not exists {schema} charset {charset}",
            f"drop database {SCHEMAS[1]}",
            f"create database {SCHEMAS[1]}",
            f"create schema {SCHEMAS[1]} default collate latin1_bin",
        )

    def sequence(self) -> str:
        return self.pick(
            "create sequence sq",
            "create or replace sequence sq start with 7",
            "drop sequence sq",
            "drop sequence if exists sq, sq_two",
            "alter sequence sq restart 5",
            "rename table sq to sq_two",
        )

    def versioning(self) -> str:
        return f"alter table {self.table()} {self.pick('add', 'drop')} system versioning"

    def nothing(self) -> str:
        return self.pick(
            f"create or replace view vw as select * from {self.table()}",
            "drop view if exists vw",
            f"analyze table {self.table()}",
            "create procedure pr() begin create table in_pr (a int); end",
            "drop procedure if exists pr",
        )


class LetterCaseMaker(DdlMaker):
    """As DdlMaker, its names of tables and databases in random letters: for servers to which that
    makes no difference."""

    _named = re.compile(
        r"(?i)(?<![\w$])(" + "|".join(map(re.escape, (*SCHEMAS, *_TABLES, *_CASELESS, "sq_two",
                                                       "sq", "tmp_x", "tmp_only"))) + r")(?![\w$])"
    )  # fmt: skip

    def table(self, *, existing: bool = True) -> str:
        name = super().table(existing=existing)
        if not existing and self.chance(0.3):
            name = self.pick(*_CASELESS)
        return name

    def statement(self) -> str:
        made = super().statement()
        return self._named.sub(lambda found: in_any_case(self.random, lowered(found[0])), made)
