"""The shop's work, on a connection that notes what it is told."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from ray_canal.demo import expected
from ray_canal.demo.make_binlogs import SEED, SIZE_BYTES_MAX, TABLES, Shop
from ray_canal.demo.truth import KEYS


class Told:
    """A connection and its cursor: each statement changes a row; tables have one."""

    def __init__(self) -> None:
        self.statements: list[tuple[str, tuple[Any, ...]]] = []
        self.lastrowid = 0

    def cursor(self) -> Told:
        return self

    def __enter__(self) -> Told:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def execute(self, sql: str, values: tuple[Any, ...] = ()) -> int:
        assert sql.count("%s") == len(values), sql
        self.lastrowid += 1
        self.statements.append((sql, values))
        return 1

    def fetchall(self) -> list[tuple[Any, ...]]:
        sql = self.statements[-1][0]
        if sql.startswith("SELECT id, price"):
            return [(number, Decimal("10.00")) for number in range(9)]
        return [(1,)]

    def words(self) -> list[str]:
        return [sql.split(maxsplit=1)[0] for sql, _ in self.statements]


def test_one_seed_makes_one_story() -> None:
    stories = []
    for _ in range(2):
        shop = Shop(Told())
        shop.days(12)
        stories.append(shop.connection.statements)
    assert stories[0] == stories[1]


def test_it_counts_what_it_changes() -> None:
    shop = Shop(Told())
    shop.open_up()
    shop.days(12)
    words = shop.connection.words()
    for kind in ("INSERT", "UPDATE", "DELETE"):
        assert sum(each[kind] for each in shop.changes.values()) == words.count(kind), kind
    assert shop.transactions == words.count("COMMIT") == words.count("BEGIN")
    assert shop.definitions == 1 + len(TABLES) == words.count("CREATE")


def test_a_regret_counts_for_nothing() -> None:
    shop = Shop(Told())
    shop.regret()
    assert shop.connection.words() == ["BEGIN", "UPDATE", "ROLLBACK"]
    assert shop.transactions == 0
    assert not any(n for kinds in shop.changes.values() for n in kinds.values())


def test_every_transaction_has_a_later_time() -> None:
    shop = Shop(Told())
    shop.days(12)
    told = [sql for sql, _ in shop.connection.statements if sql.startswith("SET TIMESTAMP")]
    times = [float(sql.rpartition("=")[2]) for sql in told]
    assert times == sorted(set(times))


def test_the_bundled_files_are_made_of_it() -> None:
    truth = expected()
    assert truth["seed"] == SEED
    assert truth["definitions"] == 1 + len(TABLES) + 2, "with the two of `reform`"
    assert sum(truth["files"].values()) <= SIZE_BYTES_MAX
    assert [sql.split()[2] for sql in TABLES] == list(KEYS)
