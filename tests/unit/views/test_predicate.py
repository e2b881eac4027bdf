"""Row predicates: SQL's meaning of NULL held against SQLite, MySQL's types, clear errors."""

from __future__ import annotations

import datetime
import random
import re
import sqlite3
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ray_canal.errors import ConfigError
from ray_canal.views.predicate import Predicate, parse
from ray_canal.views.sql_values import ValueKind, kind_of, number_type
from tests.unit.views.changes import batch_of

COLUMNS = {"i": pa.int32(), "j": pa.int64(), "f": pa.float64(), "s": pa.string(), "t": pa.string()}
TEXTS = ("", "a", "A", "ab", "a%", "a_b", "ä", "a\\b", "b\na", "%")


def passing(text: str, batch: pa.RecordBatch) -> list[int]:
    """Numbers of the rows that pass."""
    found: list[int] = Predicate(parse(text), batch.schema).filtered(batch)["position"].to_pylist()
    return found


# --- against SQLite ----------------------------------------------------------------------------


def random_image(random_: random.Random) -> dict[str, Any] | None:
    if random_.random() < 0.15:
        return None
    values: dict[str, list[Any]] = {
        "i": [-2, -1, 0, 1, 2, 3], "j": [-3, 0, 1, 2, 7], "f": [-1.5, 0.0, 0.5, 1.0, 2.0],
        "s": list(TEXTS), "t": list(TEXTS),
    }  # fmt: skip
    return {c: None if random_.random() < 0.3 else random_.choice(v) for c, v in values.items()}


class Expressions:
    """Random expressions, as (ours, SQLite's)."""

    def __init__(self, seed: int, *, quotients: bool = True) -> None:
        self.random = random.Random(seed)
        self._quotients = quotients

    def pick(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def column(self, names: str) -> tuple[str, str]:
        image, name = self.pick("before", "after"), self.random.choice(names)
        return f"{image}.{name}", f"{image}_{name}"

    def number(self, depth: int) -> tuple[str, str]:
        kind = self.pick("column", "column", "literal", "null", "sum", "mod", "if", "coalesce",
                         "quotient", "abs")  # fmt: skip
        if depth <= 0 or kind == "column":
            return self.column("iijf")
        if kind == "literal":
            return (str(number := self.pick(-2, -1, 0, 1, 2, 3, 0.5, 1.5)), str(number))
        if kind == "null":
            return "NULL", "NULL"
        if kind == "mod":
            (a, x), (b, y) = self.column("ij"), self.column("ij")
            return f"({a} % {b})", f"({x} % {y})"
        (a, x), (b, y) = self.number(depth - 1), self.number(depth - 1)
        if kind == "sum":
            operator = self.pick("+", "-", "*")
            return f"({a} {operator} {b})", f"({x} {operator} {y})"
        if kind == "quotient" and self._quotients:
            return f"({a} / {b})", f"(CAST({x} AS REAL) / {y})"
        if kind == "coalesce":
            return f"COALESCE({a}, {b})", f"COALESCE({x}, {y})"
        if kind == "abs":
            a, x = self.column("ij")
            return f"ABS({a})", f"ABS({x})"
        c, z = self.condition(depth - 1)
        return f"IF({c}, {a}, {b})", f"CASE WHEN {z} THEN {x} ELSE {y} END"

    def text(self, depth: int) -> tuple[str, str]:
        kind = self.pick("column", "column", "literal", "lower", "coalesce")
        if depth <= 0 or kind == "column":
            return self.column("st")
        if kind == "literal":
            value = self.pick("", "a", "A", "ab", "ä")
            return f"'{value}'", f"'{value}'"
        a, x = self.column("st")
        if kind == "lower":
            return f"UPPER({a})", f"REPLACE(UPPER({x}), 'ä', 'Ä')"
        b, y = self.text(depth - 1)
        return f"IFNULL({a}, {b})", f"IFNULL({x}, {y})"

    def compared(self, depth: int) -> tuple[str, str]:
        one = self.number if self.random.random() < 0.6 else self.text
        (a, x), (b, y), (c, z) = one(depth), one(depth), one(depth)
        kind = self.pick("=", "<>", "<", "<=", ">", ">=", "<=>", "in", "between", "null")
        if kind == "<=>":
            return f"({a} <=> {b})", f"({x} IS {y})"
        negated = self.pick("", "NOT ")
        if kind == "in":
            null = self.pick("", ", NULL")
            return f"({a} {negated}IN ({b}, {c}{null}))", f"({x} {negated}IN ({y}, {z}{null}))"
        if kind == "between":
            return f"({a} {negated}BETWEEN {b} AND {c})", f"({x} {negated}BETWEEN {y} AND {z})"
        if kind == "null":
            return f"({a} IS {negated}NULL)", f"({x} IS {negated}NULL)"
        return f"({a} {kind} {b})", f"({x} {kind} {y})"

    def like(self) -> tuple[str, str]:
        a, x = self.column("st")
        negated = self.pick("", "NOT ")
        pattern = "".join(self.random.choices("a%_bAä!", k=self.random.randrange(4)))
        pattern = re.sub("!(?![%_])", "!%", pattern)  # SQLite refuses to escape anything else
        ours, theirs = (f"({c} {negated}LIKE '{pattern}' ESCAPE '!')" for c in (a, x))
        return ours, theirs

    def condition(self, depth: int) -> tuple[str, str]:
        kind = self.pick("compared", "compared", "like", "and", "or", "not", "is", "number", "null")
        if kind == "like":
            return self.like()
        if depth <= 0 or kind == "compared":
            return self.compared(depth - 1)
        if kind == "number":
            return self.column("ij")
        if kind == "null":
            return "NULL", "NULL"
        (a, x), (b, y) = self.condition(depth - 1), self.condition(depth - 1)
        if kind in ("and", "or"):
            return f"({a} {kind} {b})", f"({x} {kind} {y})"
        if kind == "not":
            return f"(NOT {a})", f"(NOT {x})"
        what = self.pick("TRUE", "FALSE", "NOT TRUE", "NOT FALSE")
        return f"({a} IS {what})", f"({x} IS {what})"


@pytest.mark.parametrize("seed", range(4))
def test_null_and_logic_are_sqls(seed: int) -> None:
    made = Expressions(seed)
    rows = [
        (random_image(made.random), random_image(made.random) or dict.fromkeys(COLUMNS))
        for _ in range(100)
    ]
    rows += [(after, None) for _, after in rows[:20]]  # DELETE
    batch = batch_of(COLUMNS, rows)
    database = sqlite3.connect(":memory:")
    names = [f"{image}_{column}" for image in ("before", "after") for column in COLUMNS]
    database.execute(f"CREATE TABLE r (n INTEGER, {', '.join(names)})")
    database.execute("PRAGMA case_sensitive_like = ON")
    for number, images in enumerate(rows):
        values = [None if i is None else i.get(c) for i in images for c in COLUMNS]
        marks = ", ".join("?" * (1 + len(values)))
        database.execute(f"INSERT INTO r VALUES ({marks})", [number, *values])
    some = 0
    for _ in range(120):
        ours, theirs = made.condition(3)
        wanted = [n for (n,) in database.execute(f"SELECT n FROM r WHERE {theirs} ORDER BY n")]
        assert passing(ours, batch) == wanted, f"seed {seed}: {ours}"
        some += 0 < len(wanted) < len(rows)
    database.close()
    assert some > 50


# --- types -------------------------------------------------------------------------------------

TYPED = {
    "id": pa.uint64(), "small": pa.int8(), "price": pa.decimal128(10, 2),
    "wide": pa.decimal256(65, 30), "ratio": pa.float32(), "name": pa.string(),
    "raw": pa.binary(), "day": pa.date32(), "at": pa.timestamp("us"),
    "seen": pa.timestamp("us", "UTC"), "took": pa.duration("us"),
    "state": pa.dictionary(pa.uint16(), pa.string()), "tags": pa.list_(pa.string()),
    "Mixed Case": pa.int16(),
}  # fmt: skip
ROW = {
    "id": 2**64 - 1, "small": -5, "price": Decimal("19.90"), "wide": Decimal(f"1.{'0' * 29}1"),
    "ratio": 0.5, "name": "Ann", "raw": b"\x00\xff", "day": datetime.date(2026, 1, 31),
    "at": datetime.datetime(2026, 1, 31, 12, 30, 0, 250_000),
    "seen": datetime.datetime(2026, 1, 31, 12, 0, tzinfo=datetime.timezone.utc),
    "took": datetime.timedelta(hours=-30), "state": "open", "tags": ["a"], "Mixed Case": 7,
}  # fmt: skip


TYPED_CASES = [
    ("after.id = 18446744073709551615", True),
    ("after.id > -1", True),
    ("after.id - 18446744073709551615 = 0", True),
    ("1 - after.id < 0", True),
    ("after.small < after.id", True),
    ("-after.small = 5", True),
    ("after.price = 19.9", True),
    ("after.price * 2 = 39.80", True),
    ("after.price > 19.899999999999999999999999", True),
    ("after.wide > 1", True),
    ("after.wide = 1.000000000000000000000000000001", True),
    ("after.wide + after.price > 20.9", True),
    ("after.ratio = 0.5", True),
    ("after.ratio > 4e-1", True),
    ("after.small DIV 2 = -2", True),
    ("after.small % 2 = -1", True),
    ("MOD(after.small, 0) IS NULL", True),
    ("after.small / 0 IS NULL", True),
    ("after.name = 'ann'", False),
    ("LOWER(after.name) = 'ann'", True),
    ("LENGTH('ä') = 2 AND CHAR_LENGTH('ä') = 1", True),
    ("after.name LIKE 'A__' AND after.name NOT LIKE 'a%'", True),
    (r"'50%' LIKE '50\%' AND '500' NOT LIKE '50\%'", True),
    ("after.raw = x'00ff'", True),
    ("after.raw > 'a'", False),
    ("after.day = '2026-01-31'", True),
    ("after.day < '2026-01-31 00:00:01'", True),
    ("after.day < after.at", True),
    ("after.at BETWEEN '2026-01-31 12:30' AND '2026-01-31 12:30:00.25'", True),
    ("after.at >= DATE '2026-01-31'", True),
    ("after.seen = '2026-01-31 12:00:00'", True),
    ("after.seen = '2026-01-31T13:00:00+01:00'", True),
    ("after.seen = TIMESTAMP '2026-01-31 12:00:00'", True),
    ("execute_time > '2023-01-01'", True),
    ("after.took = '-30:00:00'", True),
    ("after.took < '00:00:00.000001'", True),
    ("after.state = 'open'", True),
    ("after.state IN ('new', 'open')", True),
    ("after.tags IS NOT NULL", True),
    ("after.`Mixed Case` = 7", True),
    ("AFTER.NAME = 'Ann'", True),
    ("before.id IS NULL AND event_type = 'INSERT'", True),
    ("NOT (before.name <=> after.name)", True),
    ("before.name <> after.name", False),
    ("CASE after.state WHEN 'open' THEN after.price > 10 ELSE FALSE END", True),
    ("CASE WHEN after.id IS NULL THEN 1 END", False),
    ("COALESCE(before.price, after.price) = 19.90", True),
    ("CAST(after.small AS CHAR) = '-5'", True),
    ("after.small XOR TRUE", False),
    ("(after.small = -5) = 1", True),
    ("TRUE", True),
    ("NULL", False),
    ("1 = 2", False),
    ("position = 0 AND row = 0 AND journal_name LIKE 'bin.%'", True),
    ("gtid IS NULL", True),
]


@pytest.mark.parametrize(("text", "passes"), TYPED_CASES)
def test_types(text: str, passes: bool) -> None:
    assert bool(passing(text, batch_of(TYPED, [(None, ROW)]))) is passes
    assert passing(text, batch_of(TYPED, [])) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("after.pirce > 1", "there is no column after.pirce; did you mean after.price?"),
        ("price > 1", "there is no column price; did you mean after.price?"),
        ("shop.after.price > 1", "expected before.COLUMN or after.COLUMN"),
        ("after.name > 1", "text and a number cannot be compared"),
        ("after.price = 'cheap'", "a number and text cannot be compared"),
        ("after.name", "is text, not a condition"),
        ("after.day = 'someday'", "'someday' is no date or time"),
        ("after.took > '25 hours'", "'25 hours' is no time"),
        ("after.at = after.seen", "cannot be compared"),
        ("after.tags = 'a'", "can only be asked for NULL"),
        ("after.name + 1 > 2", "text is no number"),
        ("after.price % 2 = 1", "expected whole numbers"),
        ("after.price LIKE '1%'", "has no LIKE"),
        ("after.name LIKE before.name", "the pattern must be a literal"),
        ("after.id IN (SELECT 1)", "expected a list of values"),
        ("after.name REGEXP 'a'", "RegexpLike is not supported"),
        ("SLEEP(5)", "not supported"),
        ("after.wide = after.wide * after.wide", "where"),
    ],
)
def test_what_does_not_fit_is_told_before_any_row(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Predicate(parse(text), batch_of(TYPED, []).schema)
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["after.a >", "SELECT 1", "a b", "after.a = 'x", ")", ""])
def test_what_is_no_expression(text: str) -> None:
    with pytest.raises(ConfigError, match="is no SQL expression"):
        parse(text)


@pytest.mark.parametrize(
    "text",
    ["(" * 3000 + "1" + ")" * 3000, " AND ".join(["after.id = 1"] * 1500), "NOT " * 3000 + "1"],
)
def test_what_is_too_deep_is_told(text: str) -> None:
    with pytest.raises(ConfigError, match="so long and deep an expression"):
        Predicate(parse(text), batch_of(TYPED, []).schema)


@pytest.mark.parametrize(
    ("column", "values", "passes"),
    [
        ("after.small", range(-5, 3000), True),
        ("after.small", range(3000), False),
        ("after.id", [*range(9), 2**64 - 1], True),
        ("after.price", [*range(9), "19.90"], True),
        ("after.price", [*range(9), 19.9], True),
        ("after.name", [repr(f"n{n}") for n in range(9)] + ["'Ann'"], True),
        ("after.day", [repr(f"2026-01-{n:02d}") for n in range(10, 32)], True),
        ("after.seen", [repr(f"2026-01-31 12:{n:02d}:00") for n in range(10)], True),
        ("before.small", range(9), False),
    ],
)
def test_long_lists(column: str, values: Any, passes: bool) -> None:
    batch = batch_of(TYPED, [(None, ROW)])
    listed = ", ".join(map(str, values))
    assert bool(passing(f"{column} IN ({listed})", batch)) is passes
    unknown = column.startswith("before.")
    assert bool(passing(f"{column} NOT IN ({listed})", batch)) is (not passes and not unknown)


def test_a_number_out_of_its_range_is_told() -> None:
    batch = batch_of({"n": pa.int64()}, [(None, {"n": 2**63 - 1})])
    with pytest.raises(ConfigError, match=r"where after.n \+ 1 > 0: overflow"):
        passing("after.n + 1 > 0", batch)


def test_kinds_and_number_types() -> None:
    kinds = [kind_of(kind) for kind in TYPED.values()]
    assert kinds[:5] == [ValueKind.NUMBER] * 5
    assert kinds[5:11] == [
        ValueKind.TEXT, ValueKind.BYTES, ValueKind.MOMENT,
        ValueKind.MOMENT, ValueKind.INSTANT, ValueKind.SPAN,
    ]  # fmt: skip
    assert number_type(pa.int8(), pa.uint32()) == pa.int64()
    assert number_type(pa.uint64(), pa.int8()) == pa.decimal128(20, 0)
    assert number_type(pa.decimal128(10, 2), pa.int32()) == pa.decimal128(21, 2)
    assert number_type(pa.decimal128(10, 2), pa.float32()) == pa.float64()
    with pytest.raises(ConfigError, match="no common type"):
        number_type(pa.decimal256(65, 0), pa.decimal256(65, 30))
