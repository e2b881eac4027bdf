"""Random tables whose columns, names and rows change: statements for a source that is mirrored.

Each table knows its columns, so that what it holds can be compared with its mirror column by
column. JSON is left out: a DECIMAL in it becomes a DOUBLE where it is read again.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from tests.random_columns import Kind, random_kind

ADDED = (
    "int not null", "int not null default 7", "int default -7", "tinyint(1) default true",
    "bigint unsigned default 18446744073709551615", "decimal(9,3) not null default 1.5",
    "double not null", "bit(5) default b'101'", "year default 2020", "varchar(9) not null",
    r"varchar(9) default 'it''s \\é\n'", "char(5) default 'a '", "enum('a','b') not null",
    "set('x','y') default 'x,y'", "varbinary(4) default x'ff00'", "binary(3) default 'a'",
    "date default '2020-02-03'", "datetime(3) default '2020-02-03 01:02:03.5'",
)  # fmt: skip
"""Columns that rows which are there have a value in."""
FORMS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "bit": ("cast({} as unsigned)", lambda v: v),
    "set": ("{}", ",".join),
    "date": ("cast({} as char)", lambda v: v.isoformat()),
    "datetime": ("cast({} as char)", lambda v: f"{v:%Y-%m-%d %H:%M:%S.%f}"[:-3]),
}
"""How SELECT shows some of these, and what brings an Arrow value to that form."""
NO_MODE = "set sql_mode = 'allow_invalid_dates,no_engine_substitution'"
LARGE = ("mediumblob", "longblob", "mediumtext", "longtext")
LARGE_VALUE = "repeat('a', 1500000)"


@dataclass
class MirroredTable:
    """`columns`: names with their kinds; `key`: that of its primary key."""

    name: str
    server: str
    rng: random.Random
    numbers: itertools.count[int]
    columns: dict[str, Kind] = field(default_factory=dict)
    key: str = ""
    ids: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.key = self.rng.choice(("id", "k", "k, id"))
        for _ in range(self.rng.randint(1, 6)):
            self.columns[self.new_name()] = self.kind()

    def new_name(self) -> str:
        return f"c{next(self.numbers)}"

    def kind(self) -> Kind:
        while (found := random_kind(self.rng, self.server)).ddl.startswith("json"):
            pass
        return found

    @property
    def create(self) -> str:
        columns = "".join(f", {name} {declared(kind)}" for name, kind in self.columns.items())
        head = f"id int, k varchar(20) not null{columns}, primary key ({self.key})"
        return f"create table {self.name} ({head}) default charset=utf8mb4"

    @property
    def select(self) -> str:
        columns = [kind.select.format(name) for name, kind in self.columns.items()]
        return f"select {', '.join(['id', 'k', *columns])} from {{}}.{self.name} order by id"

    def value(self, kind: Kind) -> str:
        if "not null" not in kind.ddl and self.rng.random() < 0.12:
            return "null"
        return kind.literal(self.rng)

    def changes(self) -> list[str]:
        """Statements that change rows."""
        rng, found = self.rng, []
        for number in rng.sample(self.ids, min(len(self.ids), rng.randint(0, 3))):
            names = rng.sample([*self.columns], rng.randint(1, min(3, len(self.columns))))
            values = ", ".join(f"{name} = {self.value(self.columns[name])}" for name in names)
            found.append(f"update {self.name} set {values} where id = {number}")
        if self.ids and rng.random() < 0.3:
            number = self.ids.pop(rng.randrange(len(self.ids)))
            found.append(f"delete from {self.name} where id = {number}")
        if self.ids and rng.random() < 0.2:
            key = text_of(next(self.numbers))
            found.append(f"update {self.name} set k = {key} where id = {rng.choice(self.ids)}")
        if self.ids and rng.random() < 0.2:
            found += self.keys_changed()
        large = [name for name, kind in self.columns.items() if kind.ddl.startswith(LARGE)]
        if self.ids and large and rng.random() < 0.1:
            name, number = rng.choice(large), rng.choice(self.ids)
            found.append(f"update {self.name} set {name} = {LARGE_VALUE} where id = {number}")
        return [*found, self.insert(rng.randint(1, 4))]

    def insert(self, count: int) -> str:
        """A statement that adds rows."""
        new = [next(self.numbers) for _ in range(count)]
        rows = ", ".join(
            f"({', '.join([str(n), text_of(n), *map(self.value, self.columns.values())])})"
            for n in new
        )
        names = ", ".join(["id", "k", *self.columns])
        self.ids += new
        return f"insert into {self.name} ({names}) values {rows}"

    def keys_changed(self) -> list[str]:
        """Statements that give rows other ids, or those of each other."""
        one, other, free = self.rng.choice(self.ids), self.rng.choice(self.ids), next(self.numbers)
        steps = [(one, free)] if one == other else [(one, free), (other, one), (free, other)]
        if one == other:
            self.ids[self.ids.index(one)] = free
        return [f"update {self.name} set id = {new} where id = {old}" for old, new in steps]


def declared(kind: Kind) -> str:
    """A column's declaration, NULL allowed if it says nothing else."""
    return kind.ddl if "null" in kind.ddl.split() else f"{kind.ddl} null"


def text_of(number: int) -> str:
    return f"'{('k', 'K ', 'é', 'ß')[number % 4]}{number}'"


class MirroredTables:
    """The tables of a database. `statements` yields what happens to them next. `without`: names of
    what the target refuses to follow, by its documents."""

    def __init__(self, seed: int, server: str, without: Collection[str] = ()) -> None:
        self.rng, self.server = random.Random(seed), server
        self.numbers = itertools.count(1)
        self.tables = [self._table(f"t{number}") for number in range(2)]
        ddl: list[Callable[[MirroredTable], list[str]]] = [
            self._add, self._add, self._fill, self._fill, self._drop, self._move, self._empty,
            self._rename, self._rename_column, self._make_again, self._make, self._swap, self._like,
            self._remake, self._chain, self._select, self._letters, self._column_letters,
            self._replace, self._take_name,
        ]  # fmt: skip
        self._ddl = [each for each in ddl if each.__name__[1:] not in without]

    def _table(self, name: str) -> MirroredTable:
        return MirroredTable(name, self.server, self.rng, self.numbers)

    def statements(self) -> list[str]:
        """A change of a table, and transactions that change rows."""
        found = self.rng.choice(self._ddl)(self.rng.choice(self.tables))
        for _ in range(self.rng.randint(0, 3)):
            changed = self.rng.sample(self.tables, self.rng.choice((1, 1, len(self.tables))))
            found += ["begin", *(text for table in changed for text in table.changes()), "commit"]
        return found

    def _add(self, table: MirroredTable) -> list[str]:
        name, kind = table.new_name(), table.kind()
        table.columns[name] = kind
        place = self.rng.choice(("", " first", " after id"))
        return [f"alter table {table.name} add {name} {declared(kind)}{place}"]

    def _fill(self, table: MirroredTable) -> list[str]:
        name, text = table.new_name(), self.rng.choice(ADDED)
        null = "" if "not null" in text else " null"
        values = {"date": "'2021-01-01'", "enum": "'b'", "set": "'y'", "char": "'a'", "bin": "'a'"}
        value = next((values[word] for word in values if word in text), "1")
        form = FORMS.get(text.partition(" ")[0].partition("(")[0], ("{}", lambda v: v))
        table.columns[name] = Kind(text + null, lambda _: value, *form)
        return [f"alter table {table.name} add {name} {text}"]

    def _drop(self, table: MirroredTable) -> list[str]:
        if len(table.columns) < 2:
            return []
        name = self.rng.choice([*table.columns])
        del table.columns[name]
        return [f"alter table {table.name} drop {name}"]

    def _remake(self, table: MirroredTable) -> list[str]:
        name, kind = self.rng.choice([*table.columns]), table.kind()
        del table.columns[name]
        table.columns[name] = kind
        return [f"alter table {table.name} drop {name}, add {name} {declared(kind)}"]

    def _replace(self, table: MirroredTable) -> list[str]:
        gone, name, kind = self.rng.choice([*table.columns]), table.new_name(), table.kind()
        del table.columns[gone]
        table.columns[name] = kind
        steps = [f"drop {gone}", f"add {name} {declared(kind)}"]
        return [f"alter table {table.name} {', '.join(self.rng.sample(steps, 2))}"]

    def _take_name(self, table: MirroredTable) -> list[str]:
        """A column is renamed, and another one is added under its name."""
        name, new, kind = self.rng.choice([*table.columns]), table.new_name(), table.kind()
        moved = table.columns.pop(name)
        table.columns |= {new: moved, name: kind}
        steps = f"change {name} {new} {declared(moved)}, add {name} {declared(kind)}"
        return [f"alter table {table.name} {steps}"]

    def _move(self, table: MirroredTable) -> list[str]:
        name = self.rng.choice([*table.columns])
        place = self.rng.choice(("first", "after id", "comment 'x'"))
        return [f"alter table {table.name} modify {name} {declared(table.columns[name])} {place}"]

    def _rename_column(self, table: MirroredTable) -> list[str]:
        name = self.rng.choice([*table.columns])
        return [self._renamed(table, name, table.new_name())]

    def _column_letters(self, table: MirroredTable) -> list[str]:
        name = self.rng.choice([*table.columns])
        return [self._renamed(table, name, name.swapcase())]

    def _renamed(self, table: MirroredTable, name: str, new: str) -> str:
        kind = table.columns[name]
        table.columns = {new if n == name else n: k for n, k in table.columns.items()}
        how = [f"change {name} {new} {declared(kind)}{' first' * self.rng.randrange(2)}"]
        if self.server != "mysql56":
            how.append(f"rename column {name} to {new}")
        return f"alter table {table.name} {self.rng.choice(how)}"

    def _empty(self, table: MirroredTable) -> list[str]:
        table.ids = []
        return [f"truncate table {table.name}"]

    def _rename(self, table: MirroredTable) -> list[str]:
        old, table.name = table.name, f"r{next(self.numbers)}"
        how = (f"rename table {old} to {table.name}", f"alter table {old} rename to {table.name}")
        return [self.rng.choice(how)]

    def _make_again(self, table: MirroredTable) -> list[str]:
        new = self._table(table.name)
        self.tables[self.tables.index(table)] = new
        return [f"drop table {table.name}", new.create]

    def _make(self, _: MirroredTable) -> list[str]:
        if len(self.tables) > 4:
            return []
        self.tables.append(self._table(f"n{next(self.numbers)}"))
        return [self.tables[-1].create]

    def _like(self, table: MirroredTable) -> list[str]:
        if len(self.tables) > 4:
            return []
        new = self._table(f"l{next(self.numbers)}")
        new.columns, new.key = dict(table.columns), table.key
        self.tables.append(new)
        return [f"create table {new.name} like {table.name}"]

    def _swap(self, table: MirroredTable) -> list[str]:
        other = self.rng.choice(self.tables)
        if other is table:
            return []
        mine, its = table.name, other.name
        table.name, other.name = its, mine
        return [f"rename table {mine} to passing, {its} to {mine}, passing to {its}"]

    def _chain(self, table: MirroredTable) -> list[str]:
        """One gets a new name by way of another one, and a second gets the name that it had."""
        old, passing, new = table.name, f"p{next(self.numbers)}", f"r{next(self.numbers)}"
        steps = [(old, passing), (passing, new)]
        other = self.rng.choice(self.tables)
        table.name = new
        if other is not table:
            steps.append((other.name, old))
            other.name = old
        return [f"rename table {', '.join(f'{a} to {b}' for a, b in steps)}"]

    def _select(self, table: MirroredTable) -> list[str]:
        """A table that is made with the rows of another one."""
        if len(self.tables) > 4:
            return []
        new = self._table(f"s{next(self.numbers)}")
        new.columns, new.key, new.ids = dict(table.columns), "id", [*table.ids]
        self.tables.append(new)
        return [f"create table {new.name} (primary key (id)) select * from {table.name}"]

    def _letters(self, table: MirroredTable) -> list[str]:
        """A table whose name differs in its letters alone."""
        name = table.name.swapcase()
        if len(self.tables) > 4 or any(each.name == name for each in self.tables):
            return []
        self.tables.append(self._table(name))
        return [self.tables[-1].create]
