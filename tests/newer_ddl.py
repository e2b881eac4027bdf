"""Random DDL as in ddl_maker.py, with forms that came later or are seldom used: names swapped in
one statement, partitions, constraints, tables made from queries, Oracle's and ANSI's modes.

A form is a line. In it <t> is a table and <a>, <b> are two of its columns, <other> a table, <new> a
table's name, <def> a column's definition (<def a>: of that name), <options> some of a table's,
<action> one of ALTER TABLE as ddl_maker.py makes it.
"""

from __future__ import annotations

import re

from tests.ddl_maker import DdlMaker, quoted


def lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.strip().splitlines())


_TYPES = (
    "int(5) signed", "decimal(65,30)", "numeric unsigned", "char(0)", "varchar(0)", "bit(64)",
    "dec(3) zerofill", "double(9,3) unsigned zerofill", "timestamp(6) null", "year(4)", "blob(20)",
    "text(300) character set utf8", "char varying(7)", "national char(3)", "nvarchar(6)",
    "national char varying(4)", "long char varying", "long binary", "int1", "int2 unsigned", "int3",
    "int8", "float4", "multipoint", "polygon", "longtext binary", "char(2) byte", "bool",
    "varchar(30) charset latin1 binary", "char(4) character set utf8mb4 collate utf8mb4_unicode_ci",
    "enum('a') collate latin1_german1_ci", "set('x','y') character set gbk",
    "varchar(21) charset default",
)  # fmt: skip
_ORACLE_TYPES = (
    "varchar2(20)", "number", "number(9)", "number(9,2)", "date", "raw(16)", "clob", "blob",
    "varchar2(9) character set latin1", "timestamp(3) null", "blob(70000)",
)  # fmt: skip
_ATTRIBUTES = (
    "", "", "", "unique", "comment 'primary key, after a'", "default 1", "references other(id)",
    "check (1 > 0)", "constraint cc check (2 > 1)", "default null on update cascade",
    "column_format fixed", "storage memory", "unique key", "not null default 3", "key",
)  # fmt: skip
_NEWER_ATTRIBUTES = {
    "mysql97": ("default (1 + 1)", "check (a > 0) not enforced", "engine_attribute '{\"a\": 1}'",
                "constraint check (1 > 0) enforced", "visible", "default (uuid())"),
    "mariadb": ("default (1 + 1)", "without system versioning", "compressed", "check (1)",
                "as (1 + 1) persistent", "default uuid()", "with system versioning"),
}  # fmt: skip
_OPTIONS = (
    "auto_increment=7", "avg_row_length 100", "checksum=0", "max_rows=9", "pack_keys=default",
    "stats_persistent=1", "row_format=dynamic", "character set utf8", "collate=utf8mb4_bin",
    "charset latin1 collate latin1_german1_ci", "comment 'a'", "key_block_size=0", "min_rows=1",
    "insert_method=no", "connection=''", "delay_key_write=0",
)  # fmt: skip
_MODES = (
    "", "", "ansi_quotes", "real_as_float", "no_backslash_escapes", "ansi", "ignore_space",
    "no_auto_value_on_zero",
)  # fmt: skip
_SESSIONS = {
    "": lines("""
        set collation_server=latin1_bin
        set collation_server=gbk_bin
    """),
    "mysql97": lines("""
        set sql_generate_invisible_primary_key=1
        set sql_generate_invisible_primary_key=0
        set default_collation_for_utf8mb4=utf8mb4_general_ci
    """),
    "mariadb": lines("""
        set character_set_collations='utf8mb4=utf8mb4_bin'
        set character_set_collations=''
    """),
}

_PARTITIONED = lines("""
    partition by hash (id) partitions 3
    partition by linear hash (id)
    partition by key (id)
    partition by linear key algorithm=2 (id)
    partition by range (id) (partition p0 values less than (9), partition p1 values less than (99))
    partition by range columns (id) (partition p0 values less than (10) comment = 'x, y')
    partition by list (id) (partition p0 values in (1, 2), partition p1 values in (null, 3))
    partition by range (id) subpartition by hash (id) (partition p0 values less than (9))
""")
_PARTITIONS = {
    "": lines("""
        add partition partitions 2
        coalesce partition 1
        truncate partition all
        drop partition p0
        rebuild partition p0
        add partition (partition p9 values less than (90))
        reorganize partition p0 into (partition p0 values less than (5))
        exchange partition p0 with table <other>
        exchange partition p0 with table <other> without validation
        add column <def> partition by hash (1) partitions 2
        remove partitioning
        partition by range (1) (partition p0 values less than (10))
    """),
    "mariadb": lines("""
        convert partition p0 to table <new>
        convert table <other> to partition p7 values less than (70)
        convert table <other> to partition p7 values less than (70) with validation
    """),
}
_QUERIED = {
    "": lines("""
        create table <new>
        create table if not exists <new>
        create table <new> (own int)
        create table <new> (primary key (<a>))
        create table <new> (<def own>)
        create table <new> (<def a>)
        create table <new> (index (<a>)) <options>
        create table <new> (a int as (1 + 1) stored, b int)
    """),
    "mariadb": lines("""
        create or replace table <new>
        create or replace table <new> (<def own>)
    """),
}
_QUERIES = {
    "": lines("""
        select * from <t>
        select *, 1 from <t>
        (select * from <t>)
        select <a> from <t> union select 'a long text'
        select now() as n, 1.5 as d
        select max(<a>) as m, count(*) from <t>
        select null as nothing
        with x as (select <a> from <t>) select * from x
        select 'a' as a, x'00' as b
        select <a> as own from <t>
        select cast(<a> as char(10)) as ch from <t>
        select concat(<a>, 'ä') as `a``b` from <t>
    """),
    "mysql97": ("values row(1, 'x')", "table <t>"),
}
_SWAPS = {
    "": lines("""
        change <a> <def b>, change <b> <def a>
        change <a> <def b> first, change <b> <def a>
        drop <a>, add <def a>
        drop <a>, add <def a> after <b>
        modify <def a> after <b>, modify <def b> first
        change <a> <def x> after <b>, add <def n3> after x
        add <def n3> first, add <def n4> after n3, modify <def a> after n4
        change <a> <def x> after <b>, add <def a> after <b>, modify <def b> first
        drop <a>, change <b> <def a>
        drop <a>, modify <def b> first
        modify <def a> first, modify <def b> first
    """),
    "newer": lines("""
        rename column <a> to <b>, rename column <b> to <a>
        rename column <a> to x, add <def a> after x
        rename column <a> to x, add <def a> first, modify <def b> after x
        drop <a>, rename column <b> to <a>
        rename column <a> to x, modify <def b> after x
        rename column <a> to x, drop <b>, add <def b> first
        rename column <a> to x, alter column <b> set default 5
        modify <def a> after y, rename column <b> to y
    """),
}
_CONSTRAINTS = {
    "": lines("""
        add constraint primary key using btree (<a>)
        add constraint `p k` primary key (<a>) comment 'x'
        add primary key (<a>), drop primary key
        add unique (<a>), add primary key (<b>)
        add constraint u unique key u2 using btree (<a>)
        add check (<a> is not null or 1)
        add constraint cc check (<a> <> 5 or 1)
        add fulltext (<a>)
        add spatial index (<a>)
        add foreign key fk (<a>) references nowhere (x) on delete set null
        drop foreign key fk
        modify <a> int primary key
        modify <a> bigint auto_increment unique
        change <a> <a> serial
        drop primary key, add column k9 int auto_increment primary key first
        add (<def r1>, primary key (r1))
    """),
    "newer": lines("""
        drop constraint cc
        drop constraint `PRIMARY`
        rename index u2 to u3
    """),
    "mysql97": lines("""
        drop check cc
        alter check cc not enforced
        alter index u2 invisible
        drop index `primary`
        add index ((<a> + 1))
        add unique index fi ((abs(<a>))), alter column <b> set default (2 + 3)
    """),
    "mariadb": lines("""
        add constraint if not exists cc check (1)
        add primary key if not exists (<a>)
        add index if not exists u2 (<a>) ignored
        drop primary key if exists
        add period for p (d1, d2)
        drop period if exists for p
        add d1 date not null, add d2 date not null, add period for p (d1, d2)
        add unique (<a>, p without overlaps)
        drop system versioning, drop column if exists <a>
        rename column if exists <a> to x, rename column if exists nope to y
        change column if exists <a> <def x>, drop constraint if exists cc
        add column if not exists (<def p>, <def q>), drop column if exists <a>
        alter column if exists <a> set default 4, alter index if exists ix9 ignored
    """),
}
_NOTHING = {
    "": lines("""
        create trigger tr before insert on <t> for each row begin set @a = 1; end
        drop trigger if exists tr
        create event ev on schedule every 1 day starts '2037-01-01' do drop table h_one.t1
        drop event if exists ev
        create function fu() returns int deterministic return 1
        create view v2 (a) as select 1 from <t>
        drop view if exists v2
        optimize table <t>
        create temporary table h_one.tmp_only (a int)
        drop temporary table if exists tmp_only
    """),
    "mysql97": lines("""
        create function js() returns int language javascript as $$ return 1; /* drop table t1 */ $$
        create library lib language javascript as $x$ /* ; drop table t1; */ $x$
        drop library if exists lib
        create json duality view dv as select json_object('_id': id) from h_one.t1
        create or replace view vw as table <t>
    """),
    "mariadb": lines("""
        begin not atomic create table if not exists h_one.`compound` (a int, b varchar(3)); end
        begin not atomic drop table if exists h_one.`compound`; end
        execute immediate 'create or replace table h_one.ei (a int)'
        drop table if exists h_one.ei wait 2
        rename table if exists <t> wait 3 to h_one.renamed, h_one.nope to h_one.n2
        drop table <t> nowait
        create or replace table h_two.`#odd#` (a int) engine=aria
        create or replace table ar (a int, key (a)) engine=archive
        drop table if exists ar, sq3
    """),
}


class NewerDdlMaker(DdlMaker):
    """Makes one statement after the other, of those forms and of DdlMaker's."""

    def __init__(self, kind: str, seed: int, more_types: tuple[str, ...] = ()) -> None:
        super().__init__(kind, seed, (*more_types, *_TYPES))
        self.attributes = _ATTRIBUTES + _NEWER_ATTRIBUTES.get(kind, ())
        self.mode = ""

    def statement(self) -> str:
        if self.chance(0.08):
            return self.session()
        if not self.tables or self.chance(0.4):
            made = super().statement()
        else:
            made = self.fill(self.form())
        if self.kind == "mariadb" and "," in made and re.match("(?is)alter .*rename (to|as)", made):
            return self.statement()  # of a partitioned table the server keeps the old one, too
        return made

    def session(self) -> str:
        """A setting of the session that changes what statements say."""
        if self.chance(0.3):
            return self.one_of(_SESSIONS)
        mariadb = ("oracle", "oracle", "maxdb") if self.kind == "mariadb" else ()
        self.mode = self.pick(*_MODES, *mariadb)
        return f"set session sql_mode='{self.mode}'"

    def form(self) -> str:
        alter = self.pick("alter table", "ALTER TABLE")
        if self.kind == "mariadb" and self.chance(0.2):
            alter = self.pick("alter online table", "alter ignore table", "alter table if exists")
        queried = "create table <new> (like <t>)"
        if self.kind != "mysql56":
            between = self.pick(" ", " as ", " ignore ", " replace as ")
            queried = self.one_of(_QUERIED) + between + self.one_of(_QUERIES)
        return self.pick(
            f"create table <new> (id int, <def a>) <options> {self.pick(*_PARTITIONED)}",
            f"{alter} <t> {self.one_of(_PARTITIONS)}",
            queried,
            f"{alter} <t> {self.one_of(_SWAPS)}",
            f"{alter} <t> {self.one_of(_SWAPS)}",
            f"{alter} <t> {self.one_of(_CONSTRAINTS)}",
            f"{alter} <t> <action>, {self.one_of(_CONSTRAINTS)}, <action>",
            self.one_of(_NOTHING),
        )

    def one_of(self, forms: dict[str, tuple[str, ...]]) -> str:
        """One of the forms of this server."""
        kinds = ["", self.kind] + ["newer"] * (self.kind != "mysql56")
        return self.pick(*(form for kind in kinds for form in forms.get(kind, ())))

    def fill(self, form: str) -> str:
        """The form with names, definitions and actions in place of what is in < >."""
        name, columns = self.some_table()
        a, b = (self.random.sample(columns, 2) * 2 if len(columns) > 1 else columns * 2)[:2]
        names = {"a": quoted(a), "b": quoted(b), "t": name}

        def one(found: re.Match[str]) -> str:
            what, of = found.groups()
            if what in names:
                return names[what]
            if what == "def":
                return self.definition(names.get(of, of))
            if what == "options":
                chosen = self.random.sample(_OPTIONS, self.random.randint(0, 3))
                return self.pick(" ", ", ").join(chosen)
            if what == "action":
                return self.action(columns)
            return self.table(existing=what == "other")

        return re.sub(r"<(\w+)(?: (\w+))?>", one, form)

    def definition(self, name: str | None = None) -> str:
        if self.chance(0.5):
            return super().definition(name)
        kind = self.pick(*self.types)
        if self.mode == "oracle" and self.chance(0.5):
            kind = self.pick(*_ORACLE_TYPES)
        kind += " null" if kind == "timestamp(2)" else ""
        name = name or self.pick("id", "a", "b", "Mixed", "n1", "`we ird`", "名", "date", "end")
        if self.mode.startswith("ansi") and not name.startswith("`") and self.chance(0.4):
            name = f'"{name}"'
        return " ".join([name, kind, *(self.pick(*self.attributes) for _ in range(2))])
