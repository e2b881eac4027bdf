"""Random tables in a mirror: after each few statements it is what SELECT shows at the source."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql
import pytest

from ray_canal.sinks.runner import Runner
from tests.in_process_sink import destination, in_thread, runner_of, sink_config
from tests.integration.test_mysql_mirror import Shop, shop_of
from tests.mirror_targets import (
    REFUSES,
    ArrowTarget,
    MySqlTarget,
    PostgresTarget,
    Target,
    held,
)
from tests.random_mirror import NO_MODE, MirroredTable, MirroredTables
from tests.servers import Server

SEEDS = int(os.environ.get("RAY_CANAL_SEEDS", "20"))
FIRST = int(os.environ.get("RAY_CANAL_SEED", "0"))
WAIT_S = float(os.environ.get("WAIT_S", "60"))
COMMON = "mysql56"
"""Its types are those that all servers have."""
STEPS = (
    "take_over", "begin", "commit", "create", "add", "rename", "rename_columns", "remove", "change",
    "note_source", "upsert", "delete", "empty", "drop", "merge", "move",
)  # fmt: skip

IN_A_SNAPSHOT = ("rename", "chain", "swap")
"""A snapshot does not follow a table to its next name: it fails, and says so."""
NOT_YET = (LookupError, AttributeError, TypeError, ValueError, ArithmeticError)


@dataclass(kw_only=True)
class Life:
    """How a mirror lives. `snapshot`: the mode of the one that it begins with. `kills`: how likely
    each of its steps is its end. `sink`: more of its settings."""

    seed: int
    steps: int
    snapshot: str = ""
    kills: float = 0.0
    senders: int = 1
    order: str = "transaction"
    rows: int = 0
    said: list[str] = field(default_factory=list)

    def tables(self, source: str, target: str) -> MirroredTables:
        kind = source if source == target or target not in ("mysql97", "mysql56", "mariadb") else ""
        without = REFUSES.get(target, ())
        without += IN_A_SNAPSHOT if self.snapshot else ()
        # Killed before its commit, a MySQL target has both names, and cannot tell whose each is.
        without += ("take_name",) if self.kills else ()
        without += ("select",) if source == "mysql56" else ()  # with GTIDs it refuses that
        return MirroredTables(self.seed, kind or COMMON, without)


class Killed(BaseException):
    pass


def killed(call: Callable[..., Any], rng: random.Random, chance: float) -> Callable[..., Any]:
    @functools.wraps(call)
    def called(*arguments: Any, **more: Any) -> Any:
        if rng.random() < chance / 2:
            raise Killed
        answer = call(*arguments, **more)
        if rng.random() < chance / 2:
            raise Killed
        return answer

    return called


@contextlib.contextmanager
def dying(runner: Runner, rng: random.Random, chance: float) -> Iterator[None]:
    """Its target's steps end the runner at random."""
    patch = pytest.MonkeyPatch()
    sink: Any = runner._sink
    kind = type(getattr(sink, "_database", None) or sink._lake)
    for name in (each for each in STEPS if hasattr(kind, each)):
        patch.setattr(kind, name, killed(getattr(kind, name), rng, chance))
    try:
        yield
    finally:
        patch.undo()


@contextlib.contextmanager
def living(make: Callable[[], Runner], life: Life) -> Iterator[Callable[[], Runner]]:
    """Runners, one after the other, each until it is killed; yields a look at the one that runs."""
    runners = [make()]

    def run(stopped: threading.Event) -> None:
        while True:
            try:
                return runners[-1].run(stopped)
            except Killed:
                runners.append(make())

    rng = random.Random(life.seed)
    with (
        dying(runners[0], rng, life.kills) if life.kills else contextlib.nullcontext(),
        in_thread(run),
    ):
        yield lambda: runners[-1]


def difference(shop: Shop, target: Target, table: MirroredTable) -> str:
    """Return in what a table's mirror is not the source's. One that a snapshot has found empty is
    made with its first row."""
    theirs = held(shop.server, shop.source, table, isinstance(target, MySqlTarget))
    try:
        mirrored = target.rows(table)
        names = target.columns(table.name)
    except (pymysql.MySQLError, *NOT_YET) as error:  # as it was before, or not there
        return f"{table.name}: {error!r}" if theirs else ""
    if {name.lower() for name in names} != {n.lower() for n in ("id", "k", *table.columns)}:
        return f"{table.name}: {names}, not {[*table.columns]}"
    for mine, its in zip(theirs, mirrored, strict=False):
        if mine != its:
            kinds = ("id", "k", *(f"{n} {k.ddl[:80]}" for n, k in table.columns.items()))
            compared = zip(kinds, mine, its, strict=True)
            wrong = [each for each in compared if each[1] != each[2]]
            return f"{table.name}, id {mine[0]}: {str(wrong)[:600]}"
    return "" if len(mirrored) == len(theirs) else f"{table.name}: {len(mirrored)}, {len(theirs)}"


def becomes_equal(
    shop: Shop, target: Target, tables: list[MirroredTable], has_failed: Callable[[], bool]
) -> str:
    """Wait until all tables are the source's; return in what one is not, if that lasts."""
    left, deadline, found = [*tables], time.monotonic() + WAIT_S, ""
    while left and time.monotonic() < deadline and not has_failed():
        found = difference(shop, target, left[0])
        if found:
            time.sleep(0.2)
        else:
            left.pop(0)
    return found if left else ""


def live(shop: Shop, target: Target, life: Life) -> None:
    made = life.tables(shop.server.kind, target.kind)
    settings = target.sink()
    section = "lake" if "lake" in settings else "mirror"
    settings[section] |= {"schema_change": "evolve"}
    if section == "mirror":
        settings[section] |= {"senders": life.senders, "order": life.order}
    config = sink_config(tables=rf"{shop.source}\..*", kind=settings.pop("type"), **settings)

    def say(*statements: str) -> None:
        life.said.extend(statements)
        shop.run("set names utf8mb4, time_zone = '+00:00'", NO_MODE, *statements)

    def is_equal(runner: Callable[[], Runner]) -> None:
        found = becomes_equal(
            shop, target, made.tables, lambda: runner().status.state == "failed"
        )
        status = runner().status
        assert not found, f"seed {life.seed}: {status.error or found} ({status.as_dict()})"

    say(*(table.create for table in made.tables))
    if life.snapshot:
        for table in made.tables:
            say(*(table.insert(50) for _ in range(20)))
    with source_of(shop, life.snapshot), living(lambda: runner_of(config), life) as runner:
        for step in range(life.steps):
            say(*made.statements())
            if step % 8 == 7:
                is_equal(runner)


def source_of(shop: Shop, snapshot: str) -> Any:
    if not snapshot:
        return shop.destination()
    source = {"address": shop.server.address, "username": "root", "snapshot": "initial"}
    small = {"chunk_bytes": 65536, "mode": snapshot, "may_lock": True}
    tables = {"tables": rf"{shop.source}\..*"}
    return destination(shop.folder, source=source, filter=tables, snapshot=small, tsdb={})


def live_once(server: Server, target: str, folder: Path, life: Life, request: Any) -> None:
    folder.mkdir()
    with contextlib.contextmanager(shop_of)(server, folder) as shop:
        found: Target
        if target == "postgres":
            found = PostgresTarget(request.getfixturevalue("postgres"), shop.copy)
        elif target in ("mysql97", "mysql56", "mariadb"):
            found = MySqlTarget(request.getfixturevalue(target), shop.copy)
        else:
            found = ArrowTarget(target, folder, shop.copy)
        try:
            live(shop, found, life)
        except BaseException:
            (folder / "said.sql").write_text(";\n".join(life.said))
            raise
        finally:
            found.clean()


PAIRS = (
    ("mysql97", "mysql97"), ("mysql56", "mysql56"), ("mariadb", "mariadb"), ("mysql97", "mariadb"),
    ("mysql56", "mysql97"), ("mariadb", "mysql97"), ("mysql97", "postgres"),
    ("mariadb", "postgres"), ("mysql97", "duckdb"), ("mysql97", "delta"), ("mysql97", "iceberg"),
)  # fmt: skip
WAYS: dict[str, dict[str, Any]] = {
    "changes": {},
    "killed": {"kills": 0.02},
    "keyed": {"snapshot": "keyed"},
    "consistent": {"snapshot": "consistent"},
    "keyed-killed": {"snapshot": "keyed", "kills": 0.02},
    "senders": {"senders": 3, "order": "key"},
    "senders-killed": {"senders": 3, "order": "table", "kills": 0.02},
}


@pytest.mark.soak
@pytest.mark.timeout(60 * SEEDS)
@pytest.mark.parametrize("way", [*WAYS])
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_many_lives(
    pair: tuple[str, str], way: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if "senders" in way and pair[1] in ("duckdb", "delta", "iceberg"):
        pytest.skip("it has one")
    server: Server = request.getfixturevalue(pair[0])
    for seed in range(FIRST, FIRST + SEEDS):
        life = Life(seed=seed, steps=32, **WAYS[way])
        live_once(server, pair[1], tmp_path / str(seed), life, request)


def test_one_life(mysql97: Server, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    live_once(mysql97, "mysql97", tmp_path / "life", Life(seed=7, steps=16), request)
